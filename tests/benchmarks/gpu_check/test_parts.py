"""What the parts of gpu_check measure, and what they refuse."""

import numpy as np
import pytest

from benchmarks.gpu_check.parts import vision
from benchmarks.gpu_check.steps import Options
from tests.doubles import onnx_runtime
from tests.vision.pictures import artefact
from trimodal.errors import ArtefactError
from trimodal.vision.engines.onnxruntime import OnnxRuntimeClassifier

GPU = Options("cuda", 0.001, 1, "nowhere")


@pytest.fixture
def classifier(tmp_path, monkeypatch):
    """Logits are the means of the channels; the machine's CUDA is a double."""
    onnx = pytest.importorskip("onnx")
    assert onnx
    onnx_runtime.install(monkeypatch)
    directory = artefact(tmp_path / "onnx", classes=3)
    onnx_runtime.save_graph(directory / "model.onnx")
    monkeypatch.setattr(vision, "require_onnxruntime", lambda options: None)
    monkeypatch.setattr(vision, "provide", lambda options, name: directory)


def nan(logits):
    logits[0, logits[0].argmax()] = np.nan  # argmax still names the same class
    return logits


@pytest.mark.parametrize(
    ("change", "batch", "sentence"),
    [
        (lambda logits: logits, 0, ""),
        (lambda logits: logits * 1.02, 0, "logits differ by 0.02"),
        (lambda logits: -logits, 0, "logits differ by 2.0"),
        (nan, 3, "logits differ by nan"),  # whichever batch it is: max() of Python drops what is no number
    ],
)
def test_logits_unlike_the_processor_s_are_refused(classifier, monkeypatch, change, batch, sentence):
    """Before anything is timed."""
    real, engines = OnnxRuntimeClassifier.classify, []

    def classify(self, pixels):
        engines.append(self)
        ours = self is not engines[0]  # the processor is asked first
        logits = real(self, pixels)
        return change(logits) if ours and batch in (0, len(pixels)) else logits

    monkeypatch.setattr(OnnxRuntimeClassifier, "classify", classify)
    if sentence:
        with pytest.raises(ArtefactError, match=f"not the answers of the processor: {sentence}"):
            vision.onnxruntime_steps(GPU)
    else:
        assert vision.onnxruntime_steps(GPU)["relative_error"] == 0.0
