"""Finds the requests that have to end because their client left or a deadline passed."""

from __future__ import annotations

from collections.abc import Iterable

from trimodal.errors import Unavailable
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.frontend.ticketing import ttft_deadline

_RETRY_S = (0.05, 60.0)


class RequestMonitor:
    """Checks requests against their clients and deadlines; ends none.

    Args:
        ttft_deadlines: whether a first text that comes too late ends a request; not with scheduler "fifo".
    """

    def __init__(self, *, ttft_deadlines: bool) -> None:
        self._ttft_deadlines = ttft_deadlines

    def left(self, states: Iterable[RequestState]) -> list[RequestState]:
        """The requests whose clients left. Asks every client: not to be called under the lock."""
        return [state for state in states if not state.ended and state.client_left()]

    def overdue(self, state: RequestState, now: float) -> bool:
        """Whether its answer was to be complete by now."""
        return not state.ended and now > state.deadline

    def problem(self, state: RequestState, now: float) -> Unavailable | None:
        """Why a request without any text cannot be answered in time any more."""
        waited = now - state.arrived
        if self.overdue(state, now) and not state.completion_tokens:
            return Unavailable(f"deadline_ms passed: no text yet after {waited * 1e3:.0f} ms")
        if state.ended or not self._ttft_deadlines or not state.generation:
            return None
        ticket = state.generation.ticket
        # A shared generation expires on the latest deadline of its listeners; this one's may be earlier.
        if ticket.started or ttft_deadline(state) >= min(now, ticket.expires):
            return None
        problem = f"ttft_deadline_ms cannot be kept any more after {waited * 1e3:.0f} ms in the queue"
        shortest, longest = _RETRY_S
        return Unavailable(problem, max(shortest, min(waited, longest)))
