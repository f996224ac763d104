import numpy as np
import pytest

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.speech.whisper.word_timestamps import (
    compression_ratio,
    most_tokens,
    timed_words,
    token_starts,
    without_silence_before,
)


def timed(pieces, starts, seconds=5.0, probabilities=None):
    """(text, start, end) of each word; a piece without a count is one token."""
    pieces = [piece if isinstance(piece, tuple) else (piece, 1) for piece in pieces]
    tokens = sum(count for _, count in pieces)
    words = timed_words(
        pieces,
        np.array(starts, float),
        probabilities if probabilities is not None else [0.5] * tokens,
        round(seconds * SAMPLE_RATE),
    )
    return [(word.text, round(word.start, 3), round(word.end, 3)) for word in words]


def test_a_token_begins_where_the_path_first_meets_it():
    texts = [0, 0, 0, 1, 1, 2, 3, 3]
    times = [0, 1, 2, 3, 4, 4, 5, 6]
    np.testing.assert_allclose(token_starts(texts, times, 3), [0.0, 0.06, 0.08, 0.1])


def test_a_window_too_short_for_a_path_has_its_tokens_at_zero():
    np.testing.assert_array_equal(token_starts([], [], 2), [0, 0, 0])


def test_words_take_the_time_of_their_tokens_and_the_mean_of_their_probabilities():
    words = timed_words(
        [(" hello", 2), (" world", 1)], np.array([0.5, 0.7, 0.9, 1.3]), [0.2, 0.4, 0.9], 80_000
    )
    assert [(word.text, word.start, word.end) for word in words] == [
        (" hello", 0.5, 0.9),
        (" world", 0.9, 1.3),
    ]
    assert [word.probability for word in words] == pytest.approx([0.3, 0.9])


def test_punctuation_joins_its_word_and_leaves_its_times():
    assert timed([" “", "one", ",", " two", "?"], [0, 0.1, 0.4, 0.5, 0.9, 1.0]) == [
        (" “one,", 0.1, 0.4),
        (" two?", 0.5, 0.9),
    ]


def test_space_is_not_a_word():
    assert timed([" ", "你", "好"], [0, 0.1, 0.3, 0.5]) == [(" 你", 0.1, 0.3), ("好", 0.3, 0.5)]
    assert timed(["你", " ", "好"], [0, 0.1, 0.3, 0.5]) == [("你 ", 0, 0.1), ("好", 0.3, 0.5)]
    assert timed([" one", " ", " two"], [0, 0.1, 0.3, 0.5]) == [(" one", 0, 0.1), (" two", 0.3, 0.5)]
    assert timed([" "], [0, 0.5]) == []
    assert timed([], [0]) == []


def test_a_pause_after_a_sentence_is_not_part_of_the_next_word():
    words = timed([" one", ".", " two", " three"], [0.2, 0.4, 0.5, 3.0, 3.2, 3.4])
    assert words == [(" one.", 0.2, 0.4), (" two", 2.6, 3.0), (" three", 3.0, 3.2)]


def test_a_pause_at_a_windows_edge_is_not_part_of_a_word():
    words = timed([" one", " two", " three", " a", " b"], [0.0, 2.0, 2.2, 2.5, 2.6, 4.9])
    assert words[0] == (" one", 1.3, 2.0)
    assert words[1:4] == [(" two", 2.0, 2.2), (" three", 2.2, 2.5), (" a", 2.5, 2.6)]
    assert words[4] == (" b", 2.6, 3.3)


def test_words_stay_in_the_window_and_in_order():
    words = timed([" a", " b", " c", " d"], [0.3, 0.3, 0.2, 0.9, 1.4], seconds=0.5)
    starts_and_ends = [time for _, start, end in words for time in (start, end)]
    assert starts_and_ends == sorted(starts_and_ends)
    assert max(starts_and_ends) == 0.5
    assert [text for text, _, _ in words] == [" a", " b", " c", " d"]


def test_a_bound_on_tokens_grows_with_the_window():
    assert most_tokens(0.02) == 16
    assert most_tokens(30.0) == 316


def test_a_language_that_is_spelled_in_parts_of_letters_has_more_tokens():
    # 2.5 words a second of 6 tokens each, through ten seconds.
    assert most_tokens(10.0, "hi") > 150 > most_tokens(10.0, "en")


def test_repetition_compresses():
    assert compression_ratio("") == 0
    assert compression_ratio(" what is a lambda") < 1
    assert compression_ratio(" thank you" * 20) > 8


def heard_at(pause_s, noise=0.0):
    """A second of audio whose sound begins after a pause, and two words, the first given the pause, too."""
    times = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    samples = np.random.default_rng(0).normal(0, noise, SAMPLE_RATE) + 0.3 * np.sin(2000 * times) * (
        times >= pause_s
    )
    words = (Word(" one", 0.0, 0.7, 0.9), Word(" two", 0.7, 0.95, 0.8))
    return words, samples.astype(np.float32)


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("pause_s", [0.1, 0.33, 0.6])
def test_the_first_word_begins_where_sound_begins(pause_s, noise):
    words, samples = heard_at(pause_s, noise)
    first, second = without_silence_before(words, samples)
    assert first.start == pytest.approx(pause_s, abs=0.021)
    assert (first.text, first.end, first.probability, second) == (" one", 0.7, 0.9, words[1])


@pytest.mark.parametrize("pause_s", [0.0, 0.02, 0.04])
def test_a_word_cut_by_the_windows_edge_begins_with_it(pause_s):
    words, samples = heard_at(pause_s)
    assert without_silence_before(words, samples) == words


@pytest.mark.parametrize("samples", [np.zeros(SAMPLE_RATE), np.full(SAMPLE_RATE, 0.1), heard_at(2, 0.1)[1]])
def test_without_a_sound_that_begins_nothing_changes(samples):
    words, _ = heard_at(0)
    assert without_silence_before(words, samples.astype(np.float32)) == words
    assert without_silence_before((), samples.astype(np.float32)) == ()


def test_a_click_before_a_word_is_not_its_beginning():
    words, samples = heard_at(0.5)
    samples[1600:1610] = 0.5
    assert without_silence_before(words, samples)[0].start == pytest.approx(0.5, abs=0.021)


def test_words_too_short_to_hold_silence_are_left():
    _, samples = heard_at(0.5)
    words = (Word(" one", 0.4, 0.44, 0.9), Word(" two", 0.44, 0.44, 0.9))
    assert without_silence_before(words, samples) == words
