import pytest

from trimodal.speech.session.policy import (
    EDGE,
    Kind,
    Segment,
    SegmentPolicy,
    Stretch,
    Timeline,
    VadPolicy,
    first_segment,
)
from trimodal.speech.session.transcript import SpokenWord, Transcript
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

S = 16_000
PAUSE = S // 2
SURE = 1536  # samples until a detector is sure


def span(start: int, end: int | None = None) -> SpeechSpan:
    return SpeechSpan(start, start + SURE, end, None if end is None else end + SURE)


@pytest.mark.parametrize(
    ("spans", "received", "ended", "floor", "expected"),
    [
        pytest.param([], 9 * S, True, 0, None, id="silence"),
        pytest.param([span(S)], 2 * S, False, 0, Segment(S, S + SURE), id="speaking"),
        pytest.param([span(S, 2 * S)], 2 * S + 7999, False, 0, Segment(S, S + SURE), id="pause-too-short"),
        pytest.param(
            [span(S, 2 * S)], 2 * S + 8000, False, 0, Segment(S, S + SURE, 2 * S, 2 * S + 8000), id="pause"
        ),
        pytest.param(
            [span(S, 2 * S)], 2 * S + 5, True, 0, Segment(S, S + SURE, 2 * S, 2 * S + 5), id="end-is-a-pause"
        ),
        pytest.param(
            [span(S, 2 * S), span(2 * S + 5000)], 9 * S, False, 0, Segment(S, S + SURE), id="resumed-in-time"
        ),
        # Speech that began within the pause, but was known only after it, is the next segment's.
        pytest.param(
            [span(S, 2 * S), span(2 * S + 7000)], 9 * S, False, 0,
            Segment(S, S + SURE, 2 * S, 2 * S + 8000), id="resumed-too-late",
        ),
        pytest.param([SpeechSpan(S, S + SURE, 2 * S, 2 * S + 9000)], 9 * S, False, 0,
                     Segment(S, S + SURE, 2 * S, 2 * S + 9000), id="end-known-after-the-pause"),
        pytest.param([span(S, 2 * S), span(4 * S)], 9 * S, False, 2 * S,
                     Segment(4 * S, 4 * S + SURE), id="behind-the-floor"),
        pytest.param([span(S)], 9 * S, False, 3 * S, Segment(3 * S, S + SURE), id="floor-within-speech"),
    ],
)  # fmt: skip
def test_first_segment(spans, received: int, ended: bool, floor: int, expected: Segment | None) -> None:
    assert first_segment(Timeline(received, ended, spans), floor, PAUSE) == expected


def word(text: str, start: float, end: float) -> SpokenWord:
    return SpokenWord(text, round(start * S), round(end * S))


def policy() -> SegmentPolicy:
    return SegmentPolicy(SpeechSettings(speech_pad_ms=200), Transcript())


def full(start: float, end: float) -> Stretch:
    return Stretch(round(start * S), round(end * S), round(end * S), Kind.FULL)


def test_carrying_on_commits_whole_words_and_begins_before_the_last_of_them() -> None:
    it = policy()
    edge = 10 - EDGE / S
    it.carry_on(full(0, 10), [word("a", 1, 2), word("b", 9, edge), word("c", edge, 10)])
    assert [w.text for w in it.transcript.take()] == ["a", "b"]
    assert [w.text for w in it.tentative] == ["c"]
    assert it.floor == 9 * S - S // 8


def test_carrying_on_overlaps_and_goes_on() -> None:
    quiet = policy()
    quiet.carry_on(full(0, 10), [])
    assert quiet.floor == 9.5 * S

    early = policy()
    early.carry_on(full(0, 10), [word("a", 1, 2)])
    assert early.floor == 7.5 * S  # no further back: the next window must be able to get on

    endless = policy()
    endless.carry_on(full(0, 2), [word("a", 0, 2)])
    assert (endless.transcript.take(), endless.floor) == ((), S)


def test_a_word_too_long_to_be_heard_again_is_not_lost() -> None:
    it = policy()
    it.carry_on(full(0, 10), [word("a", 0.2, 0.6), word("long", 1, 9.9)])
    assert ([w.text for w in it.transcript.recent], it.tentative) == (["a", "long"], ())
    assert it.floor == it.transcript.end == round(7.5 * S)
    after = [word("b", 7.6, 8.0), word("c", 9, 9.5)]
    assert it.new_words(full(7.5, 17.5), after) == tuple(after)


def test_words_that_wait_are_committed_when_their_speech_is_over() -> None:
    it = policy()
    it.carry_on(full(0, 10), [word("a", 9.5, 10)])
    assert it.segment(Timeline(11 * S, False, [span(0, 9 * S)])) is None
    assert [w.text for w in it.transcript.take()] == ["a"]
    assert it.tentative == ()


def test_unsettled_is_speech_that_is_not_committed() -> None:
    it = policy()
    speaking = Timeline(10 * S, False, [span(4 * S)])
    assert it.unsettled(Timeline(10 * S, False, [])) == 0
    assert it.unsettled(speaking) == 6.2 * S
    it.transcript.commit([word("a", 5, 7)])
    assert it.unsettled(speaking) == 3 * S
    it.floor = 9 * S
    assert it.unsettled(speaking) == S


def test_needed_keeps_an_onset_that_is_not_known_yet() -> None:
    it = policy()
    assert it.needed(Timeline(10 * S, False, []), S // 2) == 9.5 * S
    assert it.needed(Timeline(10 * S, False, [span(4 * S)]), S // 2) == 3.8 * S
    it.floor = 5 * S
    assert it.needed(Timeline(10 * S, False, [span(4 * S)]), S // 2) == 5 * S


# Policy vad: a segment at once, when its speaker pauses


def vad() -> VadPolicy:
    return VadPolicy(
        SpeechSettings(min_silence_duration_ms=500, max_speech_duration_s=10, speech_pad_ms=200), Transcript()
    )


def closed(start: float, end: float) -> SpeechSpan:
    return span(round(start * S), round(end * S))


def test_nothing_is_heard_before_the_pause_then_the_segment_with_its_pads() -> None:
    it, speech = vad(), [closed(1, 4)]
    assert it.plan(Timeline(round(4.49 * S), False, speech)) is None
    planned = it.plan(Timeline(round(4.5 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(4.2 * S), round(4.5 * S), Kind.FINAL)
    assert it.plan(Timeline(9 * S, False, speech)) == planned  # the same however late it is asked for
    it.accept(planned, [SpokenWord("a", S, 2 * S)])
    assert (len(it.transcript.recent), it.tentative) == (1, ())
    assert it.plan(Timeline(99 * S, True, speech)) is None


def test_speech_without_a_pause_is_cut_at_a_word() -> None:
    it, speech = vad(), [SpeechSpan(S, S + SURE)]
    assert it.plan(Timeline(round(11.2 * S), False, speech)) is None
    planned = it.plan(Timeline(round(11.3 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(10.8 * S), round(11.3 * S), Kind.FULL)
    it.accept(planned, [SpokenWord("a", 9 * S, 10 * S), SpokenWord("b", 10 * S, round(10.8 * S))])
    assert [word.text for word in it.transcript.take()] == ["a"]
    following = it.plan(Timeline(30 * S, False, speech))
    assert following is not None
    assert following.start == 9 * S - S // 8


def test_a_pause_right_at_the_limit_is_seen_before_the_cut() -> None:
    it, speech = vad(), [closed(1, 10.5)]
    planned = it.plan(Timeline(round(11.3 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(10.7 * S), 11 * S, Kind.FINAL)


def test_a_pause_beyond_the_limit_is_left_to_the_next_window() -> None:
    it, speech = vad(), [closed(1, 10.7)]
    planned = it.plan(Timeline(round(11.2 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(10.8 * S), round(11.2 * S), Kind.FULL)
    it.accept(planned, [SpokenWord("a", 9 * S, 10 * S), SpokenWord("b", 10 * S, round(10.7 * S))])
    last = it.plan(Timeline(round(11.2 * S), False, speech))
    assert last == Stretch(9 * S - S // 8, round(10.9 * S), round(11.2 * S), Kind.FINAL)
