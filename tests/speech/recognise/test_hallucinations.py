from dataclasses import replace

import pytest

from trimodal.audio.values import Word
from trimodal.speech.recognise.hallucinations import GUARDS, best, doubted_by, is_repetition
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Recognition
from trimodal.speech.whisper.word_timestamps import compression_ratio

SETTINGS = RecogniseSettings(artefact="x")


def heard(text, rate=3.0, **figures):
    """Words at so many a second, as sure of themselves as good speech is."""
    words = tuple(Word(f" {word}", at / rate, (at + 1) / rate, 0.9) for at, word in enumerate(text.split()))
    figures = {"average_log_probability": -0.2, "compression_ratio": compression_ratio(text)} | figures
    return Recognition(words, no_speech_probability=figures.pop("no_speech", 0.01), **figures)


@pytest.mark.parametrize(
    "text",
    [
        "what is a lambda",
        "explain the while statement and then explain the for statement",
        "one two three one two three",
        "nine nine nine nine",
        "yes",
        "",
    ],
)
def test_speech_is_believed(text):
    assert doubted_by(heard(text), SETTINGS) == ""


@pytest.mark.parametrize(
    ("one", "guard"),
    [
        (heard("thank you", no_speech=0.9, average_log_probability=-1.2), "silence"),
        (heard("thank you", no_speech=0.9, average_log_probability=-0.9), ""),
        (heard("thank you", no_speech=0.5, average_log_probability=-1.2), "probability"),
        (heard("thank you", no_speech=0.5, average_log_probability=-1.0), ""),
        (heard("thank you " * 12), "compression"),
        (heard("thank you " * 12, rate=8), "repetition"),
        (heard("the a of to in is it you that he was for on are", rate=14), "repetition"),
        (heard("thank you", compression_ratio=2.5), "compression"),
        (heard("", no_speech=1.0, average_log_probability=-9.0), ""),
    ],
)
def test_each_guard_and_its_threshold(one, guard):
    assert doubted_by(one, SETTINGS) == guard
    assert guard in ("", *GUARDS)


@pytest.mark.parametrize(
    ("change", "guard"),
    [
        ({}, "silence"),
        ({"no_speech_threshold": 0.95}, "probability"),
        ({"log_prob_threshold": -2.0}, ""),
        ({"log_prob_threshold": -2.0, "compression_ratio_threshold": 1.0}, "compression"),
    ],
)
def test_the_settings_move_the_thresholds(change, guard):
    one = heard("thank you", no_speech=0.9, average_log_probability=-1.2, compression_ratio=1.2)
    assert doubted_by(one, SETTINGS.model_copy(update=change)) == guard


@pytest.mark.parametrize(
    ("text", "rate", "looping"),
    [
        ("no " * 8, 6, True),
        ("no " * 7, 6, False),
        ("no " * 20, 4, False),
        ("well I " + "mean it " * 5 + "now", 6, True),
        ("one two three four five six " * 3, 6, True),
        ("one two three four five six " * 2, 6, False),
    ],
)
def test_a_loop_is_a_phrase_again_and_again_faster_than_it_is_spoken(text, rate, looping):
    assert is_repetition(heard(text, rate)) is looping


def test_a_loop_in_the_midst_of_slow_speech_is_found():
    slow = heard("so this is what he said", rate=2)
    end = slow.words[-1].end
    loop = tuple(Word(" ha", end + at * 0.02, end + at * 0.02 + 0.02, 0.5) for at in range(9))
    assert is_repetition(replace(slow, words=slow.words + loop))


@pytest.mark.parametrize("words", [["no"] * 30, ["No,", "no,"] * 15])
def test_words_without_length_are_a_loop(words):
    stuck = Recognition(tuple(Word(f" {word}", 1.0, 1.0, 0.5) for word in words))
    assert is_repetition(stuck)


@pytest.mark.parametrize(
    ("language", "text", "rate"),
    [
        pytest.param("th", "สวัสดีครับวันนี้อากาศดีมากเลยนะครับ", 15.0, id="thai-characters"),
        pytest.param("ja", "はいはいはいはいはいわかりました", 8.0, id="said-five-times"),
    ],
)
def test_characters_are_faster_than_words(language, text, rate):
    characters = heard(" ".join(text), rate=rate, compression_ratio=1.5)
    assert is_repetition(characters)
    assert doubted_by(replace(characters, language=language), SETTINGS) == ""
    assert is_repetition(replace(heard(" ".join("はい" * 20), rate=40.0), language=language))


@pytest.mark.parametrize("text", ["thank you " * 5, "the a of to in is it you that he was for on are"])
def test_a_translations_words_are_english(text):
    japanese = replace(heard(text, rate=14), language="ja", compression_ratio=1.5)
    assert doubted_by(japanese, SETTINGS) == ""
    assert doubted_by(japanese, SETTINGS, translated=True) == "repetition"


def test_the_best_of_doubted_decodings_is_the_likeliest_that_does_not_loop():
    def doubted(text, guard, log_probability):
        return replace(heard(text, average_log_probability=log_probability), doubted=guard)

    loop, unsure = doubted("la la", "compression", -0.1), doubted("a", "probability", -1.1)
    worse = doubted("b", "probability", -2)
    assert best([loop, worse, unsure]) is unsure
    assert best([doubted("ha", "repetition", -0.5), loop]) is loop
