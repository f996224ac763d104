import threading

import numpy as np
import pytest

from tests.vision.pictures import artefact, encode, noise, quarters
from trimodal.errors import ArtefactError, InvalidArgument
from trimodal.metrics import MemoryMetrics
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.fake import FakeClassifier
from trimodal.vision.rank import RankStep
from trimodal.vision.settings import ClassifySettings, PreprocessSettings, RankSettings
from trimodal.vision.steps import ClassifyStep, PreprocessStep

SPEC = InputSpec(height=8, width=8, resize="exact")


@pytest.fixture
def metrics():
    return MemoryMetrics()


@pytest.fixture
def preprocess(metrics):
    service = PreprocessStep(SPEC, PreprocessSettings(classifier="x", threads=3), metrics)
    yield service
    service.close()


def count(metrics, outcome):
    return metrics.get("trimodal_vision_images_total", {"outcome": outcome}).value


def test_a_bad_image_harms_only_its_own_request(preprocess, metrics):
    good = [encode(noise(8, 8, seed), "PNG") for seed in range(4)]
    outcomes = preprocess.prepare([[good[0]], [b"junk"], [good[1], good[2]], [good[3], b""]])
    assert np.array_equal(outcomes[0][0], np.asarray(noise(8, 8, 0)).transpose(2, 0, 1))
    assert isinstance(outcomes[1], InvalidArgument)
    assert str(outcomes[1]).startswith("image: ")
    assert outcomes[2].shape == (2, 3, 8, 8)
    assert np.array_equal(outcomes[2][1], np.asarray(noise(8, 8, 2)).transpose(2, 0, 1))
    assert outcomes[2].dtype == np.uint8
    assert str(outcomes[3]).startswith("image[1]: empty")
    assert (count(metrics, "prepared"), count(metrics, "refused")) == (4, 2)
    assert len(metrics.get("trimodal_vision_decode_seconds", {}).observations) == 4


def test_the_images_of_a_batch_are_decoded_side_by_side(preprocess, monkeypatch):
    meeting = threading.Barrier(3, timeout=30)
    whole = preprocess._preprocessor.prepare

    def prepare(data, out, *, name):
        meeting.wait()  # Passes only when three are here at once.
        whole(data, out, name=name)

    monkeypatch.setattr(preprocess._preprocessor, "prepare", prepare)
    outcomes = preprocess.prepare([[encode(quarters(), "PNG")]] * 3)
    assert [outcome.shape for outcome in outcomes] == [(1, 3, 8, 8)] * 3


def test_settings_limits_reach_the_decoder(metrics):
    service = PreprocessStep(SPEC, PreprocessSettings(classifier="x", max_side=32), metrics)
    (outcome,) = service.prepare([[encode(quarters(64), "PNG")]])
    service.close()
    assert str(outcome) == "image: 64 × 64 pixels; at most 32 a side are accepted"


def test_one_run_for_all_requests_and_each_gets_its_own(metrics):
    engine = FakeClassifier(3)
    service = ClassifyStep(engine, SPEC, metrics)
    first, wrong, second = service.classify(
        [
            np.repeat([2, 0], 3 * 8 * 8).reshape(2, 3, 8, 8).astype(np.uint8),
            np.zeros((1, 3, 9, 8), np.uint8),
            np.ones((1, 3, 8, 8), np.uint8),
        ]
    )
    assert first.argmax(1).tolist() == [2, 0]
    assert second.argmax(1).tolist() == [1]
    assert str(wrong) == "pixels: shape [3, 8, 8] an image is needed"
    assert engine.batch_sizes == [3]
    assert metrics.get("trimodal_vision_classify_batch_size", {}).observations == [3]
    assert len(metrics.get("trimodal_vision_classify_seconds", {}).observations) == 1


def test_nothing_runs_when_no_request_is_good(metrics):
    engine = FakeClassifier(3)
    outcomes = ClassifyStep(engine, SPEC, metrics).classify([np.zeros((1, 1, 8, 8), np.uint8)])
    assert isinstance(outcomes[0], InvalidArgument)
    assert engine.batch_sizes == []


def test_opening_warms_up_every_size(tmp_path, metrics, monkeypatch):
    artefact(tmp_path / "1" / "onnx")
    settings = ClassifySettings(artefact="onnx", engine="fake", warm_up_batch_sizes=(1, 4))
    service = ClassifyStep.open(tmp_path / "1", settings, metrics)
    assert service._engine.batch_sizes == [1, 4]


def test_the_real_engine_refuses_a_damaged_file(tmp_path, metrics):
    directory = artefact(tmp_path / "onnx")
    (directory / "model.onnx").write_bytes(b"not a graph")
    settings = ClassifySettings(artefact=str(directory))
    with pytest.raises(ArtefactError, match=r"refuses .*model\.onnx .*build again with: python build"):
        ClassifyStep.open(tmp_path, settings, metrics)


def test_the_three_steps_end_in_labels(tmp_path, metrics):
    artefact(tmp_path / "classify" / "1" / "onnx")
    version = tmp_path / "rank" / "1"
    classifier = "../../classify/1/onnx"
    preprocess = PreprocessStep.open(version, PreprocessSettings(classifier=classifier), metrics)
    fake = ClassifySettings(artefact=classifier, engine="fake")
    classify = ClassifyStep.open(version, fake, metrics)
    rank = RankStep.open(version, RankSettings(classifier=classifier, top_k=1))
    from PIL import Image

    # The fake's class is the mean of the first channel modulo the three classes: 100, 101 and 102.
    images = [[encode(Image.new("RGB", (8, 8), (100 + value, 0, 0)), "PNG")] for value in range(3)]
    ranked = rank.rank(classify.classify(preprocess.prepare(images)))
    preprocess.close()
    assert [labels.tolist() for labels, _ in ranked] == [[[b"class 1"]], [[b"class 2"]], [[b"class 0"]]]
    assert all(scores[0, 0] > 0.99 for _, scores in ranked)


def test_a_bad_row_of_logits_is_refused_alone(tmp_path):
    directory = artefact(tmp_path / "onnx")
    rank = RankStep.open(tmp_path, RankSettings(classifier=str(directory)))
    good, bad = rank.rank([np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32)])
    assert good[0].shape == (1, 3)
    assert isinstance(bad, InvalidArgument)


def test_opened_services_are_warm_and_have_counted_nothing(tmp_path, metrics):
    folder = str(artefact(tmp_path / "warm"))
    service = PreprocessStep.open(
        tmp_path, PreprocessSettings(classifier=folder, threads=3, max_side=4), metrics
    )
    assert len(service._pool._threads) >= 1
    assert (count(metrics, "prepared"), count(metrics, "refused")) == (0, 0)
    service.close()
