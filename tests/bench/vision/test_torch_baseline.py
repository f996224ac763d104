"""The baseline on the processor; its CUDA graph with a stand-in for the capture, which needs a GPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from tests.vision.pictures import artefact
from trimodal.bench.common.cuda_graph import WARM_UPS
from trimodal.bench.vision.torch_baseline import capture, open_torch
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest, write_manifest


# Imported here, not with the file: every worker collects every file.
@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def directory(tmp_path, torch):
    before = torch.get_num_threads()
    yield artefact(tmp_path / "onnx", classes=3)
    torch.set_num_threads(before)


def say_architecture(directory, name):
    manifest = read_manifest(directory, task="vision", runtime="onnxruntime")
    manifest.extra["architecture"] = name
    write_manifest(directory, manifest)


def test_the_network_of_the_artefact_runs_on_whole_batches(directory, torch, monkeypatch):
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


class Recording:
    """torch whose CUDA graph is the forward call that was made while it was captured, done again in place."""

    def __init__(self, torch):
        self.torch = torch
        self.order = []
        self.calls = []
        self.cuda = SimpleNamespace(
            Stream=self.stream_like, current_stream=self.stream_like, stream=self.entered("stream"),
            CUDAGraph=lambda: SimpleNamespace(replay=self.replay), graph=self.entered("graph"),
        )  # fmt: skip
        assert all(hasattr(torch.cuda, name) for name in vars(self.cuda))

    def __getattr__(self, name):
        return getattr(self.torch, name)

    def stream_like(self):
        return SimpleNamespace(wait_stream=lambda other: self.order.append("wait"))

    def entered(self, name):
        @contextmanager
        def inside(what):
            self.order.append(name)
            yield
            self.order.append(f"end of {name}")

        return inside

    def forward(self, images):
        self.order.append("forward")
        self.calls.append((images, images.float().mean((1, 2, 3))))
        return self.calls[-1][1]

    def replay(self):
        images, logits = self.calls[-1]
        logits.copy_(images.float().mean((1, 2, 3)))


def test_a_captured_graph_gets_each_batch_and_gives_its_logits(torch):
    recording = Recording(torch)
    first = torch.zeros((2, 3, 4, 4), dtype=torch.uint8)
    replay = capture(recording, recording.forward, first, "cpu")
    warm = ["wait", "stream", *["forward"] * WARM_UPS, "end of stream", "wait"]
    assert recording.order == [*warm, "graph", "forward", "end of graph"]
    for value in (7, 9):
        assert replay(torch.full_like(first, value)).tolist() == [value, value]
    assert len(recording.calls) == WARM_UPS + 1  # replayed, not run again
    assert not first.any()  # the caller's pictures are not written to
