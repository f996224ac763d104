"""The embedding model behind a blocking call of another model, on a fake stub; and whose vectors they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cache.doubles import TritonStub
from tests.doubles.pb_utils import TritonError
from trimodal.cache.embedder import TritonEmbedder, embedder_checkpoint
from trimodal.errors import InternalError, InvalidArgument, OperatorError, RequestError, Unavailable

CONFIGS = Path(__file__).parents[2] / "model_repository" / "embedding"


def test_a_text_goes_out_and_a_unit_vector_comes_back():
    handed_over = np.array([[3.0, 4.0]], np.float32)
    stub = TritonStub(handed_over)
    vector = TritonEmbedder(stub, "other", "abc").embed("naïve")
    np.testing.assert_allclose(vector, [0.6, 0.8])
    assert (vector.dtype, vector.shape) == (np.float32, (2,))
    assert not np.shares_memory(vector, handed_over)
    (asked,) = stub.asked
    assert (asked["model_name"], asked["requested_output_names"]) == ("other", ["embedding"])
    (sent,) = asked["inputs"]
    assert (sent.name(), sent.as_numpy().tolist()) == ("text_input", [["naïve".encode()]])


@pytest.mark.parametrize("vector", [[[0.0, 0.0]], [[np.nan, 1.0]], [[np.inf, 1.0]], [[]]])
def test_a_vector_without_a_direction_is_an_error(vector):
    with pytest.raises(InternalError, match="other: the embedding has no direction"):
        TritonEmbedder(TritonStub(np.array(vector, np.float32)), "other", "abc").embed("x")


@pytest.mark.parametrize(
    ("told", "code", "kind"),
    [
        ("text_input: nothing in it that the model can read", TritonError.INTERNAL, InvalidArgument),
        ("text_input: 40000 bytes; at most 32768 are accepted", TritonError.INVALID_ARG, InvalidArgument),
        ("Request for unknown model: 'other' is not found", TritonError.INTERNAL, InternalError),
        ("the queue is full", TritonError.UNAVAILABLE, Unavailable),
    ],
)
def test_an_error_keeps_its_kind_and_names_the_model(told, code, kind):
    stub = TritonStub(error=TritonError(told, code))
    with pytest.raises(RequestError, match="other: ") as caught:
        TritonEmbedder(stub, "other", "abc").embed("x")
    assert type(caught.value) is kind


@pytest.fixture
def repository(tmp_path):
    """A repository with the shipped embedding configs, and `built(name, checkpoint)` beside its model.py."""
    target = tmp_path / "models" / "embedding"
    shutil.copytree(CONFIGS / "configs", target / "configs")
    shutil.copy(CONFIGS / "config.pbtxt", target)

    def built(name: str, checkpoint: str) -> None:
        (target / "1" / name).mkdir(parents=True)
        manifest = {
            "task": "embedding", "runtime": "onnxruntime", "runtime_version": "1", "precision": "fp32",
            "source": "s", "source_sha256": checkpoint, "command": "c",
        }  # fmt: skip
        (target / "1" / name / "manifest.json").write_text(json.dumps(manifest))

    (target / "1").mkdir()
    return SimpleNamespace(llm=tmp_path / "models" / "llm", embedding=target, built=built)


class TestCheckpoint:
    def test_is_that_of_the_artefact_that_was_built(self, repository):
        repository.built("onnx-fp32", "abc")
        assert embedder_checkpoint(repository.llm, "embedding") == "abc"

    def test_profiles_with_artefacts_of_one_checkpoint_agree(self, repository):
        repository.built("onnx-fp32", "abc")
        repository.built("onnx-fp16", "abc")
        assert embedder_checkpoint(repository.llm, "embedding") == "abc"

    def test_profiles_with_different_ones_are_refused(self, repository):
        repository.built("onnx-fp32", "abc")
        repository.built("onnx-fp16", "def")
        with pytest.raises(
            OperatorError, match="onnx-fp16, onnx-fp32 of embedding have different checkpoints"
        ):
            embedder_checkpoint(repository.llm, "embedding")

    def test_of_the_fake_engine_is_fake(self, repository):
        for file in (repository.embedding / "config.pbtxt", *(repository.embedding / "configs").iterdir()):
            file.write_text(file.read_text().replace('"onnxruntime"', '"fake"'))
        assert embedder_checkpoint(repository.llm, "embedding") == "fake"

    def test_where_nothing_is_built_the_sentence_says_what_to_run(self, repository):
        with pytest.raises(OperatorError, match="build one first"):
            embedder_checkpoint(repository.llm, "embedding")

    def test_a_model_that_is_not_there_is_named(self, repository):
        with pytest.raises(OperatorError, match="parameter 'embedder': there is no model 'other'"):
            embedder_checkpoint(repository.llm, "other")

    def test_is_read_where_the_locale_knows_ascii_alone_as_in_tritons_stub(self, repository):
        repository.built("onnx-fp32", "abc")
        assert "→" in (repository.embedding / "config.pbtxt").read_text(encoding="utf-8")
        code = (
            "import sys; from pathlib import Path; from trimodal.cache.embedder import embedder_checkpoint; "
            "print(embedder_checkpoint(Path(sys.argv[1]), 'embedding'))"
        )
        environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        done = subprocess.run(
            [sys.executable, "-c", code, str(repository.llm)],
            env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("abc\n", "")
