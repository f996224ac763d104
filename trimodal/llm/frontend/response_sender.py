"""Threads that hand deltas to their sinks, one stream at a time each, never two for one stream.

While a sink is slow its stream's text piles up into one delta: that is the whole
back-pressure, so a slow transport costs deltas, not memory and not the engine's time.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable

from trimodal.errors import RequestError
from trimodal.llm.frontend.request_state import Stream
from trimodal.llm.request.outputs import Delta

Report = Callable[[Stream, "Delta | RequestError"], None]


class Courier:
    """A bounded number of sending threads over one queue of streams that have something ready.

    Args:
        threads: how many sends may be under way together.
        lock: guards the streams; held only to take what is ready, never during a send.
        on_sent: called after every delivery, outside the lock.
        on_unsent: called when a sink would not take a delta; it ends the stream.
    """

    def __init__(
        self, threads: int, lock: threading.RLock, on_sent: Report, on_unsent: Callable[[Stream], None]
    ) -> None:
        self._lock = lock
        self._on_sent = on_sent
        self._on_unsent = on_unsent
        self._ready: queue.SimpleQueue[Stream | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"llm-courier-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def notify(self, stream: Stream) -> None:
        """`stream` has something to send. The caller holds the lock."""
        if not stream.at_courier:
            stream.at_courier = True
            self._ready.put(stream)

    def close(self, timeout: float) -> None:
        """Ends the threads once everything that is ready has been sent."""
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join(timeout)

    def _run(self) -> None:
        while stream := self._ready.get():
            while True:
                with self._lock:
                    item = stream.take()
                    if item is None:
                        stream.at_courier = False
                        break
                self._deliver(stream, item)

    def _deliver(self, stream: Stream, item: Delta | RequestError) -> None:
        try:
            if isinstance(item, RequestError):
                stream.sink.fail(item)
            else:
                stream.sink.send(item)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if isinstance(item, Delta):
                # Going on would leave a hole in the answer, or no end of it: its error is taken next.
                self._on_unsent(stream)
                return
        self._on_sent(stream, item)
