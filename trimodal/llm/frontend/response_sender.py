"""Sends responses to clients: one at a time for each request, several requests at once."""

from __future__ import annotations

import logging
import queue

from trimodal.errors import RequestError
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.frontend.operator_calls import PendingCall
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.outputs import Delta

logger = logging.getLogger(__name__)


class ResponseSender:
    """Queues the requests that have something to send, for the service's sender threads.

    A request is in the queue once, and with one thread at a time. While that thread sends, its text piles up
    into the next delta: a slow transport costs deltas, neither memory nor the engine's time.
    """

    def __init__(self, metrics: LlmMetrics) -> None:
        self._metrics = metrics
        self._ready: queue.SimpleQueue[RequestState | PendingCall | None] = queue.SimpleQueue()

    def notify(self, *states: RequestState | PendingCall) -> None:
        """Queues requests that have something to send. Called under the service's lock."""
        for state in states:
            if not state.sending:
                state.sending = True
                self._ready.put(state)

    def next(self) -> RequestState | PendingCall | None:
        """Waits for a request that has something to send; None after `close`."""
        return self._ready.get()

    def send(self, state: RequestState | PendingCall, item: Delta | RequestError) -> bool:
        """Sends a response without any lock; False: a delta could not be sent, the answer has a hole."""
        assert state.sink
        try:
            if isinstance(item, RequestError):
                state.sink.fail(item)
            else:
                state.sink.send(item)
        except Exception:
            logger.exception("a response could not be sent", extra={"request_id": state.request_id})
            if isinstance(item, Delta):
                return False
        state.sent(item, self._metrics)
        return True

    def close(self, threads: int) -> None:
        """Ends so many sender threads, after everything that is queued."""
        for _ in range(threads):
            self._ready.put(None)
