import math

import pytest

from tests.llm.doubles.sinks import Collector
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.frontend.ticketing import deadline, priority, ticket_of
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.request.tiers import Tier


def stream(tier: Tier, terms: Terms) -> RequestState:
    request = GenerationRequest("hi", None, Sampling(10), terms=terms)
    end = deadline(100.0, terms, tier)
    return RequestState(request, [1, 2], Collector(), arrived=100.0, tier=tier, tier_name="t", deadline=end)


@pytest.mark.parametrize(
    ("tier", "terms", "due", "bound"),
    [
        (Tier(), Terms(), math.inf, "ttft_deadline_ms"),
        (Tier(ttft_deadline_ms=500), Terms(), 100.5, "ttft_deadline_ms"),
        (Tier(ttft_deadline_ms=500), Terms(ttft_deadline_ms=2000), 102.0, "ttft_deadline_ms"),
        (Tier(ttft_deadline_ms=500), Terms(deadline_ms=200), 100.2, "deadline_ms"),
        (Tier(deadline_ms=300), Terms(ttft_deadline_ms=2000), 100.3, "deadline_ms"),
        (Tier(deadline_ms=300), Terms(deadline_ms=9000), 109.0, "deadline_ms"),
    ],
)
def test_the_stricter_deadline_counts_and_is_named(tier: Tier, terms: Terms, due: float, bound: str) -> None:
    ticket = ticket_of(1, stream(tier, terms))
    assert ticket.ttft_deadline == pytest.approx(due)
    if due < math.inf:
        assert ticket.bound == bound


def test_equal_beginnings_are_equal_prefixes() -> None:
    long = GenerationRequest("x", None, Sampling(10))
    ids = list(range(100))
    one, other, third = (
        ticket_of(1, RequestState(long, tokens, Collector()))
        for tokens in (ids, ids[:80] + [7] * 9, [5, *ids])
    )
    assert one.prefix == other.prefix != third.prefix


def test_a_priority_may_be_lowered_only() -> None:
    tier = Tier(priority=5)
    assert priority(Terms(), tier, "paid") == 5
    assert priority(Terms(priority=-7), tier, "paid") == -7
    with pytest.raises(InvalidArgument, match="priority is 6: tier 'paid' allows at most 5"):
        priority(Terms(priority=6), tier, "paid")
