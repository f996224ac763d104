"""build/steps/speech/weights.py: INT8 that is written is the INT8 that CTranslate2 makes when it opens."""

from __future__ import annotations

import importlib
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.speech.whisper.checkpoints import LANGUAGES, convert, sound, write_checkpoint
from trimodal.manifest import read_manifest, sha256
from trimodal.speech.engines.ctranslate2 import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def write_int8():
    return importlib.import_module("steps.speech.weights").write_int8


@pytest.fixture(scope="module")
def floats(tmp_path_factory) -> Path:
    """An artefact that is computed with in INT8, with its weights in FP32."""
    directory = tmp_path_factory.mktemp("floats")
    write_checkpoint(directory / "whole", LANGUAGES, end_gain=1)
    convert(directory / "whole", directory / "mine", LANGUAGES)
    manifest = read_manifest(directory / "mine", task="speech", runtime="ctranslate2")
    text = manifest.model_copy(update={"precision": "int8"}).model_dump_json()
    (directory / "mine" / "manifest.json").write_text(text)
    return directory / "mine"


def test_it_hears_the_same_to_the_last_bit_and_is_smaller(floats, tmp_path, write_int8):
    small = tmp_path / "small"
    shutil.copytree(floats, small)
    (small / "model.bin").unlink()
    (small / "model.bin").hardlink_to(floats / "model.bin")
    before = sha256(floats / "model.bin")
    write_int8(small / "model.bin")
    assert sha256(floats / "model.bin") == before
    assert (small / "model.bin").stat().st_size < (floats / "model.bin").stat().st_size
    assert {file.name for file in small.iterdir()} == {file.name for file in floats.iterdir()}
    heard = []
    for directory in (floats, small):
        engine = open_engine(
            directory, RecogniseSettings(artefact="x", intra_op_threads=1, encoder="ctranslate2")
        )
        heard.append(engine.recognise([Window(sound(5, seed), "zh") for seed in (2, 3)]))
        engine.close()
    assert heard[0] == heard[1]
    assert heard[0][0].words


def test_a_row_of_zeros_has_a_scale(write_int8):
    quantise = importlib.import_module("steps.speech.weights")._quantise
    matrix, scale = quantise(np.array([[0, 0], [0.5, -1]], np.float16))
    assert matrix.tolist() == [[0, 0], [64, -127]]
    assert scale.tolist() == [1, 127]


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<I", 7) + b"of another layout",
        # One number in bfloat16, type 5.
        struct.pack("<IH2sIIH2sBIBIh", 6, 2, b"W\0", 3, 1, 2, b"a\0", 1, 1, 5, 2, 1),
    ],
)
def test_what_is_not_known_stays_as_it_is(tmp_path, write_int8, content):
    file = tmp_path / "model.bin"
    file.write_bytes(content)
    write_int8(file)
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]
