"""Reads an engine's steps on a thread, as the service does, and keeps all of them."""

from __future__ import annotations

import threading

from tests.llm.doubles.engine_thread import start_thread
from tests.llm.doubles.sinks import eventually
from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engines.protocol import Engine, Output


class Reader:
    """`steps` grows while the engine runs; `died` is set when it is gone, closed or lost."""

    def __init__(self, client: EngineCoreClient) -> None:
        self.client = client
        self.steps: list[Stepped] = []
        self.died = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.client.close()
        self._thread.join(10)

    def _read(self) -> None:
        while stepped := self.client.receive():
            self.steps.append(stepped)
        self.died.set()


class Loop(Reader):
    """An engine in the real core loop behind a real connection."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(start_thread(engine))
        self.link = self.client

    def outputs(self, id: int) -> list[Output]:
        return [output for step in list(self.steps) for output in step.outputs if output.id == id]

    def tokens(self, id: int) -> list[int]:
        return [token for output in self.outputs(id) for token in output.token_ids]

    def end(self, id: int) -> Output:
        """Its last output, waited for."""
        eventually(lambda: any(output.finish_reason for output in self.outputs(id)))
        return self.outputs(id)[-1]
