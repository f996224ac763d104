"""build/judge/measure.py with played models: what it prints and what it calibrates."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.builders.judge.made_up import write_pairs
from tests.builders.scripts import Later, refusal, run
from trimodal.cache.calibration import Calibration
from trimodal.embedding.engines import onnxruntime as embedders
from trimodal.embedding.engines.fake import FakeEmbedder
from trimodal.judge.engines import onnxruntime as judges
from trimodal.judge.engines.fake import FakeJudge

pytestmark = pytest.mark.build
SCRIPT = "judge.measure"
measure, pairs = Later("judge.measure"), Later("judge.pairs")
LINES = [
    ("How old is Rome?", "how old is Rome", "same", "case"),
    ("How old is the town of Rome?", "How old is Rome, the town?", "same", "fronting"),
    ("grep -v", "grep -V", "different", "name"),
    ("How old is Rome?", "Who may see it?", "different", "name"),
]


@pytest.fixture(autouse=True)
def _played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "open_engine", lambda directory, settings: FakeJudge())
    monkeypatch.setattr(embedders, "open_engine", lambda directory, settings: Alike())


class Alike(FakeEmbedder):
    """Every text has the same vector."""

    def embed(self, texts):
        return SimpleNamespace(vectors=np.tile(np.float32([0.6, 0.8]), (len(texts), 1)))


def example(a: str, b: str, same: bool = False):
    return pairs.Example(a, b, same, "name", "x")


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    directory = tmp_path / "onnx-int8"
    directory.mkdir()
    manifest = {
        "task": "judge", "runtime": "onnxruntime", "runtime_version": "1", "precision": "int8",
        "source": "x", "source_sha256": "c0ffee", "command": "x", "shapes": {}, "check": {},
    }  # fmt: skip
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def test_the_shorter_question_is_read_first_and_the_words_decide_before(monkeypatch, tmp_path):
    class OneWay(FakeJudge):
        def judge(self, ways):
            same = [0.9 if len(one) < len(other) else 0.3 for one, other in ways]
            return np.array(same, np.float32)

    monkeypatch.setattr(judges, "open_engine", lambda directory, settings: OneWay())
    asked = [example("aa", "b"), example("COLOUR", "color"), example("grep -v", "grep -V")]
    found = measure.scores_of(asked * 20, tmp_path, np.ones(60), None)
    assert found == pytest.approx([0.9, 1, 0] * 20)


def test_what_is_far_and_what_is_foreign_is_no_hit(tmp_path):
    near = example("how old is this town now", "how old is this town")
    foreign = example("wie alt ist diese Stadt denn", "wie alt ist diese Stadt")
    found = measure.scores_of([near, near, foreign], tmp_path, np.array([0.9, 0.5, 0.9]), None)
    assert found == pytest.approx([5 / 6, 0, 0])


def test_it_calibrates_and_measures_on_an_operators_pairs(artefact, tmp_path, capsys):
    given, made = write_pairs(tmp_path / "own.jsonl", LINES * 50), tmp_path / "made.json"
    run(SCRIPT, given, "--artefact", artefact, "--calibrate", made, "--max-false-hit", 0.05, "--show", 1)
    calibration = Calibration.read(made, "c0ffee")
    assert (calibration.paraphrases, calibration.hard_negatives, calibration.pairs) == (100, 100, "own.jsonl")
    told = capsys.readouterr().out
    assert "near-identical" in told
    assert "100.0%" in told
    assert "false hit" not in told
    run(SCRIPT, given, "--artefact", artefact, "--calibration", made, "--max-false-hit", 0.05)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("none.jsonl",), "none.jsonl: no readable file of pairs"),
        ((), "no calibration of the cache"),
    ],
)
def test_what_is_missing_is_one_sentence(artefact, capsys, arguments, told):
    assert told in refusal(capsys, SCRIPT, *arguments, "--artefact", artefact)
