"""Restarts the engine process when it dies, up to 3 times in 5 minutes, and yields what happens as events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engines.protocol import EngineInfo
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import Metric

logger = logging.getLogger(__name__)

RESTARTS = 3
WINDOW_S = 300.0


@dataclass(frozen=True)
class EngineLost:
    """The engine died with all that was in it; `reason` is for clients while there is none."""

    reason: str = "the engine is being restarted; try again later"


@dataclass(frozen=True)
class EngineReopened:
    """Another engine is open."""

    info: EngineInfo


@dataclass(frozen=True)
class EngineGivenUp:
    """No other engine will be opened; `reason` is for clients."""

    reason: str = "the engine keeps failing; the operator must look at it"


EngineEvent = Stepped | EngineLost | EngineReopened | EngineGivenUp


class EngineSupervisor:
    """Keeps one engine open; the caller reads `events` and fails the requests of a lost one.

    `client` is the present one. A dead one ignores what it is given: EngineLost follows.

    Args:
        start: opens an engine. restarts: counts engines lost.

    Raises:
        OperatorError: the first engine could not be opened.
    """

    def __init__(
        self, settings: LlmSettings, start: Callable[[LlmSettings], EngineCoreClient], restarts: Metric
    ) -> None:
        self._settings = settings
        self._start = start
        self._restarts = restarts
        self._losses: list[float] = []
        self._lock = threading.Lock()  # guards the two below
        self._closed = False
        self.client = start(settings)

    def events(self) -> Iterator[EngineEvent]:
        """Waits for what happens next, until the engine is closed or given up. Read by one thread."""
        while True:
            yield from iter(self.client.receive, None)
            if not self._closed:
                yield EngineLost()  # first: to end what is left of it may take seconds
            self.client.close()
            if self._closed:
                return
            client = self._reopen()
            if client is None:
                if not self._closed:
                    logger.error("the engine keeps dying; not started again")
                    yield EngineGivenUp()
                return
            yield EngineReopened(client.info)

    def close(self) -> None:
        """Ends the engine; no other one is opened."""
        with self._lock:
            self._closed = True
        self.client.close()

    def _reopen(self) -> EngineCoreClient | None:
        """Another engine; None after too many losses, or when closed."""
        while self._may_restart():
            try:
                client = self._start(self._settings)
            except Exception as error:
                logger.error("the engine did not open again: %s", error)
                continue
            with self._lock:
                if not self._closed:
                    self.client = client
                    return client
            client.close()
        return None

    def _may_restart(self) -> bool:
        """Counts a loss; False when closed, or after too many in a short time."""
        if self._closed:
            return False
        self._restarts.increment(1)
        now = time.monotonic()
        self._losses = [at for at in self._losses if now - at < WINDOW_S] + [now]
        return len(self._losses) <= RESTARTS
