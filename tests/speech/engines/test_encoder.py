"""The encoder in OpenVINO: the hidden states of CTranslate2's own, from the same weights."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.speech.whisper.checkpoints import CONTEXTS_S, LANGUAGES, convert, sound, write_checkpoint
from trimodal.errors import ArtefactError, SettingsError
from trimodal.manifest import Manifest
from trimodal.speech.engines import encoder
from trimodal.speech.engines.ctranslate2 import CTranslate2Whisper, open_encoder
from trimodal.speech.engines.encoder import Encoder, has_tiles
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window
from trimodal.speech.whisper.features import log_mel_batch

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SPEECH = [sound(seconds, seed) for seed, seconds in enumerate([1.5, 1, 4, 3])]


@pytest.fixture(scope="module")
def artefact(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whisper")
    write_checkpoint(directory / "checkpoint", LANGUAGES)
    return convert(directory / "checkpoint", directory / "fp32", LANGUAGES)


def settings(**changed):
    return RecogniseSettings(artefact="x", intra_op_threads=1, **changed)


def described(precision):
    return Manifest(
        task="speech",
        runtime="ctranslate2",
        runtime_version="4",
        precision=precision,
        source="x",
        source_sha256="0",
        command="trimodal build speech x",
    )


@pytest.fixture(scope="module")
def engines(artefact):
    both = [open_engine(artefact, settings(encoder=name)) for name in ("ctranslate2", "openvino")]
    yield both
    for engine in both:
        engine.close()


@pytest.mark.parametrize("context_s", CONTEXTS_S)
def test_its_hidden_states_are_those_of_ctranslate2(engines, context_s):
    features = log_mel_batch([one[: round(context_s * 12_000)] for one in SPEECH], context_s, 80, "silence")
    own, other = (np.array(engine.encode(features)) for engine in engines)
    assert own.shape == other.shape == (4, round(context_s * 50), 32)
    np.testing.assert_allclose(other, own, atol=2e-4 * np.abs(own).max())


def test_a_window_does_not_depend_on_its_neighbours(artefact):
    one = Encoder(artefact / "model.bin", threads=1, precision="int8")
    features = log_mel_batch(SPEECH, 5.0, 80, "silence")
    alone = [one.encode(row[None]) for row in features]
    np.testing.assert_array_equal(one.encode(features), np.concatenate(alone))


def test_the_engine_hears_the_same_words_with_it(engines):
    windows = [Window(samples, LANGUAGES[index % 2]) for index, samples in enumerate(SPEECH)]
    own, other = (engine.recognise(windows) for engine in engines)
    assert [one.text for one in other] == [one.text for one in own]
    assert any(one.text for one in own)


@pytest.mark.parametrize(
    ("flags", "asked", "precision", "device", "chosen"),
    [
        ("fpu amx_bf16 amx_tile", "auto", "int8", "cpu", True),
        ("fpu amx_tile amx_bf16", "auto", "int8_float16", "cpu", True),
        ("fpu amx_bf16 amx_tile", "auto", "float32", "cpu", False),
        ("fpu amx_bf16 amx_tile", "auto", "int8", "cuda", False),
        ("fpu avx512_bf16", "auto", "int8", "cpu", False),
        ("fpu amx_bf16 amx_tile", "ctranslate2", "int8", "cpu", False),
        ("fpu", "openvino", "float32", "cpu", True),
    ],
)
def test_which_encoder_is_taken(artefact, tmp_path, monkeypatch, flags, asked, precision, device, chosen):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t:\n")
    monkeypatch.setattr(encoder, "CPU_INFO", tmp_path / "cpuinfo")
    opened = open_encoder(artefact, described(precision), settings(encoder=asked, device=device))
    assert (opened is not None) is chosen


def test_a_system_that_does_not_tell_its_processor_has_no_tiles(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder, "CPU_INFO", tmp_path / "none")
    assert not has_tiles()


def test_a_gpu_is_refused_by_the_parameters_name(artefact):
    with pytest.raises(SettingsError, match="'encoder'.*cpu only"):
        open_encoder(artefact, described("int8"), settings(encoder="openvino", device="cuda"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (struct.pack("<I", 7), "layout is 7"),
        (struct.pack("<IH", 6, 300) + b"cut short", "damaged"),
        (struct.pack("<IH16sIII", 6, 16, b"TransformerSpec\0", 3, 0, 0), "no Whisper"),
    ],
)
def test_weights_that_cannot_be_read_are_told(tmp_path, content, told):
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(ArtefactError, match=told):
        open_encoder(tmp_path, described("int8"), settings(encoder="openvino"))


def test_an_artefact_without_an_encoder_of_its_own_opens_as_before(artefact):
    engine = open_engine(artefact, settings(encoder="ctranslate2"))
    assert isinstance(engine, CTranslate2Whisper)
    engine.close()
