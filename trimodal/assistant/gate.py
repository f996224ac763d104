"""Bounds the calls of other models inside Triton that wait for their response.

The Python backend gives a model 32 threads for all that it asks of the server
(`thread-pool-size`). A call holds one until it is answered, and the responses
to the model's own clients need one too: with 32 calls waiting nothing more goes
out, not even a cancellation. So fewer wait here, and the rest wait before the gate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of 32: the others are for responses, cancellations and metrics.
AT_ONCE = 24
_LOOK_S = 0.02


class Gate:
    """Lets `at_once` calls wait together."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._free = threading.Semaphore(at_once)

    @contextmanager
    def waiting(self, check: Callable[[], None]) -> Iterator[None]:
        """A call may wait inside.

        Args:
            check: looked at while the gate is full; raises to give up.
        """
        while not self._free.acquire(timeout=_LOOK_S):
            check()
        try:
            yield
        finally:
            self._free.release()
