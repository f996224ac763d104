"""What is kept of a talk that is too long."""

from __future__ import annotations

import pytest

from trimodal.gateway.openai.talk import newest_turns

TURN = ("user", "assistant", "tool", "assistant")
TALK = ("system", *TURN, *TURN, "user", "assistant")


@pytest.mark.parametrize(
    ("most", "most_bytes", "kept"),
    [
        (11, 110, range(11)),
        (10, 110, [0, *range(5, 11)]),  # not the nine that a trim at each turn would leave
        (11, 109, [0, *range(5, 11)]),
        (8, 110, [0, 9, 10]),
        (11, 40, [0, 9, 10]),
        (2, 20, [0, 9, 10]),
        (1, 20, [9, 10]),
        (2, 5, [10]),
    ],
)
def test_the_oldest_turns_go_whole(most: int, most_bytes: int, kept: list[int]) -> None:
    assert newest_turns(TALK, [10] * len(TALK), most, most_bytes) == list(kept)


def test_a_turn_of_many_calls_keeps_its_question() -> None:
    roles = ["user", "assistant", "user", *["assistant", "tool"] * 10]
    assert newest_turns(roles, [10] * len(roles), 12, 10_000) == list(range(2, len(roles)))
    assert newest_turns(["assistant"] * 3, [10] * 3, 2, 10_000) == [2]
