"""build/steps/speech/converted.py: a Whisper that is CTranslate2's already is taken as it is."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest

from tests.builders.engine_builds import command, sentence
from tests.speech.whisper.checkpoints import LANGUAGES, convert, sound, write_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest, sha256
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[3]
BUILT = ROOT / "model_repository" / "speech_recognize" / "1"


@pytest.fixture(scope="module")
def build():
    return command("speech_ctranslate2")


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> Path:
    """As a user of faster-whisper has it: no manifest."""
    directory = tmp_path_factory.mktemp("converted")
    write_checkpoint(directory / "whole", LANGUAGES, end_gain=1)
    convert(directory / "whole", directory / "mine", LANGUAGES)
    (directory / "mine" / "manifest.json").unlink()
    return directory / "mine"


def test_it_is_taken_with_its_weights_and_its_tokenizers_languages(converted, audio, build, tmp_path):
    out, options = tmp_path / "out", ("--audio", audio, "--language", "de", "--contexts", "6,30")
    result = build(converted, "--precision", "float32", "--out", out, *options, "--min-agreement", 0)
    assert result.exit_code == 0, result.output
    assert "mine against faster-whisper" in result.output
    manifest = read_manifest(out, task="speech", runtime="ctranslate2")
    assert sha256(out / "model.bin") == sha256(converted / "model.bin")
    assert manifest.shapes["languages"] == list(LANGUAGES)
    assert manifest.shapes["contexts_s"] == [6, 30]
    assert manifest.check["windows"] == 4
    # One text is known, of a recording of 2 s: heard in the context of 6 s.
    assert manifest.check["word_error_rate_built"] == manifest.check["word_error_rate_built_6s"]
    assert manifest.check["word_error_rate_faster_whisper"] > 0
    assert "word_error_rate_built_30s" not in manifest.check
    engine = open_engine(out, RecogniseSettings(artefact="x", intra_op_threads=1))
    assert engine.recognise([Window(sound(5, 2), "zh")])[0].words
    engine.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "agrees with faster-whisper on .* of the words, less than --min-agreement 1"),
        (("--language", "fr"), "does not know the language 'fr'"),
        (("--contexts", "31"), "a context of 31 s does not fit: at most 30 s"),
        (("--audio", "nowhere"), "no folder nowhere"),
    ],
)
def test_what_is_refused_replaces_nothing(converted, audio, build, tmp_path, options, expected):
    given = ("--out", tmp_path / "out", "--audio", audio, "--min-agreement", 1, *options)
    assert re.search(expected, sentence(build(converted, *given)))
    assert not (tmp_path / "out").exists()


def test_a_damaged_one_and_an_unknown_vocabulary_are_one_sentence(converted, build, tmp_path):
    shutil.copytree(converted, tmp_path / "a")
    (tmp_path / "a" / "tokenizer.json").unlink()
    assert "model.bin has a vocabulary of 1778 ids" in sentence(build(tmp_path / "a"))
    (tmp_path / "a" / "model.bin").write_bytes(b"nothing")
    assert "cannot be opened as a Whisper of CTranslate2" in sentence(build(tmp_path / "a"))


def test_a_tokenizer_that_an_older_converter_left_out_is_openais(monkeypatch, tmp_path):
    converter, openai = (importlib.import_module(f"steps.speech.{name}") for name in ("converted", "openai"))
    monkeypatch.setattr(openai, "resolve_checkpoint", lambda source: BUILT / "ctranslate2-tiny.en")
    old = tmp_path / "old"
    shutil.copytree(BUILT / "ctranslate2-tiny.en", old, ignore=shutil.ignore_patterns("tokenizer.json"))
    taken = converter.ConvertedCheckpoint(old, "old", "silence")
    assert taken.languages == ("en",)
    (tmp_path / "out").mkdir()
    taken.copy(tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").is_file()


def test_one_that_lies_where_it_is_served_is_taken_in_its_place(converted, audio, build, tmp_path):
    shutil.copytree(converted, tmp_path / "mine")
    given = ("--precision", "float32", "--out", tmp_path / "mine", "--audio", audio, "--min-agreement", 0)
    for _ in range(2):
        result = build(tmp_path / "mine", *given)
        assert result.exit_code == 0, result.output
        assert read_manifest(tmp_path / "mine", task="speech", runtime="ctranslate2").source == "mine"


def test_serving_and_tensorrt_name_the_way_out(converted, audio):
    with pytest.raises(
        ArtefactError, match=f"without a manifest: take it .* trimodal build speech {converted}"
    ):
        open_engine(converted, RecogniseSettings(artefact="x"))
    shared = importlib.import_module("steps.speech.build")
    with pytest.raises(ArtefactError, match="name the checkpoint that it was made of"):
        shared.prepare(str(converted), [], "x", "", "", "", audio, "")


@pytest.mark.slow
def test_tiny_en_as_packages_carry_it_hears_the_project_s_samples(build, tmp_path):
    result = build(BUILT / "ctranslate2-tiny.en", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    check = read_manifest(tmp_path / "out", task="speech", runtime="ctranslate2").check
    assert check["windows"] == 9
    assert check["word_error_rate_built"] < 0.05
