"""Greedy decoding over scripted logits: ends, bounds, suppression, draws."""

from __future__ import annotations

import numpy as np
import pytest

from trimodal.speech.whisper.graphs import HostScores
from trimodal.speech.whisper.greedy import Greedy
from trimodal.speech.whisper.rows import Row, Rules

END, WORDS = 4, 4  # ids 0 to 3 are words


class Script:
    """A decoder that wants each row's tokens in turn, whatever it is given."""

    def __init__(self, *rows: list[int], given: int = 2) -> None:
        self.wanted = [list(row) for row in rows]
        self.length = given
        self.batches: list[list[int]] = []

    def step(self, tokens):
        self.length += tokens.shape[1]
        self.batches.append(tokens[:, 0].tolist())
        return self.logits()

    def logits(self):
        logits = np.zeros((len(self.wanted), END + 2), np.float32)
        for row, wanted in zip(logits, self.wanted, strict=True):
            row[wanted.pop(0) if wanted else END] = 5
        return HostScores(lambda: logits), np.zeros((len(logits), 1, 1, 3), np.float32)

    def keep(self, rows):
        self.wanted = [self.wanted[row] for row in rows]


def decode(script, bounds, temperature=0.0, **options):
    greedy = Greedy(Rules(**({"end": END, "never": [5], "not_first": [], "positions": 20} | options)))
    rows = [Row(most_tokens=bound) for bound in bounds]
    greedy.decode(rows, script, *script.logits(), temperature)
    return rows


def test_each_row_ends_by_itself_and_leaves_the_batch_once_half_have():
    script = Script([0], [1, 2], [3, 3, 3, 3], [])
    rows = decode(script, [9] * 4)
    assert [row.tokens for row in rows] == [[0], [1, 2], [3, 3, 3, 3], []]
    # After one step one of four has ended and stays; after two, two have: they are dropped.
    assert script.batches == [[0, 1, 3, END], [2, 3], [3], [3]]
    assert [len(row.attention) for row in rows] == [2, 3, 5, 1], "one run a token, and one for the end"


def test_a_row_stops_at_its_own_bound_and_all_at_half_of_the_places():
    rows = decode(Script([1] * 30, [2] * 30), [3, 99])
    assert [len(row.tokens) for row in rows] == [3, 10]
    assert [len(row.tokens) for row in decode(Script([1] * 30, given=15), [99])] == [5]


def test_what_may_not_be_made_is_not_made():
    (row,) = decode(Script([5, 2, 2]), [9], not_first=[0, 1])
    assert row.tokens == [2, 2, 2], "of what is left, all alike, the first"
    (row,) = decode(Script([END, 0]), [9], not_first=[END])
    assert row.tokens == [0, 0]


def test_the_probability_is_that_among_what_may_be_made():
    (row,) = decode(Script([1]), [9])
    chance = np.exp(5) / (np.exp(5) + 4)  # id 5 may not
    assert row.chances == pytest.approx([chance])
    assert row.log_probability == pytest.approx(2 * np.log(chance), rel=1e-5)


def test_draws_are_those_of_the_row_and_come_again():
    wanted = [[1] * 8, [2] * 8]
    together = decode(Script(*wanted), [8, 8], temperature=8.0)
    again = decode(Script(*wanted), [8, 8], temperature=8.0)
    alone = [decode(Script(one), [8], temperature=8.0)[0] for one in wanted]
    assert [row.tokens for row in together] == [row.tokens for row in again] == [row.tokens for row in alone]
    assert together[0].tokens != [1] * len(together[0].tokens)


def test_draws_follow_the_temperature():
    (row,) = decode(Script([1] * 400), [400], temperature=2.5, positions=900, never=[END, 5])
    share = np.mean([token == 1 for token in row.tokens])
    assert share == pytest.approx(np.exp(2) / (np.exp(2) + 3), abs=0.07)
