import math

import pytest

from tests.llm.scheduler.engine_rig import practised, ticket
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.prefill_budget import PrefillBudget
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.tiers import Tier

BOUND = 0.050


def stream(bound_ms: float = BOUND * 1e3) -> Ticket:
    """One that decodes."""
    made = ticket(500, tier=Tier(itl_bound_ms=bound_ms))
    made.first_token = 1.0
    return made


@pytest.mark.parametrize(
    ("speed", "step_tokens", "bounded"),
    [(practised(), 4096, False), (practised(), 256, True), (LatencyModel(), 4096, True)],
    ids=["without a bound", "where steps are small enough", "before the speed is known"],
)
def test_nothing_is_held_back(speed: LatencyModel, step_tokens: int, bounded: bool) -> None:
    waits = ticket(1, tier=Tier(itl_bound_ms=1))
    pace = PrefillBudget(speed, [stream() if bounded else stream(0), waits], step_tokens)
    speed.started(ticket(2, 100_000))
    assert pace.allows(100_000)
    assert bounded or pace.limit() == math.inf


def test_prompts_in_hand_fit_between_two_tokens_of_a_bounded_stream() -> None:
    speed, running = practised(), [stream()]
    pace = PrefillBudget(speed, running, 4096)
    limit = pace.limit()
    assert speed.gap(speed.streams) + limit * speed.prefill_s == pytest.approx(0.9 * BOUND)
    assert 0 < limit < 4096
    speed.started(ticket(2, int(limit) - 10))
    assert pace.allows(10)
    assert not pace.allows(11)
    running.clear()
    assert pace.allows(11)


def test_a_prompt_that_is_too_long_goes_alone() -> None:
    speed = practised()
    pace = PrefillBudget(speed, [stream()], 4096)
    assert pace.allows(100_000)
    speed.started(ticket(2, 1))
    assert not pace.allows(100_000)


def test_the_tightest_bound_holds() -> None:
    running = [stream(500), stream(), stream()]
    pace = PrefillBudget(practised(), running, 100_000)
    tight = pace.limit()
    running.pop()
    assert pace.limit() == tight
    running.pop()
    assert tight < pace.limit() < math.inf
    running.pop()
    assert pace.limit() == math.inf
