"""The judge: what counts as told, lost and recovered."""

from __future__ import annotations

import pytest

from tests.chaos import judge
from tests.chaos.judge import Row
from tests.chaos.load import Outcome

AT = 10.0


def outcome(kind: str, began: float, ended: float, what: str = "right", error: str = "") -> Outcome:
    return Outcome(kind, AT + began, AT + ended, what, error)  # type: ignore[arg-type]


LOST = [
    outcome("text", -1.0, 0.4, "told", "Unavailable: it died"),  # was under way
    outcome("text", 0.5, 0.8, "told", "Unavailable: it is loaded again"),  # came after
    outcome("text", 0.7, 1.5),
    outcome("text", 1.0, 1.2),
    outcome("picture", -0.1, 0.2),
    outcome("picture", 0.3, 0.5),
]


def test_waits_count_from_the_fault_or_from_the_request() -> None:
    assert judge.told_s(LOST, AT) == pytest.approx(0.4)
    assert judge.told_s(LOST[2:], AT) is None


def test_recovered_is_what_was_asked_after_the_last_failure_and_answered() -> None:
    assert judge.recovered(LOST, ("text", "picture"), AT) == pytest.approx(AT + 1.2)
    assert judge.recovered(LOST[:3], ("text", "picture"), AT) is None
    assert judge.recovered(LOST[4:], ("picture",), AT) == AT


def test_what_was_seen_and_lost_is_counted() -> None:
    assert judge.seen(LOST) == "2 Unavailable"
    assert judge.lost(LOST) == "2 of 6: 2 text"
    assert (judge.seen(LOST[2:]), judge.lost(LOST[2:])) == ("nothing", "none of 4")


@pytest.mark.parametrize(
    ("row", "outcomes", "said"),
    [
        (Row("f", told_s=0.4, recovery_s=1.2, stop_s=2.9), LOST, []),
        (Row("f", told_s=1.1, recovery_s=1.2), LOST, ["told after 1.1 s: text: Unavailable: it died"]),
        (Row("f"), LOST[2:], ["not recovered"]),
        (Row("f", recovery_s=5.1, stop_s=3.1), [], ["recovered after 5.1 s", "SIGTERM took 3.1 s"]),
        (
            Row("f", recovery_s=0.0),
            [outcome("picture", 0, 1, "told", "it died")],
            ["picture suffered too: it died"],
        ),
        (
            Row("f", recovery_s=0.0),
            [outcome("text", 0, 1, "hung", "silent")],
            ["1 hung: text: silent"],
        ),
        (
            Row("f", recovery_s=0.0),
            [outcome("text", 0, 1, "wrong", "'x'")],
            ["1 wrong: text: 'x'"],
        ),
    ],
)
def test_what_falls_short_is_said(row: Row, outcomes: list[Outcome], said: list[str]) -> None:
    assert judge.missed(row, outcomes, {"text"}) == said
