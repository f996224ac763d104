"""Thresholds that follow from a bound, and calibrations that are refused."""

import json
from pathlib import Path

import pytest

from tests.cache.doubles import calibration
from trimodal.cache.calibration import FILE, Calibration, calibration_of
from trimodal.errors import SettingsError
from trimodal.repository import FAKE, Built

POINTS = [
    (0.5, 0.6, 4, 0.03),
    (0.6, 0.5, 2, 0.008),
    (0.7, 0.4, 2, 0.02),
    (0.8, 0.3, 0, 0.007),
    (0.9, 0.1, 0, 0.007),
]


def write(path, **changes):
    curve = [
        dict(zip(("threshold", "hit_rate", "false_hits", "false_hit_upper"), point, strict=True))
        for point in POINTS
    ]
    values = {
        "checkpoint_sha256": "c0ffee",
        "reading": "shorter_first",
        "pairs": "p",
        "paraphrases": 9,
        "hard_negatives": 9,
        "curve": curve,
    }
    path.write_text(json.dumps(values | changes))
    return path


@pytest.mark.parametrize(
    ("bound", "threshold"), [(0.5, 0.5), (0.03, 0.5), (0.02, 0.6), (0.01, 0.8), (0.007, 0.8)]
)
def test_the_lowest_threshold_from_which_on_the_bound_holds(tmp_path, bound, threshold):
    found = Calibration.read(write(tmp_path / "c.json"), "c0ffee")
    assert found.threshold(bound) == threshold


def test_a_bound_that_cannot_be_kept_is_told_with_the_least_one(tmp_path):
    found = Calibration.read(write(tmp_path / "c.json"), "c0ffee")
    with pytest.raises(SettingsError, match=r"cache_max_false_hit 0.001: .* is 0\.0070"):
        found.threshold(0.001)


def test_one_of_a_judge_that_read_both_ways_is_refused_with_the_command(tmp_path):
    path = write(tmp_path / "c.json")
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "reading"}))
    with pytest.raises(SettingsError, match=r"damaged.*--calibrate"):
        Calibration.read(path, "c0ffee")


def test_another_checkpoint_is_refused_with_the_command(tmp_path):
    with pytest.raises(SettingsError, match=r"build/judge/measure\.py .*--calibrate"):
        Calibration.read(write(tmp_path / "c.json"), "beef")
    with pytest.raises(SettingsError, match="the judge's checkpoint c0ffee, served is fake"):
        Calibration.read(write(tmp_path / "c.json"), "fake")


@pytest.mark.parametrize(
    "change",
    [
        {"curve": []},
        {"curve": [{"threshold": "high"}]},
        {"paraphrases": 0},
        {"extra": 1},
        {"languages": []},
        {"foreign_threshold": 2},
        {"curve": [{"threshold": float("nan"), "hit_rate": 1, "false_hits": 0, "false_hit_upper": 0}]},
    ],
)
def test_a_damaged_calibration_is_one_sentence(tmp_path, change):
    with pytest.raises(SettingsError, match=r"c\.json: no calibration of the cache \(damaged\)"):
        Calibration.read(write(tmp_path / "c.json", **change), "c0ffee")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"{"])
def test_what_is_no_json_is_damaged(tmp_path, content):
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(SettingsError, match="damaged"):
        Calibration.read(tmp_path / "c.json", "c0ffee")


def test_a_missing_one_says_how_to_make_one(tmp_path):
    with pytest.raises(SettingsError, match=r"make one with: python build/judge/measure\.py"):
        Calibration.read(tmp_path / "none.json", "c0ffee")


def beside(directory: Path, checkpoint: str, threshold: float = 0.9) -> Path:
    """An artefact's directory with a calibration that holds from this threshold on."""
    directory.mkdir()
    curve = [{"threshold": threshold, "hit_rate": 0.5, "false_hits": 0, "false_hit_upper": 0.01}]
    text = calibration(checkpoint_sha256=checkpoint, curve=curve).model_dump_json()
    (directory / FILE).write_text(text)
    return directory


def test_of_two_precisions_the_stricter_one_holds(tmp_path):
    built = Built("abc", (beside(tmp_path / "int8", "abc", 0.97), beside(tmp_path / "fp32", "abc", 0.95)))
    assert calibration_of(built, None, 0.01).threshold(0.01) == 0.97


def test_an_operators_own_is_read_instead(tmp_path):
    built = Built("abc", (beside(tmp_path / "int8", "abc"),))
    with pytest.raises(SettingsError, match=r"own\.json"):
        calibration_of(built, tmp_path / "own.json", 0.01)
    own = beside(tmp_path / "own", "abc", 0.6) / FILE
    assert calibration_of(built, own, 0.01).threshold(0.01) == 0.6


def test_one_that_is_missing_is_named(tmp_path):
    with pytest.raises(SettingsError, match="int8/calibration.json: no calibration of the cache"):
        calibration_of(Built("abc", (tmp_path / "int8",)), None, 0.01)


def test_a_fake_has_one_of_its_own():
    assert calibration_of(Built(FAKE), None, 0.01).threshold(0.01) == 0.8
