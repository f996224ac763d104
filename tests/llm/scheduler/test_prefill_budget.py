import math

import pytest

from tests.llm.scheduler.engine_rig import practised, ticket
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.prefill_budget import PrefillBudget
from trimodal.llm.tiers import Tier

BOUND = 0.050
chat = ticket(500, tier=Tier(itl_bound_ms=BOUND * 1e3))


@pytest.mark.parametrize(
    ("speed", "step_tokens", "bounded"),
    [(practised(), 4096, False), (practised(), 256, True), (LatencyModel(), 4096, True)],
    ids=["without a bound", "where steps are small enough", "before the speed is known"],
)
def test_nothing_is_held_back(speed: LatencyModel, step_tokens: int, bounded: bool) -> None:
    pace = PrefillBudget(speed, step_tokens)
    pace.began(chat if bounded else ticket(1))
    speed.started(ticket(2, 100_000))
    assert pace.allows(100_000)
    assert bounded or pace.limit() == math.inf


def test_prompts_in_hand_fit_between_two_tokens_of_a_bounded_stream() -> None:
    speed = practised()
    pace = PrefillBudget(speed, 4096)
    pace.began(chat)
    limit = pace.limit()
    assert speed.gap(speed.streams) + limit * speed.prefill_s == pytest.approx(0.9 * BOUND)
    assert 0 < limit < 4096
    speed.started(ticket(2, int(limit) - 10))
    assert pace.allows(10)
    assert not pace.allows(11)
    pace.ended(chat)
    assert pace.allows(11)


def test_a_prompt_that_is_too_long_goes_alone() -> None:
    speed = practised()
    pace = PrefillBudget(speed, 4096)
    pace.began(chat)
    assert pace.allows(100_000)
    speed.started(ticket(2, 1))
    assert not pace.allows(100_000)


def test_the_tightest_bound_holds() -> None:
    pace = PrefillBudget(practised(), 100_000)
    loose = ticket(501, tier=Tier(itl_bound_ms=500))
    for each in (loose, chat, chat):
        pace.began(each)
    tight = pace.limit()
    pace.ended(chat)
    assert pace.limit() == tight
    pace.ended(chat)
    assert tight < pace.limit() < math.inf
    pace.emptied()
    assert pace.limit() == math.inf
