import math

import pytest

from tests.llm.scheduler.engine_rig import STEP, STREAM, TOKEN, practised, ticket
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel


def test_nothing_is_foreseen_before_anything_was_seen() -> None:
    speed = LatencyModel()
    assert math.isnan(speed.ttft(100))
    assert math.isnan(speed.alone(100))
    assert math.isnan(speed.gap(1))
    assert not speed.ready
    assert not speed.decode_ready


def test_first_tokens_are_foreseen_from_prompt_and_load() -> None:
    speed = practised()
    assert speed.alone(200) == pytest.approx(STEP + 200 * TOKEN, rel=0.15)
    speed.streams = 3
    assert speed.ttft(400) == pytest.approx(STEP + 3 * STREAM + 400 * TOKEN, rel=0.15)


def test_gaps_and_what_prompts_add_to_them_are_told_apart() -> None:
    speed = practised()
    assert speed.gap(1) == pytest.approx(STEP + STREAM, rel=0.1)
    assert speed.gap(4) == pytest.approx(STEP + 4 * STREAM, rel=0.1)
    # A step with a prompt takes STEP too: both are what the prompt holds up the others by.
    assert speed.prefill_s >= TOKEN * 0.8


def test_of_an_engine_that_takes_the_shortest_first_a_long_prompt_holds_up_none_but_longer_ones() -> None:
    speed = practised()
    speed.shortest_first = True
    token = speed.ttft_weights[1]
    alone = {length: speed.ttft(length) for length in (20, 90, 5000)}
    speed.started(ticket(1000, 4000))
    assert speed.ttft(90) == pytest.approx(alone[90] + 30 * token), "the oldest has its quarter"
    speed.started(ticket(1001, 60))
    assert speed.ttft(90) == pytest.approx(alone[90] + (60 + 30) * token)
    assert speed.ttft(5000) == pytest.approx(alone[5000] + 4060 * token)
    assert speed.ttft(20) < alone[20] + 10 * token
    assert speed.pending == 4060


def test_prompts_in_hand_come_first() -> None:
    speed = practised()
    before = speed.ttft(100)
    other = ticket(1000, 400)
    speed.started(other)
    assert speed.pending == 400
    assert speed.ttft(100) == pytest.approx(before + 400 * speed.ttft_weights[1])


def test_what_the_prefix_cache_spared_costs_nothing() -> None:
    """Half of each prompt is spared; the books and the model count the other half."""
    speed, now = LatencyModel(), 1.0
    for id in range(40):
        prompt = 100 + 20 * (id % 10)
        each = ticket(id, prompt)
        each.uncached, each.cached_tokens, each.started = prompt, prompt // 2, now
        speed.started(each)
        now += STEP + prompt / 2 * TOKEN
        each.first_token = now
        speed.first(each, now)
        speed.gone(each)
    assert speed.pending == 0
    assert speed.alone(100) == pytest.approx(STEP + 100 * TOKEN, rel=0.15)


def test_an_engine_that_says_nothing_stalls() -> None:
    speed = practised()
    assert speed.stall(1e6) == 0  # it has nothing to do
    each = ticket(1001, 100)
    each.started = 1000.0
    speed.started(each)
    usual = speed.ttft(0)
    assert speed.stall(1000.0 + usual) == 0
    assert speed.stall(1005.0) == pytest.approx(5 - 3 * usual)
    each.first_token = 1005.0
    speed.first(each, 1005.0)
    assert speed.stall(1005.01) == 0
    assert LatencyModel().stall(5.0) == 0
