"""The baseline on the processor; on CUDA it needs a GPU."""

import numpy as np
import pytest

from tests.vision.pictures import artefact
from trimodal.bench.vision_torch import open_torch
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest, write_manifest

torch = pytest.importorskip("torch")


@pytest.fixture
def directory(tmp_path):
    before = torch.get_num_threads()
    yield artefact(tmp_path / "onnx", classes=3)
    torch.set_num_threads(before)


def say_architecture(directory, name):
    manifest = read_manifest(directory, task="vision", runtime="onnxruntime")
    manifest.extra["architecture"] = name
    write_manifest(directory, manifest)


def test_the_network_of_the_artefact_runs_on_whole_batches(directory, monkeypatch):
    say_architecture(directory, "digits-resnet")
    seen = []
    real = torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: seen.append(len(x)) or real(self, x))
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8), dtype=np.uint8)
    works = open_torch(directory, "cpu", 1, pixels)
    for batch, number in ((1, 0), (2, 1), (5, 2)):
        works["torch"](batch, number)
    assert seen == [1, 2, 5]


def test_a_network_that_torch_does_not_know_is_refused(directory):
    say_architecture(directory, "onnx")
    with pytest.raises(ArtefactError, match=r"is no network of build/ \(onnx\)"):
        open_torch(directory, "cpu", 1, np.zeros((1, 3, 8, 8), np.uint8))
