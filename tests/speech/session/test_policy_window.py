from trimodal.speech.session.policy import Kind, Stretch, Timeline
from trimodal.speech.session.policy_window import WindowPolicy
from trimodal.speech.session.transcript import SpokenWord, Transcript
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

S = 16_000
SURE = 1536
SPEAKING = [SpeechSpan(S, S + SURE)]


def policy() -> WindowPolicy:
    return WindowPolicy(SpeechSettings(window_s=5, overlap_s=0.5, speech_pad_s=0.2), Transcript())


def closed(start: float, end: float) -> SpeechSpan:
    return SpeechSpan(round(start * S), round(start * S) + SURE, round(end * S), round(end * S) + SURE)


def word(text: str, start: float, end: float) -> SpokenWord:
    return SpokenWord(text, round(start * S), round(end * S))


def test_windows_have_their_length_and_overlap() -> None:
    it = policy()
    assert it.plan(Timeline(round(5.8 * S) - 1, False, SPEAKING)) is None
    first = it.plan(Timeline(60 * S, False, SPEAKING))
    assert first == Stretch(round(0.8 * S), round(5.8 * S), round(5.8 * S), Kind.FULL)
    it.accept(first, [])
    assert it.plan(Timeline(60 * S, False, SPEAKING)) == Stretch(
        round(5.3 * S), round(10.3 * S), round(10.3 * S), Kind.FULL
    )


def test_words_of_the_overlap_are_told_once() -> None:
    it = policy()
    first = it.plan(Timeline(60 * S, False, SPEAKING))
    assert first is not None
    it.accept(first, [word("a", 4, 4.9), word("b", 4.9, 5.4), word("cu", 5.4, 5.8)])
    assert [w.text for w in it.tentative] == ["cu"]
    second = it.plan(Timeline(60 * S, False, SPEAKING))
    assert second is not None
    assert second.start < 4.9 * S
    it.accept(second, [word("?", 4.8, 4.9), word("b", 4.95, 5.5), word("cut", 5.5, 6), word("d", 9, 9.2)])
    assert [w.text for w in it.transcript.take()] == ["a", "b", "cut", "d"]


def test_a_window_ends_in_a_silence_near_its_end() -> None:
    pausing = [closed(1, 5), SpeechSpan(round(5.6 * S), round(5.6 * S) + SURE)]
    first = policy().plan(Timeline(60 * S, False, pausing))
    assert first == Stretch(round(0.8 * S), round(5.2 * S), round(5.8 * S), Kind.FINAL)


def test_a_silence_that_was_not_known_at_the_windows_end_does_not_count() -> None:
    late = [SpeechSpan(S, S + SURE, round(5.3 * S), round(5.81 * S))]
    first = policy().plan(Timeline(60 * S, False, late))
    assert first is not None
    assert (first.end, first.kind) == (round(5.8 * S), Kind.FULL)


def test_silence_is_skipped() -> None:
    it = policy()
    spans = [closed(1, 2), closed(30, 31)]
    first = it.plan(Timeline(60 * S, False, spans))
    assert first == Stretch(round(0.8 * S), round(2.2 * S), round(5.8 * S), Kind.FINAL)
    it.accept(first, [word("a", 1, 2)])
    second = it.plan(Timeline(60 * S, False, spans))
    assert second is not None
    assert second.start == round(29.8 * S)


def test_the_last_window_ends_with_the_stream() -> None:
    ended = [SpeechSpan(S, S + SURE, 3 * S, 3 * S)]
    last = policy().plan(Timeline(3 * S, True, ended))
    assert last == Stretch(round(0.8 * S), 3 * S, 3 * S, Kind.FINAL)


def test_a_silence_far_from_the_windows_end_is_no_border() -> None:
    spans = [closed(1, 2), SpeechSpan(3 * S, 3 * S + SURE)]
    first = policy().plan(Timeline(60 * S, False, spans))
    assert first == Stretch(round(0.8 * S), round(5.8 * S), round(5.8 * S), Kind.FULL)


def test_a_border_keeps_away_from_the_next_onset() -> None:
    spans = [closed(1, 5), SpeechSpan(round(5.32 * S), round(5.32 * S) + SURE)]
    first = policy().plan(Timeline(60 * S, False, spans))
    assert first is not None
    assert first.end == round(5.16 * S)
