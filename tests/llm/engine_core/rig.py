"""An engine in the real core loop behind a real link, and all that came out of it."""

from __future__ import annotations

import threading

from tests.llm.doubles.sinks import eventually
from trimodal.llm.engine_core.client import EngineLink, start_thread
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engines.protocol import Engine, Output


class Loop:
    """`steps` grows while the engine runs; `died` is set when it is lost."""

    def __init__(self, engine: Engine) -> None:
        self.steps: list[Stepped] = []
        self.died = threading.Event()
        self.link: EngineLink = start_thread(engine)
        self.link.start(self.steps.append, self.died.set)

    def outputs(self, id: int) -> list[Output]:
        return [output for step in list(self.steps) for output in step.outputs if output.id == id]

    def tokens(self, id: int) -> list[int]:
        return [token for output in self.outputs(id) for token in output.token_ids]

    def end(self, id: int) -> Output:
        """Its last output, waited for."""
        eventually(lambda: any(output.finish_reason for output in self.outputs(id)))
        return self.outputs(id)[-1]
