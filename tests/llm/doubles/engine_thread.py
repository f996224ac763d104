"""Runs an engine's real loop on a thread of this process, behind a real connection."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe

from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engine_core.core import run_engine
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import Engine, EngineLost, Output
from trimodal.llm.settings import LlmSettings

logger = logging.getLogger(__name__)


class PlayedEngine(FakeEngine):
    """Is lost at the next step or glance once `lost` is set; makes steps only while `goes` is."""

    def __init__(self, settings: LlmSettings, goes: threading.Event) -> None:
        super().__init__(settings)
        self.lost = threading.Event()
        self._goes = goes

    def step(self) -> list[Output]:
        assert self._goes.wait(30), "the test never let it go on"
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


class PlayedEngines:
    """Opens one after the other; `blocks`: KV blocks of each, the last of all further ones."""

    def __init__(self, *blocks: int) -> None:
        self.opened: list[PlayedEngine] = []
        self._blocks = list(blocks)
        self._goes = threading.Event()
        self._goes.set()

    def start(self, settings: LlmSettings) -> EngineCoreClient:
        if self._blocks:
            number = min(len(self.opened), len(self._blocks) - 1)
            settings = settings.model_copy(update={"num_kv_blocks": self._blocks[number]})
        self.opened.append(PlayedEngine(settings, self._goes))
        return start_thread(self.opened[-1])

    def lose(self) -> None:
        """The present one is lost."""
        self.opened[-1].lost.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside no step is made: what the engine has stays there."""
        self._goes.clear()
        try:
            yield
        finally:
            self._goes.set()


def _run_and_close(engine: Engine, connection: Connection) -> None:
    with connection:
        try:
            run_engine(engine, connection)
        except EngineLost as error:
            logger.error("the engine is lost: %s", error)
