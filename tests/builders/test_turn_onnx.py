"""build/turn_onnx.py on a tiny graph of the right shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.builders.graphs import graph, node
from tests.builders.scripts import refusal, run
from trimodal.manifest import read_manifest
from trimodal.turn.engines.onnxruntime import open_engine
from trimodal.turn.settings import TurnSettings

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SCRIPT = "turn_onnx"


def saved(directory: Path, frames: int = 800, factor: float = 1.0) -> Path:
    """A checkpoint whose probability is the sigmoid of the features' mean times a factor."""
    nodes = [
        node("ReduceMean", ["input_features"], "mean", axes=[1, 2], keepdims=0),
        node("Mul", ["mean", "factor"], "product"),
        node("Reshape", ["product", "shape"], "column"),
        node("Sigmoid", ["column"], "logits"),
    ]
    made = graph(
        nodes,
        inputs={"input_features": (TensorProto.FLOAT, ["batch", 80, frames])},
        outputs={"logits": (TensorProto.FLOAT, ["batch", 1])},
        weights={"shape": np.array([-1, 1], np.int64), "factor": np.array(factor, np.float32)},
    )
    onnx.save(made, str(directory / "turns.onnx"))
    return directory


def test_a_graph_is_taken_as_it_is_and_checked(tmp_path: Path) -> None:
    run(SCRIPT, saved(tmp_path), "--out-dir", tmp_path / "1")
    built = tmp_path / "1" / "onnx-fp32"
    manifest = read_manifest(built, task="turn", runtime="onnxruntime")
    assert (built / "model.onnx").read_bytes() == (tmp_path / "turns.onnx").read_bytes()
    assert max(manifest.check.values()) < 1e-4
    windows = [np.zeros(160, np.float32), np.full(16_000, 0.5, np.float32)]
    judged = open_engine(built, TurnSettings(artefact="x")).judge(windows)
    assert judged.shape == (2,)
    assert 0 < judged.min() <= judged.max() < 1


def test_what_is_no_model_of_turns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds 0 .onnx files: one is needed" in refusal(capsys, SCRIPT, tmp_path)
    (tmp_path / "turns.onnx").write_bytes(b"no graph")
    assert "is no ONNX graph" in refusal(capsys, SCRIPT, tmp_path)
    assert "input_features [any, [80, 800]] alone is needed" in refusal(capsys, SCRIPT, saved(tmp_path, 3000))


def test_probabilities_that_are_no_numbers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refusal(capsys, SCRIPT, saved(tmp_path, factor=float("nan")), "--out-dir", tmp_path / "1")
    assert "turns.onnx: a batch against its rows, largest difference, is nan" in told
    assert not list((tmp_path / "1").iterdir())


def test_too_small_a_disk_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 100)
    told = refusal(capsys, SCRIPT, tmp_path, "--out-dir", tmp_path / "1")
    assert "whose disk has 0 MB left: free some" in told
    assert not (tmp_path / "1").exists()
