from trimodal.speech.session.policy import Kind, Stretch, Timeline
from trimodal.speech.session.policy_agreement import LivePolicy
from trimodal.speech.session.transcript import SpokenWord, Transcript
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

S = 16_000
SURE = 1536


def policy() -> LivePolicy:
    return LivePolicy(SpeechSettings(step_s=1, max_step_s=5, pause_s=0.5, speech_pad_s=0.2), Transcript())


def closed(start: float, end: float) -> SpeechSpan:
    return SpeechSpan(round(start * S), round(start * S) + SURE, round(end * S), round(end * S) + SURE)


def test_a_pause_settles_the_segment_at_once() -> None:
    it, spans = policy(), [closed(0.3, 1.2)]
    step = it.plan(Timeline(S, False, [SpeechSpan(round(0.3 * S), 7000)]))
    assert step is not None
    it.accept(step, [SpokenWord("one", 5000, 9000), SpokenWord("tw", 15_000, 16_000)])
    assert it.plan(Timeline(round(1.7 * S) - 1, False, spans)) is None
    planned = it.plan(Timeline(round(1.7 * S), False, spans))
    assert planned == Stretch(round(0.1 * S), round(1.4 * S), round(1.7 * S), Kind.FINAL)
    it.accept(planned, [SpokenWord("one", 5000, 9000), SpokenWord("two", 15_000, 19_000)])
    assert [word.text for word in it.transcript.take()] == ["one", "two"]


def test_no_window_is_needed_when_the_last_step_heard_the_pause() -> None:
    it, spans = policy(), [closed(0.3, 0.75)]
    step = it.plan(Timeline(S, False, spans))
    assert step == Stretch(round(0.1 * S), S, S, Kind.STEP)
    it.accept(step, [SpokenWord("one", 5000, 12_000)])
    assert it.transcript.count == 0
    assert it.plan(Timeline(round(1.25 * S), False, spans)) is None
    assert it.transcript.count == 1
    assert it.unsettled(Timeline(round(1.25 * S), False, spans)) == 0


def test_a_segment_that_needs_no_window_does_not_hide_the_next() -> None:
    it, spans = policy(), [closed(0.3, 0.75), closed(2, 3)]
    step = it.plan(Timeline(S, False, spans))
    assert step is not None
    it.accept(step, [SpokenWord("one", 5000, 12_000)])
    following = it.plan(Timeline(4 * S, True, spans))
    assert following is not None
    assert (it.transcript.count, following.start) == (1, round(1.8 * S))


def test_a_window_that_was_not_believed_is_heard_again_at_the_pause() -> None:
    it, spans = policy(), [closed(0.3, 0.75)]
    step = it.plan(Timeline(S, False, spans))
    assert step is not None
    it.accept(step, None)
    final = it.plan(Timeline(2 * S, False, spans))
    assert final is not None
    assert final.kind is Kind.FINAL


def test_far_behind_a_segment_that_is_here_is_heard_once() -> None:
    planned = policy().plan(Timeline(60 * S, False, [closed(0.3, 4.8)]))
    assert planned == Stretch(round(0.1 * S), 5 * S, round(5.3 * S), Kind.FINAL)
