"""Derives priority, deadlines and the scheduler's ticket from a request's terms and its tier."""

from __future__ import annotations

import math

from trimodal.errors import InvalidArgument
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.terms import Terms
from trimodal.llm.request.tiers import Tier
from trimodal.llm.scheduler import Ticket

_PREFIX_TOKENS = 64


def priority(terms: Terms, tier: Tier, name: str) -> int:
    """The request's priority.

    Raises:
        InvalidArgument: it asks for more than its tier gives.
    """
    if terms.priority is None:
        return tier.priority
    if terms.priority > tier.priority:
        raise InvalidArgument(
            f"priority is {terms.priority}: tier '{name}' allows at most {tier.priority} (lower is fine)"
        )
    return terms.priority


def ticket_of(id: int, state: RequestState) -> Ticket:
    """A generation's ticket, on the terms of the client that asked first."""
    due = ttft_deadline(state)
    return Ticket(
        id=id,
        prompt_tokens=len(state.prompt_ids),
        max_tokens=state.request.sampling.max_tokens,
        tier=state.tier,
        tier_name=state.tier_name,
        priority=state.priority,
        prefix=hash(tuple(state.prompt_ids[:_PREFIX_TOKENS])),
        arrived=state.arrived,
        ttft_deadline=due,
        bound="deadline_ms" if due == state.deadline else "ttft_deadline_ms",
    )


def ttft_deadline(state: RequestState) -> float:
    """When its first text is due, in the clock of `arrived`; inf: never. The end's deadline bounds it too."""
    wanted = state.request.terms.ttft_deadline_ms
    milliseconds = state.tier.ttft_deadline_ms if wanted is None else wanted
    due = state.arrived + milliseconds / 1e3 if milliseconds else math.inf
    return min(due, state.deadline)


def deadline(arrived: float, terms: Terms, tier: Tier) -> float:
    """When its answer is to be complete, in the clock of `arrived`; inf: never."""
    milliseconds = tier.deadline_ms if terms.deadline_ms is None else terms.deadline_ms
    return arrived + milliseconds / 1e3 if milliseconds else math.inf
