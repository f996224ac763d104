"""build/speech_torch.py: weights, manifest and check, on small random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.builders.engine_builds import command, sentence
from trimodal.manifest import read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def build(checkpoint: Path, audio: Path):
    common = "--audio", audio, "--contexts", "5,10", "--precision", "fp32"
    return lambda *arguments, source=checkpoint: command("speech_torch")(source, *common, *arguments)


def test_fp32_writes_transformers_tokens(build, tmp_path):
    result = build("--out", tmp_path / "made")
    assert result.exit_code == 0, result.output
    check = read_manifest(tmp_path / "made", task="speech", runtime="torch").check
    assert check["tokens"] > 20
    assert check["token_agreement"] == check["windows_identical"] == 1
    assert check["encoder_relative_error"] < 1e-5


def test_fp16_weights_are_half_as_large_and_tied_ones_are_kept_once(torch_fp16, checkpoint):
    manifest = read_manifest(torch_fp16, task="speech", runtime="torch")
    assert 0 < manifest.check["encoder_relative_error"] < 0.01
    weights = torch.load(torch_fp16 / "weights.pt")
    assert {each.dtype for each in weights.values()} == {torch.float16}
    assert "proj_out.weight" not in weights
    size = sum(each.numel() for each in weights.values()) * 2
    assert size < (torch_fp16 / "weights.pt").stat().st_size < 1.3 * size


def test_weights_that_compute_something_else_replace_nothing(build, tmp_path):
    (tmp_path / "old").mkdir()
    save = torch.save

    def damaged(state, path):
        state["encoder.conv1.weight"] *= 3
        save(state, path)

    with mock.patch("torch.save", damaged):
        found = sentence(build("--out", tmp_path / "old"))
    assert "encodes audio with an error of" in found
    assert list((tmp_path / "old").iterdir()) == []


def test_a_network_of_another_kind_is_refused(build, checkpoint, tmp_path):
    copy = tmp_path / "other"
    shutil.copytree(checkpoint, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"activation_function": "relu"}))
    found = sentence(build("--out", tmp_path / "out", source=copy))
    assert "activation_function is relu, not gelu" in found
