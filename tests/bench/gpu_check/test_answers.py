"""A GPU that answers otherwise than the processor is told before anything is timed."""

import numpy as np
import pytest

from tests.doubles import onnx_runtime
from tests.vision.pictures import artefact
from trimodal.bench.gpu_check import answers as answers
from trimodal.embedding.engines import protocol as embedding_engine
from trimodal.embedding.engines.protocol import Embedded
from trimodal.errors import ArtefactError
from trimodal.vision.engines.onnxruntime import OnnxRuntimeClassifier

pytest.importorskip("onnx")


@pytest.fixture
def classifier(tmp_path, monkeypatch):
    """Logits are the means of the channels; the machine's CUDA is a double."""
    onnx_runtime.install(monkeypatch)
    directory = artefact(tmp_path / "onnx", classes=3)
    onnx_runtime.save_graph(directory / "model.onnx")
    return directory


def test_the_same_answers_pass(classifier):
    assert answers.vision(classifier, "cuda") == {"relative_error": 0.0, "top1_agreement": 1.0}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda logits: logits * 1.02, "logits differ by 0.02"),
        (lambda logits: -logits, "logits differ by 2.0"),
    ],
)
def test_other_logits_are_told(classifier, monkeypatch, change, sentence):
    real, calls = OnnxRuntimeClassifier.classify, []

    def classify(self, pixels):
        calls.append(self)  # the first engine that is asked is the GPU's
        logits = real(self, pixels)
        return change(logits) if self is calls[0] else logits

    monkeypatch.setattr(OnnxRuntimeClassifier, "classify", classify)
    with pytest.raises(ArtefactError, match=f"not the same answers as on the processor: {sentence}"):
        answers.vision(classifier, "cuda")


def test_a_batch_without_numbers_is_no_agreement(classifier, monkeypatch):
    """Whichever batch it is: max() of Python drops what is not a number."""
    real, calls = OnnxRuntimeClassifier.classify, []

    def classify(self, pixels):
        calls.append(self)
        logits = real(self, pixels)
        if self is calls[0] and len(pixels) == answers.BATCHES[1]:
            logits[0, logits[0].argmax()] = np.nan  # argmax still names the same class
        return logits

    monkeypatch.setattr(OnnxRuntimeClassifier, "classify", classify)
    with pytest.raises(ArtefactError, match="logits differ by nan"):
        answers.vision(classifier, "cuda")


@pytest.mark.parametrize(("angle", "passes"), [(0.02, True), (0.1, False)])
def test_vectors_may_turn_a_little(tmp_path, monkeypatch, angle, passes):
    class Turned:
        def __init__(self, by):
            self.by = by

        def embed(self, texts):
            vector = np.array([[np.cos(self.by), np.sin(self.by)]], np.float32)
            return Embedded(np.repeat(vector, len(texts), 0), (1,) * len(texts))

    opened = {"cuda": Turned(angle), "cpu": Turned(0.0)}
    monkeypatch.setattr(embedding_engine, "open_engine", lambda directory, settings: opened[settings.device])
    if passes:
        found = answers.embedding(tmp_path, "cuda")
        assert found["lowest_cosine"] == pytest.approx(np.cos(angle), abs=1e-6)
    else:
        with pytest.raises(ArtefactError, match="the lowest cosine of a text's vectors is 0.995"):
            answers.embedding(tmp_path, "cuda")
