import math
import random

import pytest

from trimodal.llm.scheduler.estimators.answer_lengths import AnswerLengths, LifeTable


def mean_left(table: LifeTable, made: int) -> float:
    return sum(table.left(made, (rank + 0.5) / 200) for rank in range(200)) / 200


def test_nothing_is_foreseen_before_a_few_answers() -> None:
    lengths = AnswerLengths()
    for _ in range(7):
        lengths.learn("standard", 10, 100, finished=True)
    assert not lengths.ready
    assert math.isnan(lengths.left("standard", 0, 100, 0.5))
    lengths.learn("standard", 10, 100, finished=True)
    assert lengths.left("standard", 0, 100, 0.5) == pytest.approx(10, abs=1)


def test_what_is_left_depends_on_what_has_come() -> None:
    """Half the answers have 10 tokens, half 200: after 20 tokens it is one of the long ones."""
    table = LifeTable([(10, True), (200, True)] * 50)
    assert mean_left(table, 0) == pytest.approx(105, rel=0.1)
    assert mean_left(table, 20) == pytest.approx(180, rel=0.1)


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (600, [96, 300, 640, 1280, 1688]),
        (1279, [127, 319, 640, 960, 1153]),
        (1280, [128, 320, 640, 960, 1152]),
        (2500, [6, 15, 30, 45, 54]),
    ],
)
def test_in_a_gap_between_two_lengths_no_answer_is_said_to_end_at_once(made: int, left: list[int]) -> None:
    table = LifeTable([(20 << doubled, True) for doubled in range(8)])  # 20 to 2560
    assert [table.left(made, rank) for rank in (0.1, 0.25, 0.5, 0.75, 0.9)] == pytest.approx(left, abs=1)


def test_answers_cut_short_count_as_longer_than_they_got() -> None:
    draw = random.Random(0)
    lengths = [1 + int(draw.expovariate(1 / 100)) for _ in range(2000)]
    cut = LifeTable([(min(length, 60), length <= 60) for length in lengths])
    assert cut.ended(50) == pytest.approx(1 - math.exp(-0.5), abs=0.03)  # not 1, though none was seen longer
    assert cut.left(0, 0.9) == math.inf


def test_answers_that_only_max_tokens_ends_take_all_they_may() -> None:
    lengths = AnswerLengths()
    for _ in range(20):
        lengths.learn("standard", 64, 64, finished=True)
    assert lengths.left("standard", 0, 64, 0.5) == 64
    assert lengths.left("standard", 60, 64, 0.5) == 4
    assert lengths.left("standard", 64, 64, 0.5) == 1


def test_a_tier_with_enough_answers_has_its_own_table() -> None:
    lengths = AnswerLengths()
    for _ in range(40):
        lengths.learn("short", 5, 1000, finished=True)
        lengths.learn("long", 500, 1000, finished=True)
    assert lengths.left("short", 0, 1000, 0.5) == pytest.approx(5, abs=1)
    assert lengths.left("long", 0, 1000, 0.5) == pytest.approx(500, rel=0.1)
    assert 5 < lengths.left("new", 0, 1000, 0.6) < 510


def test_recent_answers_replace_old_ones() -> None:
    lengths = AnswerLengths()
    for tokens in [500] * 300 + [10] * 300:
        lengths.learn("standard", tokens, 1000, finished=True)
    assert lengths.left("standard", 0, 1000, 0.99) <= 10


@pytest.mark.parametrize("made", [0, 1, 16, 17, 100, 1 << 20, 1 << 21])
@pytest.mark.parametrize("rank", [0.0, 0.3, 0.999999])
def test_there_is_always_a_token_left_and_never_more_than_may_come(made: int, rank: float) -> None:
    lengths = AnswerLengths()
    for tokens in (0, 1, 5, 17, 100, 1 << 21) * 4:
        lengths.learn("standard", tokens, 1 << 22, finished=True)
    assert 1 <= lengths.left("standard", made, made + 50, rank) <= 50
