"""The choice of tokens on the device, compared with plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders.scripts import Later

torch, bucket = Later("torch"), Later("trimodal.speech.engines.tensorrt.bucket")
MAX_BATCH = 8


def best(logits, banned, given=None):
    """The choice as the decode loop makes it without noise, or what is given."""
    mask = torch.zeros(logits.shape[1])
    mask[torch.from_numpy(banned)] = -torch.inf
    scores = torch.from_numpy(logits)
    forced = torch.full((len(logits),), -1) if given is None else torch.tensor(given)
    tokens, chances = bucket.draw(scores, mask, torch.ones(1), torch.zeros_like(scores), forced)
    return tokens.numpy(), chances.numpy()


def expected(logits, banned):
    """In float64, row by row, of the allowed tokens alone."""
    allowed = np.setdiff1d(np.arange(logits.shape[1]), banned)
    tokens, chances = [], []
    for row in logits.astype(np.float64):
        best = allowed[np.argmax(row[allowed])]
        tokens.append(best)
        chances.append(-np.log(np.exp(row[allowed] - row[best]).sum()))
    return tokens, chances


@pytest.mark.parametrize("seed", range(12))
def test_best_is_the_most_probable_of_the_allowed(seed):
    random = np.random.default_rng(seed)
    rows, vocabulary = int(random.integers(1, MAX_BATCH + 1)), int(random.choice([7, 500, 51_865]))
    logits = (random.normal(size=(rows, vocabulary)) * random.choice([0.1, 3, 200])).astype(np.float32)
    if seed % 3 == 0:
        logits = np.round(logits)  # many equals
    # Those that would have won are banned, too; and none at all.
    banned = np.union1d(logits.argmax(1), random.integers(0, vocabulary, vocabulary // 9))[: vocabulary - 1]
    before = logits.copy()
    for forbidden in (banned, np.array([], np.int64), banned[:1]):
        tokens, chances = best(logits, forbidden)
        assert (tokens.dtype, chances.dtype) == (np.int64, np.float32)
        right, right_chances = expected(logits, forbidden)
        assert tokens.tolist() == right, "and of equals the first"
        np.testing.assert_allclose(chances, right_chances, rtol=1e-5, atol=3e-5)
    np.testing.assert_array_equal(logits, before, "a choice leaves the logits as they are")


def test_the_first_also_where_many_threads_would_share_the_work():
    for rows in (1, MAX_BATCH):
        assert best(np.zeros((rows, 51_865), np.float32), np.arange(50))[0].tolist() == [50] * rows


def test_what_is_given_is_taken_at_its_own_probability_and_also_where_it_is_banned():
    logits = np.log(np.array([[0.5, 0.25, 0.25]] * 3, np.float32))
    tokens, chances = best(logits, np.array([2]), given=[-1, 1, 2])
    assert tokens.tolist() == [0, 1, 2]
    np.testing.assert_allclose(chances[:2], np.log([2 / 3, 1 / 3]), rtol=1e-5)
    assert np.isfinite(chances[2])
    assert np.exp(chances[2]) == pytest.approx(0, abs=1e-30)
