"""The ONNX Runtime engine: the words, times and figures of the CTranslate2 engine on the same weights."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from unittest import mock

import numpy as np
import pytest

from tests.builders.scripts import importable
from tests.speech.whisper.checkpoints import (
    CONTEXTS_S,
    LANGUAGES,
    convert,
    edit_manifest,
    sound,
    write_checkpoint,
)
from trimodal.errors import ArtefactError, ServerError, SettingsError
from trimodal.manifest import Manifest, write_manifest
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
WINDOWS = [Window(sound(seconds, seed)) for seed, seconds in enumerate([1, 1, 2, 2, 3, 4, 5, 5, 0.5, 5])]


def export(checkpoint_directory, out, languages=()):
    """The artefact that the engine opens, as build/speech_onnx.py makes it, without its check."""
    with mock.patch.dict(os.environ), importable():
        checkpoint = importlib.import_module("steps.speech.checkpoint").load(checkpoint_directory, "x")
        importlib.import_module("steps.speech.onnx_export").export(checkpoint, out)
        checkpoint.write_files(out)
        extra = importlib.import_module("speech_onnx").extra(checkpoint)
        shapes = checkpoint.shapes(CONTEXTS_S)
    manifest = Manifest(
        task="speech", runtime="onnxruntime", runtime_version="x", precision="fp32", source="random",
        source_sha256="0", command="make it again", shapes=shapes, extra=extra,
    )  # fmt: skip
    write_manifest(out, manifest)
    return out


def opened(directory, engine="onnxruntime", **settings):
    return open_engine(
        directory, RecogniseSettings(artefact="x", engine=engine, intra_op_threads=1, **settings)
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory, end_gain=1)
    return directory


@pytest.fixture(scope="module")
def artefact(checkpoint, tmp_path_factory):
    return export(checkpoint, tmp_path_factory.mktemp("english"))


@pytest.fixture(scope="module")
def engine(artefact):
    engine = opened(artefact)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def both(graphs, reference, tmp_path_factory):
    """A multilingual Whisper in this engine and in CTranslate2's."""
    converted = tmp_path_factory.mktemp("multilingual") / "ct2"
    theirs = opened(convert(graphs.parent / "checkpoint", converted, LANGUAGES), "ctranslate2")
    yield reference, theirs
    theirs.close()


def same(one, other):
    """Words and times are equal, figures up to rounding."""
    assert one.text == other.text
    assert one.language == other.language
    for name in ("start", "end"):
        times = [getattr(word, name) for word in other.words]
        assert [getattr(word, name) for word in one.words] == pytest.approx(times, abs=1e-6)
    probabilities = [word.probability for word in other.words]
    assert [word.probability for word in one.words] == pytest.approx(probabilities, abs=1e-3)
    assert one.no_speech_probability == pytest.approx(other.no_speech_probability, abs=1e-4)
    assert one.average_log_probability == pytest.approx(other.average_log_probability, abs=1e-3)


def test_contexts_and_languages(engine, both):
    assert engine.contexts_s == tuple(CONTEXTS_S)
    assert engine.languages == ("en",)
    assert both[0].languages == LANGUAGES


def test_tokens_language_and_figures_are_those_of_ctranslate2(both):
    ours, theirs = both
    texts = ["", "hello", "hello world what is a lambda"]
    windows = [
        Window(window.samples, ("", *LANGUAGES)[index % 4], texts[index % 3], index // 4 % 2 == 1)
        for index, window in enumerate(WINDOWS)
    ]
    heard = list(zip(ours.recognise(windows), theirs.recognise(windows), strict=True))
    assert len({our.text for our, _ in heard}) > 5, "or nothing is shown"
    for our, their in heard:
        assert our.text == their.text
        assert our.language == their.language
        assert our.no_speech_probability == pytest.approx(their.no_speech_probability, abs=1e-4)
        assert our.compression_ratio == their.compression_ratio


def test_word_times_are_near_those_of_ctranslate2(both):
    """They differ where attention is vague, as it is with random weights, but not in the middle."""
    ours, theirs = (engine.recognise([Window(one.samples, "en") for one in WINDOWS]) for engine in both)
    gaps = [
        abs(our.start - their.start)
        for one, other in zip(ours, theirs, strict=True)
        for our, their in zip(one.words, other.words, strict=True)
    ]
    assert len(gaps) > 30
    assert np.median(gaps) <= 0.02


def test_a_window_does_not_depend_on_its_neighbours(both):
    engine, _ = both
    texts = ["", "hello", "", "hello world what is a lambda", "one two"]
    windows = [
        Window(window.samples, ("", *LANGUAGES)[index % 4], texts[index % 5], index // 4 % 2 == 1)
        for index, window in enumerate(WINDOWS)
    ]
    for window, heard in zip(windows, engine.recognise(windows), strict=True):
        same(engine.recognise([window])[0], heard)


def test_batches_of_three_hear_what_a_batch_of_eight_hears(artefact, engine):
    small = opened(artefact, max_batch_windows=3)
    for one, other in zip(small.recognise(WINDOWS), engine.recognise(WINDOWS), strict=True):
        same(one, other)
    small.close()


def test_a_draw_is_the_same_again_and_another_than_greedy(engine):
    first = engine.recognise(WINDOWS, 1.0)
    assert [heard.text for heard in first] != [heard.text for heard in engine.recognise(WINDOWS)]
    for window, heard in zip(WINDOWS, first, strict=True):
        same(engine.recognise([window], 1.0)[0], heard)


def test_words_lie_in_their_window_in_order(engine):
    for window, heard in zip(WINDOWS, engine.recognise(WINDOWS), strict=True):
        edges = [edge for word in heard.words for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        assert all(0 <= edge <= len(window.samples) / 16_000 for edge in edges)


def test_what_the_checkpoint_suppresses_is_not_written(artefact, engine, tmp_path):
    word = next(heard.words[0].text for heard in engine.recognise(WINDOWS) if heard.words)
    token = engine._tokens.encode(word)[0]
    copy = tmp_path / "copy"
    shutil.copytree(artefact, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["extra"]["suppressed"] = [token]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    suppressing = opened(copy)
    assert word not in [one.text for heard in suppressing.recognise(WINDOWS) for one in heard.words]
    suppressing.close()


def test_more_beams_are_refused(artefact):
    with pytest.raises(SettingsError, match="parameter 'beam_size'.*1 only"):
        opened(artefact, beam_size=5)


def test_a_device_without_provider_is_refused(artefact):
    with pytest.raises(ServerError, match="built without CUDA"):
        opened(artefact, device="cuda")


def test_another_checkpoint_or_precision_than_the_configuration_names_is_refused(artefact):
    opened(artefact, checkpoint_sha256="0", precision="fp32").close()
    with pytest.raises(ArtefactError, match="checkpoint with hash 0, not abc: build again with: make it"):
        opened(artefact, checkpoint_sha256="abc")
    with pytest.raises(ArtefactError, match="is fp32, and the configuration asks for fp16: build again"):
        opened(artefact, precision="fp16")


def test_damage_is_named(artefact, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(artefact, copy)
    (copy / "decoder.onnx").write_bytes(b"damaged")
    with pytest.raises(ArtefactError, match="refuses .*decoder.onnx .* build again with: make it again"):
        opened(copy)
    edit_manifest(copy, extra={"multilingual": False, "suppressed": "x"})
    with pytest.raises(ArtefactError, match=r"extra\.suppressed, extra\.suppressed_first"):
        opened(copy)
    (copy / "decoder.onnx").unlink()
    with pytest.raises(ArtefactError, match=r"lacks decoder\.onnx"):
        opened(copy)
