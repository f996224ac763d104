import pytest

from trimodal.llm.engines.openvino.speculation import SpeculationJudge


def feed(judge: SpeculationJudge, sequences: int, tokens: int, seconds: float, steps: int = 128) -> None:
    for _ in range(steps):
        judge.observe(sequences, tokens, seconds)


@pytest.mark.parametrize(
    ("plain", "sequences", "tokens", "seconds", "speedup"),
    [
        ({1: 0.010, 8: 0.030}, 1, 3, 0.020, 1.5),
        ({1: 0.010}, 1, 1, 0.015, 0.67),
        ({1: 0.010, 9: 0.050}, 5, 10, 0.050, 1.2),  # a batch is compared with the same batch
    ],
)
def test_more_tokens_than_time_wins_and_more_time_than_tokens_loses(
    plain: dict[int, float], sequences: int, tokens: int, seconds: float, speedup: float
) -> None:
    judge = SpeculationJudge(plain)
    feed(judge, sequences, tokens, seconds)
    assert judge.speedup == pytest.approx(speedup, abs=0.005)
    assert judge.loses == (speedup < 1)
    assert f"{speedup:.2f} x plain decoding, {tokens / sequences:.2f} tokens per step" in judge.note


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
