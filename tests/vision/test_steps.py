import threading

import numpy as np
import pytest
from PIL import Image

from tests.vision.pictures import artefact, encode, quarters
from trimodal.errors import InvalidArgument
from trimodal.metrics import MemoryMetrics
from trimodal.vision.artefact import InputSpec, read_classifier
from trimodal.vision.engines import fake
from trimodal.vision.engines.fake import FakeClassifier
from trimodal.vision.preprocess import Preprocessor
from trimodal.vision.rank import RankStep
from trimodal.vision.settings import PreprocessSettings, RankSettings, VisionSettings
from trimodal.vision.steps import PreprocessStep, VisionStep

SPEC = InputSpec(height=8, width=8, resize="exact")


@pytest.fixture
def metrics():
    return MemoryMetrics()


@pytest.fixture
def preprocess(metrics):
    service = PreprocessStep(SPEC, PreprocessSettings(classifier="x", decode_threads=3), metrics)
    yield service
    service.close()


def count(metrics, outcome):
    return metrics.get("trimodal_vision_images_total", {"outcome": outcome}).value


def test_the_images_of_a_batch_are_decoded_side_by_side(preprocess, monkeypatch):
    meeting = threading.Barrier(3, timeout=30)
    whole = Preprocessor.prepare

    def prepare(self, data, out, *, name):
        meeting.wait()  # Passes only when three are here at once.
        whole(self, data, out, name=name)

    monkeypatch.setattr(Preprocessor, "prepare", prepare)
    outcomes = preprocess.prepare([[encode(quarters(), "PNG")]] * 3)
    assert [outcome.shape for outcome in outcomes] == [(1, 3, 8, 8)] * 3


def test_settings_limits_reach_the_decoder(metrics):
    service = PreprocessStep(SPEC, PreprocessSettings(classifier="x", max_side=32), metrics)
    (outcome,) = service.prepare([[encode(quarters(64), "PNG")]])
    service.close()
    assert str(outcome) == "image: 64 × 64 pixels; at most 32 a side are accepted"


class PlayedClassifier(FakeClassifier):
    """Keeps the arrays that it was given; `spoilt`: the first of a run gets no finite logit."""

    def __init__(self, classes):
        super().__init__(classes)
        self.given = []
        self.spoilt = False

    @property
    def batch_sizes(self):
        return [len(pixels) for pixels in self.given]

    def classify(self, pixels):
        self.given.append(pixels)
        logits = super().classify(pixels)
        if self.spoilt:
            logits[0, 0] = np.nan
        return logits


@pytest.fixture
def engine():
    """Three classes; a picture's class is its red value modulo three."""
    return PlayedClassifier(3)


@pytest.fixture
def vision(tmp_path, metrics, engine):
    """The whole step on the played engine, warmed up."""
    settings = VisionSettings(artefact="fake", engine="fake", top_k=1)
    service = VisionStep(engine, read_classifier(artefact(tmp_path / "fake")), settings, metrics)
    engine.given.clear()
    yield service
    service.close()


def red(value):
    return encode(Image.new("RGB", (8, 8), (value, 0, 0)), "PNG")


def names(outcome):
    labels, scores = outcome
    assert scores.shape == labels.shape
    assert (scores > 0.99).all()
    return [label.decode() for label in labels[:, 0]]


def test_one_run_for_all_requests_and_each_gets_its_own(vision, engine, metrics):
    first, second, third = vision.classify([[red(2)], [red(0), red(1)], [red(101)]])
    assert [names(one) for one in (first, second, third)] == [
        ["class 2"],
        ["class 0", "class 1"],
        ["class 2"],
    ]
    assert engine.batch_sizes == [4]
    assert metrics.get("trimodal_vision_classify_batch_size", {}).observations == [4]
    assert len(metrics.get("trimodal_vision_classify_seconds", {}).observations) == 1
    assert len(metrics.get("trimodal_vision_decode_seconds", {}).observations) == 4


def test_a_bad_image_is_not_run_and_its_neighbours_get_their_own(vision, engine, metrics):
    good, bad, two, half = vision.classify([[red(1)], [b"junk"], [red(2), red(0)], [red(1), b""]])
    assert (names(good), names(two)) == (["class 1"], ["class 2", "class 0"])
    assert isinstance(bad, InvalidArgument)
    assert str(bad).startswith("image: not a JPEG")
    assert str(half).startswith("image[1]: empty")
    assert engine.batch_sizes == [3], "the good half of a refused request is not run either"
    assert (count(metrics, "prepared"), count(metrics, "refused")) == (4, 2)
    assert all(
        isinstance(outcome, InvalidArgument) for outcome in vision.classify([[b"junk"], [b"", red(0)]])
    )
    assert engine.batch_sizes == [3], "nothing is run where no request is good"


def test_logits_that_are_not_finite_harm_only_their_own_request(vision, engine):
    engine.spoilt = True
    bad, good = vision.classify([[red(0)], [red(1)]])
    assert str(bad) == "logits: every number must be finite"
    assert names(good) == ["class 1"]


def test_decoded_pixels_are_the_array_of_the_run(vision, engine, monkeypatch):
    """Nothing copies them between the decoder and the engine."""
    written = []
    prepare = Preprocessor.prepare

    def spy(self, data, out, *, name):
        written.append(out)
        prepare(self, data, out, name=name)

    monkeypatch.setattr(Preprocessor, "prepare", spy)
    vision.classify([[red(1)], [red(2), red(0)]])
    assert len(written) == 3
    assert all(np.shares_memory(out, engine.given[0]) for out in written)


def decoders():
    return {one for one in threading.enumerate() if one.name.startswith("decode")}


def test_opening_warms_up_all_of_it_and_counts_nothing(tmp_path, metrics, engine, monkeypatch):
    artefact(tmp_path / "1" / "onnx")
    settings = VisionSettings(
        artefact="onnx", engine="fake", warm_up_batch_sizes=(1, 4), decode_threads=3, max_side=4
    )
    monkeypatch.setattr(fake, "open_engine", lambda artefact, settings: engine)
    before = decoders()
    service = VisionStep.open(tmp_path / "1", settings, metrics)
    assert engine.batch_sizes == [1, 4]
    assert decoders() - before
    assert (count(metrics, "prepared"), count(metrics, "refused")) == (0, 0)
    assert metrics.get("trimodal_vision_classify_seconds", {}).observations == []
    service.close()


def test_steps_that_are_models_of_their_own_read_the_artefact_of_the_classifier(tmp_path, metrics):
    artefact(tmp_path / "classify" / "1" / "plan")
    version, classifier = tmp_path / "rank" / "1", "../../classify/1/plan"
    preprocess = PreprocessStep.open(version, PreprocessSettings(classifier=classifier), metrics)
    rank = RankStep.open(version, RankSettings(classifier=classifier, top_k=1))
    prepared = preprocess.prepare([[red(100 + value)] for value in range(3)])
    preprocess.close()
    ranked = rank.rank([FakeClassifier(3).classify(pixels) for pixels in prepared])
    assert [names(one) for one in ranked] == [["class 1"], ["class 2"], ["class 0"]]
