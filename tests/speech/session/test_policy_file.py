from itertools import pairwise

import numpy as np
import pytest

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.speech.session.policy import Kind, Timeline
from trimodal.speech.session.policy_file import FilePolicy
from trimodal.speech.session.transcript import SpokenWord, Transcript, on_stream
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

PAD = 0.4


def samples(*seconds):
    return tuple(round(one * SAMPLE_RATE) for one in seconds)


def span(start, end, known=None):
    start, end = samples(start, end)
    return SpeechSpan(start, start + 1536, end, end + 1536)


def policy(**settings):
    return FilePolicy(SpeechSettings(**{"speech_pad_ms": 1000 * PAD, **settings}), Transcript())


def planned(it, spans, received, *, ended=False):
    stretch = it.plan(Timeline(*samples(received), ended, spans))
    return stretch and [tuple(round(edge / SAMPLE_RATE, 3) for edge in part) for part in stretch.parts]


def said(start, end):
    """A word every second."""
    return [SpokenWord(f" {at}", *samples(at, min(at + 1, end))) for at in np.arange(start, end)]


def test_a_window_holds_speech_alone_and_waits_until_it_is_full_or_the_recording_ends():
    spans = [span(1, 3), span(3.2, 6), span(20, 24)]
    it = policy()
    assert planned(it, spans, 30) is None
    assert planned(it, spans, 30, ended=True) == [(0.6, 3.1), (3.1, 6.4), (19.6, 24.4)]


def test_a_silence_that_is_no_pause_is_heard_whole():
    it = policy(min_silence_duration_ms=2000)
    spans = [span(1, 3), span(4.8, 6), span(9, 12)]
    assert planned(it, spans, 30, ended=True) == [(0.6, 3.9), (3.9, 6.4), (8.6, 12.4)]


def test_a_full_window_is_cut_at_the_longest_pause_of_its_last_fifth():
    spans = [span(at, at + 3) for at in (0, 3.5, 7, 10.5, 14, 17.5, 21, 25, 28.5, 32)]
    it = policy()
    assert planned(it, spans, 40)[-1] == (20.75, 24.4)
    stretch = it.plan(Timeline(*samples(40), False, spans))
    assert stretch.kind is Kind.FINAL
    it.accept(stretch, ())
    assert planned(it, spans, 40, ended=True)[0] == (24.6, 28.25)


def test_speech_without_a_pause_is_cut_where_the_window_is_full():
    it = policy()
    stretch = it.plan(Timeline(*samples(60), False, [span(1, 2), span(5, 55)]))
    assert (stretch.kind, sum(end - start for start, end in stretch.parts)) == (Kind.FULL, 30 * SAMPLE_RATE)


def test_a_full_window_is_cut_in_a_short_silence_rather_than_in_speech():
    spans = [span(0, 8), span(8.1, 26), span(26.15, 33)]
    assert planned(policy(), spans, 40) == [(0, 8.05), (8.05, 26.075)]


def test_what_whisper_left_unheard_of_a_window_is_heard_in_the_next_once():
    it, spans = policy(), [span(0, 8), span(8.1, 16), span(16.5, 29)]
    stretch = it.plan(Timeline(*samples(30), True, spans))
    it.accept(stretch, [*said(0, 13), SpokenWord(" early", *samples(13.0, 14.0))])
    assert planned(it, spans, 30, ended=True) == [(14.0, 16.25), (16.25, 29.4)]
    it.accept(it.plan(Timeline(*samples(30), True, spans)), [SpokenWord(" again", *samples(14.5, 15.0))])
    assert planned(it, spans, 30, ended=True) is None
    assert [word.text for word in it.transcript.take()][13:] == [" early", " again"]


def test_of_windows_that_all_end_early_nothing_is_lost_and_nothing_is_heard_three_times():
    """whisper-tiny.en left a sentence out of a window that began with what the one before had left out."""
    it, spans = policy(), [span(at, at + 9.5) for at in range(0, 60, 10)]
    heard = []
    for first, last in ((0, 20.0), (20, 45.0), (45, 46.0)):
        stretch = it.plan(Timeline(*samples(70), True, spans))
        heard.append((stretch.start / SAMPLE_RATE, stretch.end / SAMPLE_RATE))
        it.accept(stretch, said(first, last))
    assert heard == [(0, 29.75), (20.0, 49.75), (45.0, 59.9)]
    assert planned(it, spans, 70, ended=True) == [(49.75, 59.9)], "of the second window's rest no more"
    it.accept(it.plan(Timeline(*samples(70), True, spans)), said(50, 51))
    assert planned(it, spans, 70, ended=True) is None


def hear(it, spans, *words):
    """Where the next window lies; its words are (text, start, end) on a clock that its pauses do not stop."""
    stretch = it.plan(Timeline(*samples(40), True, spans))
    start = stretch.start / SAMPLE_RATE
    assert all(one[1] == following[0] for one, following in pairwise(stretch.parts))
    spoken = [
        on_stream(Word(text, first - start, last - start, 1), stretch.parts) for text, first, last in words
    ]
    it.accept(stretch, spoken or None)
    return start, stretch.end / SAMPLE_RATE


def each_second(start, end):
    return [(f" {at}", at, at + 1) for at in range(start, end)]


SENTENCES = [span(at, at + 4.5) for at in (0, 5, 10, 15, 20)]


def test_what_whisper_left_out_of_a_window_is_heard_alone_and_what_follows_once_more():
    """whisper-tiny.en stretched a word over the two sentences before it."""
    it = policy()
    stretched = (" Mr.", 5, 14.9)
    assert hear(it, SENTENCES, *each_second(0, 4), stretched, *each_second(15, 24)) == (0, 24.9)
    assert hear(it, SENTENCES, *each_second(0, 8)) == (0, 9.75), "from the part of the word before"
    assert hear(it, SENTENCES, *each_second(10, 13), *each_second(18, 24), *each_second(24, 26)) == (
        9.75,
        24.9,
    )
    assert [int(word.text) for word in it.transcript.take()] == [*range(8), 10, 11, 12, *range(18, 26)]
    assert planned(it, SENTENCES, 40, ended=True) is None, "nothing a third time"


@pytest.mark.parametrize(("alone", "rest"), [([], []), (each_second(5, 7), each_second(20, 22))])
def test_of_what_is_heard_once_more_the_first_hearing_stays_where_it_had_more_words(alone, rest):
    """A second hearing that a guard rejects (here without words) has none."""
    it = policy()
    assert hear(it, SENTENCES, *each_second(0, 8), *each_second(15, 24)) == (0, 24.9)
    assert hear(it, SENTENCES, *alone) == (4.75, 14.75)
    assert hear(it, SENTENCES, *rest) == (14.75, 24.9)
    assert [int(word.text) for word in it.transcript.take()] == [*range(8), *range(15, 24)]
    assert planned(it, SENTENCES, 40, ended=True) is None


def test_silences_that_a_window_holds_are_not_left_out_speech():
    it, spans = policy(min_silence_duration_ms=10_000), [span(0, 2), span(9, 11), span(18, 20)]
    assert hear(it, spans, *each_second(0, 2), *each_second(9, 11), *each_second(18, 19)) == (0, 20.4)
    assert planned(it, spans, 40, ended=True) is None
    it, spans = policy(speech_pad_ms=5000), [span(6, 12)]
    assert hear(it, spans, *each_second(6, 11)) == (1, 17)
    assert planned(it, spans, 40, ended=True) is None, "nor is the pad behind a window's last word"


def test_a_short_rest_behind_the_last_word_is_no_reason_to_hear_again():
    it, spans = policy(), [span(0, 16)]
    it.accept(it.plan(Timeline(*samples(20), True, spans)), said(0, 14.5))
    assert planned(it, spans, 20, ended=True) is None


def test_a_window_that_does_not_become_full_is_closed_so_that_audio_is_not_kept_for_ever():
    it = policy()
    spans = [span(1, 3), span(59, 62)]
    assert planned(it, spans, 60) is None
    assert planned(it, spans, 61) == [(0.6, 3.4)]
    assert planned(it, spans, 300) == [(0.6, 3.4)], "whatever came since"


def test_words_lie_where_they_were_spoken():
    parts = (samples(10, 12), samples(20, 23))
    assert on_stream(Word(" a", 0.5, 1.5, 0.9), parts) == SpokenWord(" a", *samples(10.5, 11.5), 0.9)
    assert on_stream(Word(" b", 1.8, 3.0, 0.9), parts) == SpokenWord(" b", *samples(20, 21), 0.9)
    assert on_stream(Word(" c", 4.5, 9.0, 0.9), parts) == SpokenWord(" c", *samples(22.5, 23), 0.9)
