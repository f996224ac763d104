"""The decoder in OpenVINO: CTranslate2's words, whatever is expected of a window, in fewer runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.speech.engines.openvino.conftest import settings
from tests.speech.whisper.checkpoints import LANGUAGES, convert, sound, write_checkpoint
from trimodal.speech.engines.openvino.loop import OpenVINOGraphs
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
LENGTHS_S = [1, 1, 2, 2, 3, 4, 5, 5, 0.5, 5]
TEXTS = ["", "hello", "", "hello world what is a lambda", "one two"]
WINDOWS = [
    Window(sound(seconds, seed), ("", *LANGUAGES)[seed % 4], TEXTS[seed % 5], seed // 4 % 2 == 1)
    for seed, seconds in enumerate(LENGTHS_S)
]
PREFIXES = ["", " hello world", " what", " hello world what is a lambda"]
PREFIXED = [replace(one, prefix=PREFIXES[index % 4]) for index, one in enumerate(WINDOWS)]


@pytest.fixture(scope="module")
def decoder(engines):
    """What recognises windows of which some text is known."""
    return engines[1]._decoder


def same(one, other):
    """Words are equal, times and figures up to rounding."""
    assert one.text == other.text
    assert one.language == other.language
    pairs = list(zip(one.words, other.words, strict=True))
    for name, within in (("start", 0.021), ("end", 0.021), ("probability", 1e-3)):
        gaps = [abs(getattr(our, name) - getattr(their, name)) for our, their in pairs]
        assert max(gaps, default=0) <= within
    assert one.no_speech_probability == pytest.approx(other.no_speech_probability, abs=1e-4)
    assert one.average_log_probability == pytest.approx(other.average_log_probability, abs=1e-3)


@pytest.mark.parametrize("windows", [WINDOWS, PREFIXED])
def test_the_words_are_those_of_ctranslate2(engines, decoder, windows):
    theirs, ours = engines[0].recognise(windows), decoder.recognise(windows)
    assert len({one.text for one in ours}) > 5, "or nothing is shown"
    for window, our, their in zip(windows, ours, theirs, strict=True):
        assert (our.text, our.language) == (their.text, their.language)
        assert our.no_speech_probability == pytest.approx(their.no_speech_probability, abs=1e-4)
        assert our.text.startswith(window.prefix)
        assert -87 < our.average_log_probability < 0


def test_a_text_does_not_end_with_its_prefix(tmp_path):
    write_checkpoint(tmp_path / "checkpoint", LANGUAGES, end_gain=3)
    artefact = convert(tmp_path / "checkpoint", tmp_path / "fp32", LANGUAGES)
    theirs = open_engine(artefact, settings(encoder="ctranslate2", decoder="ctranslate2"))
    ours = open_engine(artefact, settings(encoder="openvino", decoder="openvino"))
    prefixed = [replace(window, prefix=prefix) for window in WINDOWS for prefix in PREFIXES]
    texts = [heard.text for heard in ours.recognise(prefixed)]
    assert texts == [heard.text for heard in theirs.recognise(prefixed)]
    ours.close()
    theirs.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_window_does_not_depend_on_its_neighbours(decoder, temperature):
    drafted = [replace(one, draft=TEXTS[-index % 5]) for index, one in enumerate(PREFIXED)]
    for window, heard in zip(drafted, decoder.recognise(drafted, temperature), strict=True):
        same(decoder.recognise([window], temperature)[0], heard)


def drafts(text):
    """The whole text, its beginning, what is wrong at once or later, and what is too long."""
    words = text.split(" ")
    half, first = " ".join(words[: len(words) // 2]), " ".join(words[:3])
    return ["", text, half, " never said", f"{text} and more", f"{first} no"]


def test_no_draft_changes_what_is_heard(decoder):
    for window, plain in zip(PREFIXED, decoder.recognise(PREFIXED), strict=True):
        for draft in drafts(plain.text.removeprefix(window.prefix)):
            (heard,) = decoder.recognise([replace(window, draft=draft)])
            same(heard, plain)


def test_a_right_draft_takes_one_run_and_a_step_for_what_is_new(decoder, monkeypatch):
    runs, decode = [], OpenVINOGraphs.decode

    def counted(self, changed):
        runs.append(changed["tokens"].shape)
        return decode(self, changed)

    monkeypatch.setattr(OpenVINOGraphs, "decode", counted)
    window = Window(sound(5, 7), LANGUAGES[0])
    (plain,) = decoder.recognise([window])
    tokens = sum(len(word.tokens) for word in plain.words)
    assert tokens > 8, "or nothing is shown"
    assert runs == [(1, 4), *[(1, 1)] * (len(runs) - 1)]
    assert len(runs) >= tokens, "one less where the bound on its tokens ends it"
    without = len(runs)
    runs.clear()
    decoder.recognise([replace(window, draft="".join(word.text for word in plain.words[:-2]))])
    known = sum(len(word.tokens) for word in plain.words[:-2])
    assert runs[:2] == [(1, 4), (1, known)]
    assert len(runs) == without - known + 1


def test_a_text_longer_than_a_cache_is_decoded_on(decoder):
    window = Window(sound(5, 7), LANGUAGES[0], prompt="what is a lambda " * 20)
    known = replace(window, draft=decoder.recognise([window])[0].text)
    same(decoder.recognise([known])[0], decoder.recognise([window])[0])


def test_a_text_ends_where_the_decoder_has_no_more_places(decoder, monkeypatch):
    window = Window(sound(5, 7), LANGUAGES[0])
    tokens = [token for word in decoder.recognise([window])[0].words for token in word.tokens]
    monkeypatch.setattr(decoder.graphs.rules, "positions", 16)
    for known in ({}, {"prefix": " what is a lambda" * 5}, {"draft": " what is a lambda" * 5}):
        (heard,) = decoder.recognise([replace(window, **known)])
        written = [token for word in heard.words for token in word.tokens]
        assert len(written) == 8, "half of the places"
        assert written == tokens[:8] or "prefix" in known


def test_drawn_texts_are_the_same_again(decoder):
    ours = [decoder.recognise(WINDOWS, 1.0) for _ in range(2)]
    for one, other in zip(*ours, strict=True):
        same(one, other)
    assert [one.text for one in ours[0]] != [one.text for one in decoder.recognise(WINDOWS)]


def test_the_words_times_are_near_those_of_ctranslate2(engines, decoder):
    windows = [replace(one, prompt="", language="en", translate=False) for one in WINDOWS]
    ours, theirs = decoder.recognise(windows), engines[0].recognise(windows)
    gaps = [
        abs(our.start - their.start)
        for one, other in zip(ours, theirs, strict=True)
        for our, their in zip(one.words, other.words, strict=True)
    ]
    assert len(gaps) > 30
    assert np.median(gaps) <= 0.02
