"""Runs an engine's real loop on a thread of this process, behind a real connection."""

from __future__ import annotations

import logging
import threading
from multiprocessing.connection import Connection, Pipe

from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engine_core.core import run_engine
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import Engine, EngineLost, Output
from trimodal.llm.settings import LlmSettings

logger = logging.getLogger(__name__)


class LosableEngine(FakeEngine):
    """Is lost at the next step or glance once `lost` is set."""

    def __init__(self, settings: LlmSettings) -> None:
        super().__init__(settings)
        self.lost = threading.Event()

    def step(self) -> list[Output]:
        self.check()
        return super().step()

    def check(self) -> None:
        if self.lost.is_set():
            raise EngineLost("CUDA error: an illegal memory access was encountered")


def start_thread(engine: Engine) -> EngineCoreClient:
    """An engine on a thread of this process."""
    ours, theirs = Pipe()
    arguments = (engine, theirs)
    threading.Thread(target=_run_and_close, args=arguments, name="llm-engine-core", daemon=True).start()
    return EngineCoreClient(ours)


class LosableEngines:
    """Opens one after the other; `blocks`: KV blocks of each, the last of all further ones."""

    def __init__(self, *blocks: int) -> None:
        self.opened: list[LosableEngine] = []
        self._blocks = list(blocks)

    def start(self, settings: LlmSettings) -> EngineCoreClient:
        if self._blocks:
            number = min(len(self.opened), len(self._blocks) - 1)
            settings = settings.model_copy(update={"num_kv_blocks": self._blocks[number]})
        self.opened.append(LosableEngine(settings))
        return start_thread(self.opened[-1])

    def lose(self) -> None:
        """The present one is lost."""
        self.opened[-1].lost.set()


def _run_and_close(engine: Engine, connection: Connection) -> None:
    with connection:
        try:
            run_engine(engine, connection)
        except EngineLost as error:
            logger.error("the engine is lost: %s", error)
