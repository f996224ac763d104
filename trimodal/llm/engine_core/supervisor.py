"""Keeps an engine open: opens another one when its process dies, and gives up when that happens too often.

Whose requests were in it, and what they are told, is its owner's affair.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from trimodal.llm.engine_core.client import EngineLink
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engines.protocol import EngineInfo, EngineRequest
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.settings import LlmSettings

RESTARTS = 3
WINDOW_S = 300.0


class Restarts:
    """Losses of one engine, of the last minutes."""

    def __init__(self) -> None:
        self._losses: list[float] = []

    def another(self) -> bool:
        """Counts a loss; False when there were too many in a short time."""
        now = time.monotonic()
        self._losses = [at for at in self._losses if now - at < WINDOW_S] + [now]
        return len(self._losses) <= RESTARTS


class EngineKeeper:
    """An engine's link, or none for a while.

    Args:
        lock: its owner's; the callbacks of `run` but `on_step` are called with it held.

    Raises:
        OperatorError: the engine could not be opened.
    """

    def __init__(
        self,
        settings: LlmSettings,
        start: Callable[[LlmSettings], EngineLink],
        lock: threading.RLock,
        metrics: LlmMetrics,
    ) -> None:
        self._settings = settings
        self._start = start
        self._lock = lock
        self._metrics = metrics
        self._restarts = Restarts()
        self._closed = False
        self._link: EngineLink | None = start(settings)
        self.info: EngineInfo = self._link.info
        self.absence = ""
        """Why there is no engine, for clients; empty when there is one."""

    def run(
        self,
        on_step: Callable[[Stepped], None],
        on_lost: Callable[[], None],
        on_back: Callable[[EngineInfo], None],
        on_given_up: Callable[[], None],
    ) -> None:
        """Begins to read the engine's steps.

        Args:
            on_lost: it died with all that was in it. on_back: another one is open. on_given_up: none will be.
        """
        self._on_step, self._on_lost = on_step, on_lost
        self._on_back, self._on_given_up = on_back, on_given_up
        if self._link:
            self._link.start(on_step, self._died)

    @property
    def there(self) -> bool:
        return self._link is not None

    def add(self, request: EngineRequest) -> None:
        """Hands a sequence over; the owner asked `there` under the same lock."""
        assert self._link
        self._link.add(request)

    def cancel(self, id: int) -> None:
        """Drops a sequence, if there is an engine that may have it."""
        if self._link:
            self._link.cancel(id)

    def close(self) -> None:
        """Ends the engine; no other one is opened. Not to be called under the lock."""
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
        if link:
            link.close()

    def _died(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._link = None
            self.absence = "the engine is being restarted; try again later"
            self._on_lost()
        while self._may_restart():
            try:
                link = self._start(self._settings)
            except Exception as error:
                print(f"trimodal: the engine did not open again: {error}", file=sys.stderr, flush=True)
                continue
            with self._lock:
                if not self._closed:
                    self._link, self.info, self.absence = link, link.info, ""
                    link.start(self._on_step, self._died)
                    self._on_back(link.info)
                    return
            link.close()  # closed in the meantime: nobody else knows this engine

    def _may_restart(self) -> bool:
        """Counts a loss; False when the owner closes, or after too many in a short time."""
        with self._lock:
            another = self._restarts.another()
            if self._closed:
                return False
            self._metrics.restarts.increment(1)
            if another:
                return True
            print("trimodal: the engine keeps dying; not started again", file=sys.stderr, flush=True)
            self.absence = "the engine keeps failing; the operator must look at it"
            self._on_given_up()
            return False
