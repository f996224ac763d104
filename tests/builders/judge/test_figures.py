"""Figures of known probabilities, and the curve that a threshold is taken from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.builders.scripts import Later, importable
from trimodal.errors import ArtefactError, SettingsError

pytestmark = pytest.mark.build
figures = Later("judge.figures")
pairs = Later("judge.pairs")


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    with importable():
        yield


def scored(same, different, unrelated=()):
    kinds = [("light", True, same), ("number", False, different), ("unrelated", False, unrelated)]
    examples = [
        pairs.Example("a", "b", is_same, kind, "x") for kind, is_same, scores in kinds for _ in scores
    ]
    return figures.Scored(examples, np.array([*same, *different, *unrelated]))


def test_area_counts_ties_half():
    assert figures.area(np.array([0.9, 0.5]), np.array([0.1, 0.5])) == (1 + 1 + 1 + 0.5) / 4


def test_found_rewordings_at_one_percent():
    different = [0.99, *np.linspace(0, 0.5, 199)]  # one or two of 200 may pass
    told = figures.summary(scored([0.2, 0.499, 0.6, 0.9], different))
    assert told["found_at_1_percent"] == 0.75
    assert told["accuracy"] == round((2 + 198) / 204, 4)


def test_the_curve_rises_and_its_bounds_are_exact():
    rng = np.random.default_rng(0)
    given = scored(rng.beta(8, 2, 400), rng.beta(2, 8, 900), unrelated=[1.0] * 5)
    made = figures.calibrate([given], "c0ffee", "made up")
    assert (made.paraphrases, made.hard_negatives, made.checkpoint_sha256) == (400, 900, "c0ffee")
    thresholds = [point.threshold for point in made.curve]
    assert thresholds == sorted(set(thresholds))
    for point in made.curve:
        passed = (given.differing() >= point.threshold).sum()
        assert point.false_hits == passed
        assert 0 <= point.false_hit_upper - pairs.clopper_pearson(int(passed), 900)[1] < 2e-6
    assert made.curve[-1].false_hits == 0
    threshold = made.threshold(0.01)
    assert pairs.clopper_pearson(int((given.differing() >= threshold).sum()), 900)[1] <= 0.01
    assert made.threshold(0.02) < threshold
    with pytest.raises(SettingsError, match="no threshold keeps it"):
        made.threshold(1e-4)


def test_of_several_parts_the_worst_counts():
    made_up, by_hand = scored([0.9, 0.8], [0.1] * 500), scored([0.7, 0.4], [0.3] * 2 + [0.1] * 298)
    curve = {
        point.threshold: point for point in figures.calibrate([made_up, by_hand], "c0ffee", "both").curve
    }
    assert curve[0.100001].hit_rate == 1.0
    assert (curve[0.100001].false_hits, curve[0.300001].false_hits) == (2, 0)
    assert curve[0.300001].false_hit_upper == pytest.approx(pairs.clopper_pearson(0, 300)[1], abs=1e-6)


def test_a_calibration_needs_both_labels():
    with pytest.raises(ArtefactError, match="rewordings and near-identical pairs"):
        figures.calibrate([scored([0.9], [])], "c0ffee", "pairs.jsonl")


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
        (0, 0, 0.0, 1.0),
    ],
)
def test_bounds_are_those_of_the_tables(hits, trials, low, high):
    assert pairs.clopper_pearson(hits, trials) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(
    ("hits", "trials", "confidence"), [(-1, 3, 0.95), (4, 3, 0.95), (1, 3, 0), (1, 3, 1)]
)
def test_what_is_no_share_is_refused(hits, trials, confidence):
    with pytest.raises(ValueError, match="is no share"):
        pairs.clopper_pearson(hits, trials, confidence)
