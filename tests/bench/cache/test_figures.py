"""Bounds against known values, and counts over a handful of measured pairs."""

import numpy as np
import pytest

from trimodal.bench.cache.pairs import (
    THRESHOLDS,
    Bar,
    Measured,
    Pair,
    Share,
    calibrate,
    clopper_pearson,
    hard,
    least_cosine,
    rewordings,
    scores_of,
    share,
)
from trimodal.judge.engines.fake import FakeJudge
from trimodal.judge.engines.protocol import Judged


def pair(kind="near", a="a", b="b"):
    label = "same" if kind in ("paraphrase", "typo") else "different"
    return Pair.model_validate({"id": "x", "a": a, "b": b, "label": label, "class": kind})


def measured(kind, cosine, score=1.0, *, foreign=False):
    return Measured(pair(kind), cosine, score, foreign)


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


def test_a_hit_is_near_enough_and_likely_enough():
    every = [
        measured("paraphrase", 0.9),
        measured("paraphrase", 0.6),
        measured("typo", 0.9, 0.4),
        measured("number", 0.95, 0.9),
        measured("roles", 0.95, 0.1),
        measured("unrelated", 0.1),
    ]
    assert share(rewordings(every), Bar(0.7, 0.8)) == Share(3, 1)
    assert share(rewordings(every), Bar(0.7)) == Share(3, 2)
    assert share(hard(every), Bar(0.7, 0.8)) == Share(2, 1)


def test_a_foreign_pair_needs_more():
    assert Bar(0.6, 0.8, 0.99).passes(measured("typo", 0.9, 0.9))
    assert not Bar(0.6, 0.8, 0.99).passes(measured("typo", 0.9, 0.9, foreign=True))
    assert Bar(0.6, 0.8, 0.99).passes(measured("typo", 0.9, 0.995, foreign=True))


def test_a_calibration_rises_to_where_no_false_hit_is_left():
    every = [measured("paraphrase", 0.9, n / 100) for n in range(100)] + [measured("name", 0.72, 0.9)]
    every += [measured("name", 0.99, 0.01) for _ in range(198)] + [measured("name", 0.3, 1.0)]
    found = calibrate(every, "c0ffee", "pairs.jsonl")
    assert (found.paraphrases, found.hard_negatives, found.checkpoint_sha256) == (100, 200, "c0ffee")
    assert [point.threshold for point in found.curve] == sorted(THRESHOLDS)
    assert found.curve[0].hit_rate == 0.5
    assert {point.false_hits for point in found.curve if point.threshold <= 0.9} == {1}
    assert 0.9 < found.threshold(0.02) < 0.91
    assert found.curve[0].false_hit_upper >= clopper_pearson(1, 200)[1]


def test_a_calibration_needs_both_kinds():
    with pytest.raises(ValueError, match="needs rewordings and near-identical pairs"):
        calibrate([measured("paraphrase", 0.9)], "c0ffee", "pairs.jsonl")


def test_the_cosine_that_keeps_a_bound_by_itself():
    every = [measured("name", 0.72)] + [measured("name", 0.2) for _ in range(199)]
    assert least_cosine(every, 0.02) == 0.73
    assert least_cosine(every[:3], 0.02) == 1.01  # so few pairs show nothing


def test_the_less_likely_direction_counts_and_the_words_decide_first():
    class OneWay(FakeJudge):
        def judge(self, pairs):
            same = [0.9 if one < other else 0.3 for one, other in pairs]
            return Judged(np.array(same, np.float32), (True,) * len(same))

    pairs = [pair(), pair(a="COLOUR", b="color"), pair(a="grep -v", b="grep -V")]
    assert scores_of(pairs * 20, OneWay()) == pytest.approx([0.3, 1, 0] * 20)
