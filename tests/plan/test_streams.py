"""How many live streams a recogniser holds, by the windows that one stream asks for."""

from __future__ import annotations

import pytest

from trimodal.errors import OperatorError
from trimodal.plan.streams import Played, Step, lag_s, most_streams, play
from trimodal.speech.engines.fake import hear, speak
from trimodal.speech.session.vad import EnergyDetector
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition, Window


def steady(seconds: float, *, last: bool = True) -> Played:
    """A stream with a window each second, of this many seconds of work, whose word ended 0.5 s before."""
    return Played(20.0, [Step(n + 1.0, seconds, last, (n + 0.5,)) for n in range(20)])


def test_one_stream_lags_by_the_policys_delay_and_its_windows_time() -> None:
    assert lag_s(steady(0.25), 1, 0.95) == pytest.approx(0.75)


def test_a_recogniser_holds_the_streams_whose_work_it_can_do() -> None:
    """Windows that may not be left out, of a quarter of a second: four streams fill it."""
    assert 3 <= most_streams(steady(0.25), 2.0) <= 4
    assert lag_s(steady(0.25), 5, 0.95) > 5
    assert most_streams(steady(1.2), 2.0) == 0
    assert most_streams(steady(0.25), 0.7) == 0


def test_hypotheses_that_the_next_window_covers_are_left_out() -> None:
    """So that twice as many streams lag more and not ever more."""
    assert lag_s(steady(0.25, last=False), 8, 0.95) < 4
    assert most_streams(steady(0.25, last=False), 3.0) > most_streams(steady(0.25), 3.0)


def test_chunks_that_are_taken_in_leave_less_for_windows() -> None:
    busy, idle = steady(0.2), steady(0.2)
    busy.listening = 0.05
    assert lag_s(busy, 4, 0.95) > lag_s(idle, 4, 0.95)


def test_words_without_a_window_wait_for_no_other_stream() -> None:
    """But for their own stream's window, which is still being heard or waits."""
    idle = [Step(3.0, 0.0, True, (2.8,))]
    assert lag_s(Played(20.0, idle), 40, 1.0) == pytest.approx(0.2)
    heard_until_2 = [Step(1.0, 1.0, False, ()), Step(1.2, 0.0, True, (1.0,))]
    assert lag_s(Played(20.0, heard_until_2), 1, 1.0) == pytest.approx(1.0)
    assert lag_s(Played(20.0, heard_until_2), 8, 0.95) > 1.5


def test_a_recogniser_that_hears_nothing_holds_no_streams() -> None:
    with pytest.raises(OperatorError, match="no word was heard in 20 s"):
        most_streams(Played(20.0, [Step(1.0, 0.1, True, ())]), 3.0)


def test_words_that_a_pause_settles_are_booked_when_it_does() -> None:
    """Policy edge leaves a segment's last window out where a step has heard its words."""
    samples, said = speak([*["hello", "world"] * 4, 2.8, *["what", "is"] * 4, 0.6], lead_s=0.15)

    def recognise(window: Window) -> Recognition:
        return Recognition(hear(window.samples))

    played = play(samples, SpeechSettings(policy="edge"), EnergyDetector(), recognise)
    ends = [end for step in played.steps for end in step.ends]
    assert ends == pytest.approx([word.end for word in said], abs=0.05)
    settled = [step for step in played.steps if not step.seconds]
    assert len(settled) == 2, "neither segment needs its last window"
    assert max(step.moment - end for step in played.steps for end in step.ends) < 1.5


def test_a_stream_is_played_to_a_session_and_its_windows_timed() -> None:
    samples, said = speak([*["hello", "world"] * 4, 1.0, "please", 1.5])
    now = iter(range(100_000))

    def recognise(window: Window) -> Recognition:
        return Recognition(hear(window.samples))

    settings = SpeechSettings(policy="vad")
    played = play(samples, settings, EnergyDetector(), recognise, lambda: float(next(now)))
    assert played.length_s == pytest.approx(len(samples) / 16_000)
    assert {step.seconds for step in played.steps} == {1.0}
    assert [step.last for step in played.steps] == [True, True]
    ends = [end for step in played.steps for end in step.ends]
    assert ends == pytest.approx([word.end for word in said], abs=0.05)
    assert all(step.moment >= max(step.ends) for step in played.steps)
    assert played.listening > 0
