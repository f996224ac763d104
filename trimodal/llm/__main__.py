"""Entry of the engine's process; a module of its own so that core's messages pickle under one name."""

from trimodal.llm.core import main

main()
