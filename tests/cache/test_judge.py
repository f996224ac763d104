"""The judge behind a blocking call of another model, on a fake stub; and the calibration beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cache.doubles import TritonStub, calibration, write_manifest
from tests.doubles.pb_utils import TritonError
from trimodal.cache.judge import TritonJudge, built_judge, calibration_of
from trimodal.errors import InternalError, InvalidArgument, OperatorError, RequestError, Unavailable
from trimodal.paths import PROFILE_VARIABLE

CONFIGS = Path(__file__).parents[2] / "model_repository" / "judge"


def column(same):
    return np.array(same, np.float32).reshape(-1, 1)


def test_pairs_go_out_in_one_batch_the_shorter_question_first():
    stub = TritonStub(column([0.7, 0.1, 0.4]))
    judge = TritonJudge(stub, "other", "abc")
    assert judge.same([("naïve", "b"), ("c", "naïve"), ("de", "ab")]) == pytest.approx([0.7, 0.1, 0.4])
    (asked,) = stub.asked
    assert (asked["model_name"], asked["requested_output_names"]) == ("other", ["same"])
    sent = {
        tensor.name(): [row[0].decode() for row in tensor.as_numpy().tolist()] for tensor in asked["inputs"]
    }
    assert sent == {"question": ["b", "c", "ab"], "other": ["naïve", "naïve", "de"]}


@pytest.mark.parametrize("same", [[], [np.nan], [1.1], [-0.1], [0.5, 0.5]])
def test_what_are_no_probabilities_is_an_error(same):
    with pytest.raises(InternalError, match="other: "):
        TritonJudge(TritonStub(column(same)), "other", "abc").same([("a", "b")])


@pytest.mark.parametrize(
    ("told", "code", "kind"),
    [
        ("question: 9000 bytes; at most 8192 are accepted", TritonError.INVALID_ARG, InvalidArgument),
        ("Request for unknown model: 'other' is not found", TritonError.INTERNAL, InternalError),
        ("the queue is full", TritonError.UNAVAILABLE, Unavailable),
    ],
)
def test_an_error_keeps_its_kind_and_names_the_model(told, code, kind):
    with pytest.raises(RequestError, match="other: ") as caught:
        TritonJudge(TritonStub(error=TritonError(told, code)), "other", "abc").same([("a", "b")])
    assert type(caught.value) is kind


@pytest.fixture
def repository(tmp_path):
    """A repository with the judge in INT8, on GPUs in FP32, and `built(name, checkpoint, **calibration)`."""
    target = tmp_path / "models" / "judge"
    shutil.copytree(CONFIGS / "configs", target / "configs")
    on_gpus = (CONFIGS / "config.pbtxt").read_text().replace('"onnx-int8"', '"onnx-fp32"')
    (target / "config.pbtxt").write_text(on_gpus)

    def built(name, checkpoint, **changes):
        write_manifest(target / "1" / name, "judge", checkpoint)
        text = calibration(checkpoint_sha256=checkpoint, **changes).model_dump_json()
        (target / "1" / name / "calibration.json").write_text(text)

    (target / "1").mkdir()
    return SimpleNamespace(llm=tmp_path / "models" / "llm", judge=target, built=built)


def curve(threshold):
    return [{"threshold": threshold, "hit_rate": 0.5, "false_hits": 0, "false_hit_upper": 0.01}]


class TestCalibration:
    def test_lies_beside_the_model(self, repository):
        repository.built("onnx-int8", "abc")
        built = built_judge(repository.llm, "judge")
        assert built.checkpoint == "abc"
        assert calibration_of(built, None, 0.01).threshold(0.01) == 0.9

    def test_of_two_precisions_the_stricter_one_holds(self, repository):
        repository.built("onnx-int8", "abc", curve=curve(0.97))
        repository.built("onnx-fp32", "abc", curve=curve(0.95))
        built = built_judge(repository.llm, "judge")
        assert calibration_of(built, None, 0.01).threshold(0.01) == 0.97

    def test_of_the_profile_that_is_served_alone(self, repository, monkeypatch):
        repository.built("onnx-int8", "abc", curve=curve(0.97))
        repository.built("onnx-fp32", "def", curve=curve(0.95))
        found = {}
        for profile in ("cpu", "tensorrt"):
            monkeypatch.setenv(PROFILE_VARIABLE, profile)
            found[profile] = built_judge(repository.llm, "judge").checkpoint
        assert found == {"cpu": "abc", "tensorrt": "def"}

    def test_an_operators_own_is_read_instead(self, repository, tmp_path):
        repository.built("onnx-int8", "abc")
        built = built_judge(repository.llm, "judge")
        own = tmp_path / "own.json"
        with pytest.raises(OperatorError, match="own.json"):
            calibration_of(built, own, 0.01)
        own.write_text(calibration(checkpoint_sha256="abc", curve=curve(0.6)).model_dump_json())
        assert calibration_of(built, own, 0.01).threshold(0.01) == 0.6

    def test_one_that_is_missing_is_named(self, repository):
        repository.built("onnx-int8", "abc")
        (repository.judge / "1" / "onnx-int8" / "calibration.json").unlink()
        with pytest.raises(OperatorError, match="no calibration of the cache"):
            calibration_of(built_judge(repository.llm, "judge"), None, 0.01)

    def test_a_fake_has_one_of_its_own(self, repository):
        for file in (repository.judge / "config.pbtxt", *(repository.judge / "configs").iterdir()):
            file.write_text(file.read_text().replace('"onnxruntime"', '"fake"'))
        built = built_judge(repository.llm, "judge")
        assert (built.checkpoint, calibration_of(built, None, 0.01).threshold(0.01)) == ("fake", 0.8)
