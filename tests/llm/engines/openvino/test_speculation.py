import pytest

from trimodal.llm.engines.openvino.speculation import SpeculationJudge


def feed(judge: SpeculationJudge, sequences: int, tokens: int, seconds: float, steps: int = 128) -> None:
    for _ in range(steps):
        judge.observe(sequences, tokens, seconds)


def test_more_tokens_than_time_wins() -> None:
    judge = SpeculationJudge({1: 0.010, 8: 0.030})
    feed(judge, sequences=1, tokens=3, seconds=0.020)
    assert judge.speedup == pytest.approx(1.5)
    assert not judge.loses


def test_more_time_than_tokens_loses() -> None:
    judge = SpeculationJudge({1: 0.010})
    feed(judge, sequences=1, tokens=1, seconds=0.015)
    assert judge.loses
    assert "0.67 x plain decoding, 1.00 tokens per step" in judge.note


def test_a_batch_is_compared_with_the_same_batch() -> None:
    judge = SpeculationJudge({1: 0.010, 9: 0.050})
    assert judge.plain_seconds(5) == pytest.approx(0.030)
    feed(judge, sequences=5, tokens=10, seconds=0.050)
    assert judge.speedup == pytest.approx(1.2)


def test_few_steps_are_no_verdict() -> None:
    judge = SpeculationJudge({1: 0.010})
    feed(judge, sequences=1, tokens=1, seconds=1.0, steps=127)
    assert not judge.loses


def test_slow_steps_of_a_busy_machine_are_no_verdict() -> None:
    judge = SpeculationJudge({1: 0.010})
    for index in range(128):
        judge.observe(1, 3, 0.3 if index % 4 == 0 else 0.015)
    assert judge.speedup == pytest.approx(2.0)
    assert not judge.loses
