"""From a request's terms and its tier to what the scheduler wants to know. It orders nothing."""

from __future__ import annotations

import math

from trimodal.errors import InvalidArgument
from trimodal.llm.frontend.request_state import Stream
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


def ticket_of(id: int, stream: Stream) -> Ticket:
    """A generation's ticket, on the terms of the client that asked first."""
    due = ttft_deadline(stream)
    return Ticket(
        id=id,
        prompt_tokens=len(stream.prompt_ids),
        max_tokens=stream.request.sampling.max_tokens,
        tier=stream.tier,
        tier_name=stream.tier_name,
        priority=stream.priority,
        prefix=hash(tuple(stream.prompt_ids[:_PREFIX_TOKENS])),
        arrived=stream.arrived,
        ttft_deadline=due,
        bound="deadline_ms" if due == stream.deadline else "ttft_deadline_ms",
    )


def ttft_deadline(stream: Stream) -> float:
    """When its first text is due, in the clock of `arrived`; inf: never. The end's deadline bounds it too."""
    wanted = stream.request.terms.ttft_deadline_ms
    milliseconds = stream.tier.ttft_deadline_ms if wanted is None else wanted
    due = stream.arrived + milliseconds / 1e3 if milliseconds else math.inf
    return min(due, stream.deadline)


def deadline(arrived: float, terms: Terms, tier: Tier) -> float:
    """When its answer is to be complete, in the clock of `arrived`; inf: never."""
    milliseconds = tier.deadline_ms if terms.deadline_ms is None else terms.deadline_ms
    return arrived + milliseconds / 1e3 if milliseconds else math.inf
