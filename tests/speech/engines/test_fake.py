from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from trimodal.audio.values import SAMPLE_RATE
from trimodal.speech.engines.fake import WORD_S, FakeWhisper, hear, speak
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window


def test_a_number_is_a_pause():
    _, said = speak(["one", 1.5, "two"], gap_s=0.1, lead_s=0.5)
    assert [(word.text, word.start) for word in said] == [(" one", 0.5), (" two", 0.5 + WORD_S + 0.1 + 1.5)]


@pytest.mark.parametrize("cut", [4001, 9999, 12345, 15000, 16160, 20021])
def test_a_stream_cut_anywhere_has_each_word_once(cut):
    samples, said = speak(["what", "is", "a", "lambda", "what"])
    heard = [*hear(samples[:cut]), *(word.shifted(cut / SAMPLE_RATE) for word in hear(samples[cut:]))]
    assert [word.text for word in heard] == [word.text for word in said]
    for word, other in zip(heard, said, strict=True):
        assert other.start - 1e-3 <= word.start
        assert word.end <= other.end + 1e-3


def test_a_word_of_which_less_than_half_is_there_is_not_heard():
    samples, (word,) = speak(["one"], lead_s=0.1)
    begin, length = round(word.start * SAMPLE_RATE), round(WORD_S * SAMPLE_RATE)
    assert len(hear(samples[: begin + length // 2 - 10])) == 0
    assert len(hear(samples[: begin + length // 2 + 10])) == 1


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(16_000, np.float32),
        np.random.default_rng(0).normal(0, 0.2, 16_000).astype(np.float32),
        np.full(16_000, 0.5, np.float32),
        np.sin(2 * np.pi * 250 * np.arange(16_000) / SAMPLE_RATE).astype(np.float32),
        np.zeros(1, np.float32),
    ],
    ids=["silence", "noise", "DC", "between two words", "one sample"],
)
def test_nothing_is_heard_in_what_nobody_said(samples):
    (heard,) = FakeWhisper().recognise([Window(samples)])
    assert heard.words == ()
    assert heard.no_speech_probability > 0.6


def test_a_word_that_is_not_in_the_vocabulary_cannot_be_said():
    with pytest.raises(ValueError, match="not in"):
        speak(["fish"])
    with pytest.raises(ValueError, match="does not part two words"):
        speak(["one"], gap_s=0.001)


def test_a_run_costs_what_the_settings_say(monkeypatch):
    slept = []
    monkeypatch.setattr("trimodal.speech.engines.fake.time", SimpleNamespace(sleep=slept.append))
    settings = RecogniseSettings(artefact="x", engine="fake", fake_batch_ms=20, fake_window_ms=10)
    engine = open_engine(Path("none"), settings)
    heard = engine.recognise([Window(speak(["one", "two"])[0])] * 3)
    assert slept == [pytest.approx(0.05)]
    assert [one.text for one in heard] == [" one two"] * 3
    engine.close()
