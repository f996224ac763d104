from trimodal.speech.session.policy import Kind, Stretch, Timeline, VadPolicy
from trimodal.speech.session.transcript import SpokenWord, Transcript
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

S = 16_000
SURE = 1536


def policy() -> VadPolicy:
    return VadPolicy(SpeechSettings(pause_s=0.5, max_window_s=10, speech_pad_s=0.2), Transcript())


def closed(start: int, end: int) -> SpeechSpan:
    return SpeechSpan(start, start + SURE, end, end + SURE)


def test_nothing_is_heard_before_the_pause_then_the_segment_with_its_pads() -> None:
    it, speech = policy(), [closed(S, 4 * S)]
    assert it.plan(Timeline(round(4.49 * S), False, speech)) is None
    planned = it.plan(Timeline(round(4.5 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(4.2 * S), round(4.5 * S), Kind.FINAL)
    assert it.plan(Timeline(9 * S, False, speech)) == planned  # the same however late it is asked for
    it.accept(planned, [SpokenWord("a", S, 2 * S)])
    assert (len(it.transcript.recent), it.tentative) == (1, ())
    assert it.plan(Timeline(99 * S, True, speech)) is None


def test_speech_without_a_pause_is_cut_at_a_word() -> None:
    it, speech = policy(), [SpeechSpan(S, S + SURE)]
    assert it.plan(Timeline(round(11.2 * S), False, speech)) is None
    planned = it.plan(Timeline(round(11.3 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(10.8 * S), round(11.3 * S), Kind.FULL)
    it.accept(planned, [SpokenWord("a", 9 * S, 10 * S), SpokenWord("b", 10 * S, round(10.8 * S))])
    assert [word.text for word in it.transcript.take()] == ["a"]
    following = it.plan(Timeline(30 * S, False, speech))
    assert following is not None
    assert following.start == 9 * S - S // 8


def test_a_pause_right_at_the_limit_is_seen_before_the_cut() -> None:
    it, speech = policy(), [closed(S, round(10.5 * S))]
    planned = it.plan(Timeline(round(11.3 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(10.7 * S), 11 * S, Kind.FINAL)


def test_a_segment_whose_window_said_nothing_is_settled() -> None:
    it, speech = policy(), [closed(S, 4 * S)]
    planned = it.plan(Timeline(9 * S, False, speech))
    assert planned is not None
    it.accept(planned, None)
    assert it.plan(Timeline(9 * S, False, speech)) is None
    assert it.unsettled(Timeline(9 * S, False, speech)) == 0


def test_a_pause_beyond_the_limit_is_left_to_the_next_window() -> None:
    it, speech = policy(), [closed(S, round(10.7 * S))]
    planned = it.plan(Timeline(round(11.2 * S), False, speech))
    assert planned == Stretch(round(0.8 * S), round(10.8 * S), round(11.2 * S), Kind.FULL)
    it.accept(planned, [SpokenWord("a", 9 * S, 10 * S), SpokenWord("b", 10 * S, round(10.7 * S))])
    last = it.plan(Timeline(round(11.2 * S), False, speech))
    assert last == Stretch(9 * S - S // 8, round(10.9 * S), round(11.2 * S), Kind.FINAL)
