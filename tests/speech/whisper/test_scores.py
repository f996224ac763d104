"""The choice of tokens on the host and in torch, compared with plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from trimodal.speech.engines.tensorrt.memory import Memory, View
from trimodal.speech.engines.tensorrt.scores import Chooser, DeviceScores
from trimodal.speech.whisper.graphs import HostScores, log_sum

MAX_BATCH = 8


def on_host(logits):
    return HostScores(lambda: logits)


def in_torch(logits, chooser=None):
    """As a step leaves them: at the beginning of a block that is larger."""
    import torch

    memory = Memory("cpu")
    block = memory.block(logits.size + 7, torch.float32)
    return DeviceScores(chooser or Chooser(memory, MAX_BATCH, logits.shape[1]), memory.put(block, logits))


BOTH = pytest.mark.parametrize("scores_of", [on_host, in_torch], ids=["host", "torch"])


def expected(logits, banned):
    """In float64, row by row, of the allowed tokens alone."""
    allowed = np.setdiff1d(np.arange(logits.shape[1]), banned)
    tokens, chances = [], []
    for row in logits.astype(np.float64):
        best = allowed[np.argmax(row[allowed])]
        tokens.append(best)
        chances.append(-np.log(np.exp(row[allowed] - row[best]).sum()))
    return tokens, chances


@BOTH
@pytest.mark.parametrize("seed", range(12))
def test_best_is_the_most_probable_of_the_allowed(scores_of, seed):
    random = np.random.default_rng(seed)
    rows, vocabulary = int(random.integers(1, MAX_BATCH + 1)), int(random.choice([7, 500, 51_865]))
    logits = (random.normal(size=(rows, vocabulary)) * random.choice([0.1, 3, 200])).astype(np.float32)
    if seed % 3 == 0:
        logits = np.round(logits)  # many equals
    # Those that would have won are banned, too; and none at all.
    banned = np.union1d(logits.argmax(1), random.integers(0, vocabulary, vocabulary // 9))[: vocabulary - 1]
    scores = scores_of(logits.copy())
    for forbidden in (banned, np.array([], np.int64), banned[:1]):
        tokens, chances = scores.best(forbidden)
        assert (tokens.dtype, chances.dtype) == (np.int64, np.float32)
        right, right_chances = expected(logits, forbidden)
        assert tokens.tolist() == right, "and of equals the first"
        np.testing.assert_allclose(chances, right_chances, rtol=1e-5, atol=3e-5)
    np.testing.assert_array_equal(scores.numpy(), logits, "a choice leaves the logits as they are")


@BOTH
def test_of_equals_the_first_that_is_allowed(scores_of):
    logits = np.full((3, 51_865), -4, np.float32)
    logits[1, [700, 9_000, 51_864]] = 2
    logits[2] = 1000  # exp() of it would overflow
    tokens, chances = scores_of(logits).best(np.array([0, 1, 700]))
    assert tokens.tolist() == [2, 9_000, 2]
    others = 51_865 - 5
    assert chances == pytest.approx(
        [-np.log(51_862), -np.log(2 + others * np.exp(-6)), -np.log(51_862)], rel=1e-4
    )


def test_the_first_also_where_many_threads_would_share_the_work():
    for rows in (1, MAX_BATCH):
        assert in_torch(np.zeros((rows, 51_865), np.float32)).best(np.arange(50))[0].tolist() == [50] * rows


def test_a_mask_is_made_once_for_each_set_and_the_logits_are_not_fetched(monkeypatch):
    import torch

    memory = Memory("cpu")
    made, fetched = [], []
    block, fetch = Memory.block, Memory.fetch
    monkeypatch.setattr(Memory, "block", lambda self, *a: made.append(a) or block(self, *a))
    monkeypatch.setattr(Memory, "fetch", lambda self, *v: fetched.extend(v) or fetch(self, *v))
    chooser = Chooser(memory, MAX_BATCH, 500)
    for seed in range(4):
        logits = np.random.default_rng(seed).normal(size=(3, 500)).astype(np.float32)
        scores = DeviceScores(chooser, memory.put(torch.empty(1500), logits))
        for banned in (np.arange(9), np.arange(5, 70), np.arange(9)):
            assert scores.best(banned)[0].tolist() == expected(logits, banned)[0]
    assert [count for count, _ in made] == [MAX_BATCH * 500, 500, 500]
    assert {view.shape for view in fetched} == {(3,)}
    assert len(fetched) == 4 * 2 * 2, "two vectors for each step and set: what was chosen is not chosen again"


def test_what_was_expected_comes_with_the_rest_in_one_wait(monkeypatch):
    import torch

    logits = np.random.default_rng(0).normal(size=(2, 40)).astype(np.float32)
    scores, fetches = in_torch(logits), []
    fetch = Memory.fetch
    monkeypatch.setattr(Memory, "fetch", lambda self, *v: fetches.append(len(v)) or fetch(self, *v))
    (other,) = scores.prepare(np.array([3]), View(torch.arange(6.0), (2, 3)))
    assert other.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert scores.asked is None, "expected, and not asked yet"
    assert scores.best(np.array([3]))[0].tolist() == expected(logits, [3])[0]
    assert fetches == [3]
    assert scores.best(np.array([4]))[0].tolist() == expected(logits, [4])[0]
    assert fetches == [3, 2]
    assert scores.asked.tolist() == [4]


def test_logits_are_brought_to_the_host_once_somebody_asks():
    asked = []
    scores = HostScores(lambda: asked.append(1) or np.eye(3, dtype=np.float32))
    assert asked == []
    assert scores.best(np.array([1]))[0].tolist() == [0, 0, 2]
    np.testing.assert_array_equal(scores.numpy(), np.eye(3))
    assert asked == [1]


def test_log_sum_does_not_overflow():
    logits = np.array([[1000, 1000], [-1000, -np.inf]], np.float32)
    assert log_sum(logits) == pytest.approx([1000 + np.log(2), -1000])
