"""The decode loop's words, times and figures: those of the CTranslate2 engine on the same weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.builders.scripts import Later
from tests.speech.whisper.checkpoints import LANGUAGES, convert, sound, write_checkpoint
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
on_torch, model = (
    Later(name)
    for name in ("tests.speech.engines.tensorrt.torch_forward", "trimodal.speech.engines.graphs.model")
)
WINDOWS = [Window(sound(seconds, seed)) for seed, seconds in enumerate([1, 1, 2, 2, 3, 4, 5, 5, 0.5, 5])]
TEXTS = ["", "hello", "hello world what is a lambda"]
MIXED = [
    Window(window.samples, ("", *LANGUAGES)[index % 4], TEXTS[index % 3], index // 4 % 2 == 1)
    for index, window in enumerate(WINDOWS)
]
PREFIXES = ["", " hello world", " what", " hello world what is a lambda"]
PREFIXED = [replace(one, prefix=PREFIXES[index % 4]) for index, one in enumerate(MIXED)]
NAMED = [Window(one.samples, one.language or "en", one.prompt, one.translate) for one in MIXED]


def opened(directory, engine, **settings):
    return open_engine(
        directory, RecogniseSettings(artefact="x", engine=engine, intra_op_threads=1, **settings)
    )


@pytest.fixture(scope="module")
def both(checkpoint, reference, tmp_path_factory):
    """The decode loop and CTranslate2's engine."""
    converted = tmp_path_factory.mktemp("multilingual") / "ct2"
    theirs = opened(convert(checkpoint, converted, LANGUAGES), "ctranslate2")
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


@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(MIXED, id="mixed"),
        pytest.param(NAMED, id="named", marks=pytest.mark.slow),
        pytest.param(PREFIXED, id="prefixed", marks=pytest.mark.slow),
    ],
)
def test_tokens_language_and_figures_are_those_of_ctranslate2(both, windows):
    heard = list(zip(*(engine.recognise(windows) for engine in both), strict=True))
    assert len({our.text for our, _ in heard}) > 5, "or nothing is shown"
    for our, their in heard:
        assert our.text == their.text
        assert our.language == their.language
        assert our.no_speech_probability == pytest.approx(their.no_speech_probability, abs=1e-4)
        assert our.compression_ratio == their.compression_ratio
    for window, (our, _) in zip(windows, heard, strict=True):
        assert our.text.startswith(window.prefix)
        assert -87 < our.average_log_probability < 0


def test_a_text_does_not_end_with_its_prefix(tmp_path):
    write_checkpoint(tmp_path / "checkpoint", LANGUAGES, end_gain=3)
    ours = on_torch.open_on_torch(tmp_path / "checkpoint")
    theirs = opened(convert(tmp_path / "checkpoint", tmp_path / "ct2", LANGUAGES), "ctranslate2")
    texts = [heard.text for heard in ours.recognise(PREFIXED)]
    assert texts == [heard.text for heard in theirs.recognise(PREFIXED)]
    ours.close()
    theirs.close()


def test_a_prefix_is_cut_where_the_decoder_has_no_more_places(checkpoint):
    engine = on_torch.open_on_torch(checkpoint, contexts_s=[30.0])
    (heard,) = engine.recognise([Window(sound(30, 1), "zh", prefix="\u0939" * 600)])  # a token of each byte
    engine.close()
    assert 0 < sum(len(word.tokens) for word in heard.words) <= 448 // 2


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


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_a_window_does_not_depend_on_its_neighbours(reference, temperature):
    for window, heard in zip(PREFIXED, reference.recognise(PREFIXED, temperature), strict=True):
        same(reference.recognise([window], temperature)[0], heard)


def test_a_named_language_needs_no_run_of_its_own(reference, monkeypatch):
    runs, decode = [], type(reference.graphs._forward).decode

    def counted(self, inputs, outputs):
        runs.append(tuple(inputs["tokens"].shape))
        decode(self, inputs, outputs)

    monkeypatch.setattr(type(reference.graphs._forward), "decode", counted)
    for windows, opening in ((NAMED[3:4], [(1, 4)]), (MIXED[:1], [(1, 1), (1, 3)])):
        runs.clear()
        assert not windows[0].prompt
        reference.recognise(windows)
        assert runs[: len(opening)] == opening
        assert set(runs[len(opening) :]) == {(1, 1)}


def test_what_the_checkpoint_suppresses_is_not_written(checkpoint, reference):
    word = next(heard.words[0].text for heard in reference.recognise(WINDOWS) if heard.words)
    suppressing = on_torch.open_on_torch(checkpoint, suppressed=(reference._tokens.encode(word)[0],))
    assert word not in [one.text for heard in suppressing.recognise(WINDOWS) for one in heard.words]
    suppressing.close()


def test_log_sum_does_not_overflow():
    logits = np.array([[1000, 1000], [-1000, -np.inf]], np.float32)
    assert model.log_sum(logits) == pytest.approx([1000 + np.log(2), -1000])
