"""Bounds against known values, and counts over a handful of measured pairs."""

import pytest

from trimodal.bench.cache.pairs import Measured, Pair, Share, calibrate, clopper_pearson, hard, share


def measured(kind, cosine, reason=""):
    label = "same" if kind == "paraphrase" else "different"
    return Measured(
        Pair.model_validate({"id": "x", "a": "a", "b": "b", "label": label, "class": kind}), cosine, reason
    )


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.308497),
        (10, 10, 0.691503, 1.0),
        (3, 10, 0.066740, 0.652453),
        (50, 100, 0.398321, 0.601679),
        (0, 434, 0.0, 0.008464),
        (1, 434, 0.000058, 0.012770),
        (500, 5000, 0.091820, 0.108650),
    ],
)
def test_bounds_are_those_of_the_tables(hits, trials, low, high):
    assert clopper_pearson(hits, trials) == pytest.approx((low, high), abs=1e-6)


def test_no_pairs_say_nothing():
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert Share(0, 0).rate == 0


@pytest.mark.parametrize(
    ("hits", "trials", "confidence"), [(-1, 3, 0.95), (4, 3, 0.95), (1, 3, 0), (1, 3, 1)]
)
def test_what_is_no_share_is_refused(hits, trials, confidence):
    with pytest.raises(ValueError, match="is no share"):
        clopper_pearson(hits, trials, confidence)


def test_a_hit_is_near_enough_and_let_through():
    every = [
        measured("paraphrase", 0.9),
        measured("paraphrase", 0.6),
        measured("paraphrase", 0.9, "subject"),
        measured("number", 0.95),
        measured("roles", 0.95, "roles"),
        measured("unrelated", 0.1),
    ]
    assert share(every[:3], 0.7, guarded=True) == Share(3, 1)
    assert share(every[:3], 0.7, guarded=False) == Share(3, 2)
    assert share(hard(every), 0.7, guarded=True) == Share(2, 1)


def test_a_calibration_rises_to_where_no_false_hit_is_left():
    every = [measured("paraphrase", 0.5 + n / 250) for n in range(100)] + [measured("name", 0.72)]
    every += [measured("name", 0.99, "name") for _ in range(199)]
    found = calibrate(every, "c0ffee", "pairs.jsonl")
    assert (found.paraphrases, found.hard_negatives, found.checkpoint_sha256) == (100, 200, "c0ffee")
    assert found.curve[0].threshold == 0.5  # two of the hundred are left below the third
    assert found.curve[-1].threshold == 1.0
    assert [point.false_hits for point in found.curve if point.threshold <= 0.72] == [1] * 23
    assert found.threshold(0.02) == 0.73
    assert found.curve[0].false_hit_upper >= clopper_pearson(1, 200)[1]


def test_a_calibration_needs_both_kinds():
    with pytest.raises(ValueError, match="needs paraphrases and near-identical pairs"):
        calibrate([measured("paraphrase", 0.9)], "c0ffee", "pairs.jsonl")
