"""Tells the stages of one request that it is over, and stops the calls that they wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from trimodal.assistant.values import Stopped
from trimodal.errors import as_request_error


class CancelToken:
    """One request's; its methods are called from several threads.

    Args:
        threads: run the stops, so that `cancel` waits for no other model.

    Attributes:
        done: whether the client has been told the end. Guarded by the lock, read without it.
    """

    def __init__(self, threads: Executor) -> None:
        self.done = False
        self._threads = threads
        self._lock = threading.Lock()
        self._stops: dict[int, Callable[[], None]] = {}

    def check(self) -> None:
        """Raises Stopped when the request is over."""
        if self.done:
            raise Stopped

    @contextmanager
    def on_cancel(self, stop: Callable[[], None]) -> Iterator[None]:
        """Calls `stop` if the request is cancelled inside. Raises Stopped when it is over already."""
        with self._lock:
            self.check()
            self._stops[id(stop)] = stop
        try:
            yield
        finally:
            with self._lock:
                self._stops.pop(id(stop), None)

    def finish(self) -> None:
        """Marks the request as over; its stages have come to their end, so nothing is stopped."""
        with self._lock:
            self.done = True
            self._stops.clear()

    def cancel(self) -> None:
        """Marks the request as over and stops what its stages wait for."""
        with self._lock:
            self.done = True
            stops = list(self._stops.values())
            self._stops.clear()
        for stop in stops:
            self._threads.submit(_logged, stop)


def _logged(stop: Callable[[], None]) -> None:
    try:
        stop()
    except Exception as error:  # the other model failed: so did what was to be stopped there
        as_request_error(error)
