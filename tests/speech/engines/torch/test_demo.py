"""The torch engine on the demo Whisper: what ONNX Runtime's and CTranslate2's engines hear in its samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from tests.speech.engines.test_onnxruntime import export, opened, same
from tests.speech.engines.torch.artefacts import write_torch
from tests.speech.whisper.checkpoints import convert, edit_manifest
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
DEMO = Path(__file__).parents[4] / "build" / "demo" / "speech"


@pytest.fixture(scope="module")
def windows():
    """Of 1 to 10 s: the beginnings of the samples."""
    config = json.loads((DEMO / "config.json").read_text())
    longest = config["trimodal_contexts_s"][-1]
    files = sorted((DEMO / "samples").glob("*.*"))
    sounds = [
        soundfile.read(each, dtype="float32") for each in files if each.suffix in (".wav", ".flac", ".ogg")
    ]
    made = [Window(samples[: int(longest * rate)], "en") for samples, rate in sounds]
    return (made * 9)[:9]


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo")
    config = json.loads((DEMO / "config.json").read_text())
    contexts, changes = config["trimodal_contexts_s"], {"padding": config["trimodal_padding"]}
    (directory / "onnx").mkdir()
    export(DEMO, directory / "onnx")
    convert(DEMO, directory / "ctranslate2")
    write_torch(DEMO, directory / "torch", contexts_s=contexts)
    for name in ("onnx", "ctranslate2"):
        edit_manifest(directory / name, shapes={"contexts_s": contexts} | changes)
    names = ("torch", "torch"), ("onnx", "onnxruntime"), ("ctranslate2", "ctranslate2")
    opened_all = [opened(directory / name, engine) for name, engine in names]
    yield opened_all
    for engine in opened_all:
        engine.close()


@pytest.mark.parametrize("batch", [1, 8])
def test_the_demo_whisper_hears_the_same(engines, windows, batch):
    ours, onnx, ctranslate2 = (engine.recognise(windows[:batch]) for engine in engines)
    assert sum(len(one.words) for one in onnx) >= 3 * batch, "or nothing is shown"
    for one, other, third in zip(ours, onnx, ctranslate2, strict=True):
        same(one, other)
        assert one.text == third.text
        assert one.average_log_probability == pytest.approx(third.average_log_probability, abs=2e-3)
        starts = [word.start for word in third.words]
        assert [word.start for word in one.words] == pytest.approx(starts, abs=0.021)
