import numpy as np
import pytest

from trimodal.errors import InvalidArgument
from trimodal.vision.rank import RankStep, softmax


def test_softmax_sums_to_one_and_does_not_overflow():
    scores = softmax(np.array([[1e4, 1e4, -1e4], [0, np.log(3), -1e4]], np.float32))
    np.testing.assert_allclose(scores, [[0.5, 0.5, 0], [0.25, 0.75, 0]], atol=1e-6)


def test_best_first_and_ties_in_the_order_of_the_labels():
    labels, scores = RankStep(["a", "b", "ç"], top_k=2).rank_one(np.array([[0, 5, 1], [2, 2, 2]], np.float32))
    assert labels.tolist() == [[b"b", "ç".encode()], [b"a", b"b"]]
    assert scores.dtype == np.float32
    assert scores[0, 0] > scores[0, 1]


def test_no_more_labels_than_classes():
    labels, _ = RankStep(["a", "b"], top_k=5).rank_one(np.zeros((1, 2), np.float32))
    assert labels.shape == (1, 2)


@pytest.mark.parametrize(
    "bad", [np.zeros((1, 4)), np.zeros(3), np.array([[0, np.nan, 1]]), np.array([[0, np.inf, 1]])]
)
def test_refuses_other_shapes_and_numbers_that_are_none(bad):
    with pytest.raises(InvalidArgument, match="logits: "):
        RankStep(["a", "b", "c"], top_k=1).rank_one(bad.astype(np.float32))
