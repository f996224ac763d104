"""What the parts of gpu_check measure, and what they refuse."""

import itertools

import numpy as np
import pytest

from benchmarks.gpu_check.measure import percentiles, timed
from benchmarks.gpu_check.parts import embedding, llm, vision
from benchmarks.gpu_check.steps import Options
from tests.doubles import onnx_runtime
from tests.vision.pictures import artefact
from trimodal.embedding.engines import protocol as embedding_engine
from trimodal.embedding.engines.protocol import Embedded
from trimodal.errors import ArtefactError, ServerError
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import Output
from trimodal.llm.settings import LlmSettings
from trimodal.vision.engines.onnxruntime import OnnxRuntimeClassifier

GPU = Options("cuda", 0.001, 1, "nowhere")


def test_times_are_of_calls_after_the_warm_up():
    calls = []
    found = timed(lambda: calls.append(1), items=4, seconds=0.01, rounds=3)
    assert found["calls"] == len(calls) - 2
    assert found["rate"] > 0
    assert percentiles([0.003, 0.001, 0.002]) == {"p50": 2.0, "p95": 3.0, "p99": 3.0}


@pytest.fixture
def engine():
    return FakeEngine(LlmSettings(engine="fake", fake_step_ms=0.2, num_kv_blocks=512, max_num_seqs=8))


def test_streams_that_run_together_give_a_rate_and_times(engine):
    found = llm.through_ours(engine, llm.begin(3, 1, vocabulary=256), 5)
    assert found["tokens_s"] > 0
    assert 0 < found["itl_p50"] <= found["itl_p99"]
    assert 0 < found["ttft_p50"] <= found["ttft_p99"]
    assert not engine.has_work()


def test_a_sequence_that_fails_ends_the_measurement_with_its_reason(engine, monkeypatch):
    streams = llm.begin(1, 1, vocabulary=256)
    monkeypatch.setattr(engine, "step", lambda: [Output(streams[0].id, [], "error", error="no memory")])
    with pytest.raises(ServerError, match="no memory"):
        llm.through_ours(engine, streams, 4)
    monkeypatch.setattr(llm, "LIMIT_S", -1.0)
    monkeypatch.setattr(engine, "step", list)
    with pytest.raises(ServerError, match="not done after"):
        llm.through_ours(engine, streams, 4)


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


@pytest.mark.parametrize(("angle", "passes"), [(0.02, True), (0.1, False)])
def test_vectors_may_turn_a_little(tmp_path, monkeypatch, angle, passes):
    class Turned:
        def __init__(self, by):
            self.by = by

        def embed(self, texts):
            vector = np.array([[np.cos(self.by), np.sin(self.by)]], np.float32)
            return Embedded(np.repeat(vector, len(texts), 0), (1,) * len(texts))

    opened = {"cuda": Turned(angle), "cpu": Turned(0.0)}
    monkeypatch.setattr(embedding, "require_onnxruntime", lambda options: None)
    monkeypatch.setattr(embedding, "provide", lambda options, name: tmp_path)
    monkeypatch.setattr(embedding_engine, "open_engine", lambda directory, settings: opened[settings.device])
    if passes:
        found = embedding.onnxruntime_steps(GPU)
        assert found["lowest_cosine"] == pytest.approx(np.cos(angle), abs=1e-6)
    else:
        with pytest.raises(ArtefactError, match="a text's vectors have a cosine of 0.995"):
            embedding.onnxruntime_steps(GPU)


def test_prompts_share_no_beginning():
    prompts = [tuple(stream.prompt[:4]) for stream in llm.begin(20, 1)]
    assert all(one != other for one, other in itertools.combinations(prompts, 2))
