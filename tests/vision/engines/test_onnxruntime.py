import numpy as np
import pytest

from tests.doubles import onnx_runtime
from tests.vision.pictures import artefact
from trimodal.errors import ArtefactError
from trimodal.vision.artefact import read_classifier
from trimodal.vision.engines.protocol import open_engine, runtime_of
from trimodal.vision.settings import VisionSettings

pytest.importorskip("onnx")


@pytest.fixture
def directory(tmp_path):
    """A classifier whose logits are the means of the three channels."""
    directory = artefact(tmp_path / "onnx", classes=3)
    onnx_runtime.save_graph(directory / "model.onnx")
    return directory


def opened(directory, **settings):
    settings = VisionSettings(artefact=str(directory), **{"intra_op_threads": 1, **settings})
    return open_engine(read_classifier(directory, runtime=runtime_of(settings.engine)), settings)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_runs_any_batch_and_gives_float32(directory, device, monkeypatch):
    machine = onnx_runtime.install(monkeypatch)
    engine = opened(directory, device=device, warm_up_batch_sizes=(1, 4))
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    for batch in (pixels, pixels[:1], pixels[1::2]):
        logits = engine.classify(batch)
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, batch.mean(axis=(2, 3)), rtol=1e-6)
    sessions = machine.named("InferenceSession.__init__")
    if device == "cpu":
        assert [asked["providers"] for asked in sessions] == [["CPUExecutionProvider"]]
    else:
        assert len(sessions) == 2, "one for each size"


@pytest.mark.parametrize(("threads", "runs"), [(1, [4, 4, 1]), (3, [6, 3]), (8, [9])])
def test_the_processor_gets_few_images_at_once(directory, monkeypatch, threads, runs):
    machine = onnx_runtime.install(monkeypatch)
    engine = opened(directory, intra_op_threads=threads)
    engine.classify(np.zeros((9, 3, 8, 8), np.uint8))
    assert [len(one["input_feed"]["pixels"]) for one in machine.named("Session.run")] == runs


def test_an_fp8_graph_is_for_tensorrt(directory):
    manifest = directory / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"fp32"', '"fp8"'))
    with pytest.raises(ArtefactError, match=r"FP8 graph, .*trimodal build vision "):
        opened(directory)
