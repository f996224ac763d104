"""Each peer over HTTP, on tiny models."""

import asyncio
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.project.pages import ROOT
from tests.speech.whisper.checkpoints import convert, sound, write_checkpoint
from tests.vision.pictures import artefact, encode
from trimodal.bench.peers.process import running_peer
from trimodal.bench.peers.vision import prepare
from trimodal.errors import ServerError
from trimodal.manifest import read_manifest, write_manifest
from trimodal.speech.whisper.word_timestamps import most_tokens
from trimodal.vision.artefact import InputSpec
from trimodal.vision.image import Picture
from trimodal.vision.preprocess import Preprocessor
from trimodal.vision.settings import Limits


@pytest.mark.parametrize("size", [(64, 64), (90, 60), (48, 100)])
def test_an_image_is_fitted_as_ours_is(size):
    x, y = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    image = Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))
    for spec in (
        InputSpec(height=32, width=32, resize="crop", resize_to=40),
        InputSpec(height=24, width=32, resize="exact"),
    ):
        theirs, ours = prepare(image, spec), Preprocessor(spec, Limits()).fit(Picture(image, 1))
        assert theirs.size == (spec.width, spec.height)
        # Where the shorter side is scaled to whole pixels, its filter lies half a pixel aside.
        assert np.abs(np.asarray(theirs, float) - np.asarray(ours, float)).max() < 8


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """For the peers: threads that wait for one another on a busy machine take minutes for tiny models."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A checkpoint of random weights."""
    out = tmp_path_factory.mktemp("llama") / "tiny"
    script = [sys.executable, "build/random_checkpoint.py", "llama-tiny", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(script, cwd=ROOT, check=True, capture_output=True, env=environment)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
async def test_answers_have_as_many_tokens_as_were_asked_for(llama, dtype):
    # Every id ends an answer, as the checkpoint has it.
    file = llama / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": list(range(512))}))
    options = {"checkpoint": str(llama), "dtype": dtype}
    async with running_peer("peer", "trimodal.bench.peers.llm", options) as peer:
        answers = await asyncio.gather(*(peer.generate([1, 2, 3 + id], 5 + id) for id in range(3)))
        assert all(one.ttft for one in answers)
        assert all(len(one.itl) <= 5 + id for id, one in enumerate(answers))
        with pytest.raises(ServerError, match="made 0 of 4 tokens: .*IndexError"):
            await peer.generate([100_000], 4)  # no such id: generate() fails, and its reader is told


@pytest.mark.slow
async def test_the_weights_of_the_checkpoint_classify(tmp_path):
    demo = ROOT / "build" / "demo" / "vision"
    spec = json.loads((demo / "config.json").read_text())["input"]
    directory = artefact(tmp_path / "digits", classes=10, **spec)
    manifest = read_manifest(directory, task="vision", runtime=None)
    manifest.extra["architecture"] = "digits-resnet"
    write_manifest(directory, manifest)
    with np.load(demo / "evaluation.npz") as arrays:
        digits = list(zip(arrays["images"][:20], arrays["labels"][:20].tolist(), strict=True))
    options = {"artefact": str(directory), "checkpoint": str(demo)}
    async with running_peer("peer", "trimodal.bench.peers.vision", options) as peer:
        right = 0
        for pixels, label in digits:
            found = await peer.post("/classify", encode(Image.fromarray(pixels), "PNG"))
            assert sum(found["scores"]) <= 1.0001
            right += found["labels"][0] == f"class {label}"
        assert right >= 18
    async with running_peer("peer", "trimodal.bench.peers.vision", {**options, "checkpoint": None}) as peer:
        assert (
            len((await peer.post("/classify", encode(Image.fromarray(digits[0][0]), "PNG")))["labels"]) == 5
        )


@pytest.mark.slow
async def test_a_window_is_decoded_once(tmp_path):
    # Left to themselves these random weights write times alone, at which `transcribe` begins again 16 times.
    write_checkpoint(tmp_path / "checkpoint", seed=4)
    directory = convert(tmp_path / "checkpoint", tmp_path / "built")
    options = {"directory": str(directory), "device": "cpu", "beam_size": 1}
    async with running_peer("peer", "trimodal.bench.peers.speech", options) as peer:
        for seed in range(3):
            found = await peer.post("/transcribe", sound(5, seed).tobytes())
            assert 0 < len(found["text"].split()) <= most_tokens(5.0)
