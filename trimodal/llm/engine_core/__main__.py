"""Entry of the engine's process.

Runtimes that spawn processes import it again there, under another name: it must do nothing then.
"""

from trimodal import logs
from trimodal.llm.engine_core.core import main

if __name__ == "__main__":
    logs.configure("llm")
    main()
