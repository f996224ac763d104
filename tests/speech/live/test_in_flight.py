"""Windows of many streams in flight together and tried again; answers that wait, or cannot be given."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest

from tests.doubles.waiting import wait_until
from tests.speech.live.rig import BOUND, Answer, BrokenAnswer, Recogniser
from trimodal.audio.values import SAMPLE_RATE, PolicyName
from trimodal.errors import Cancelled, InternalError, InvalidArgument, Unavailable
from trimodal.metrics import MemoryMetrics
from trimodal.speech.engines.fake import VOCABULARY, hear, speak
from trimodal.speech.live import service as module
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk, StreamOptions
from trimodal.speech.live.service import HUNG_S, LOOK_S, LOST_S, MAX_FAILURES, SpeechService
from trimodal.speech.session.vad import EnergyDetector
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition, Window


@pytest.mark.parametrize(("settings", "most"), [({}, 8), ({"max_windows_in_flight": 3}, 3)])
def test_windows_of_many_streams_are_in_flight_together_as_many_as_set(bench, settings, most):
    one = bench(**settings)
    one.recogniser.go.clear()
    for stream in range(1, 9):
        one.send(stream, start=True).wait()
    wait_until(lambda: one.recogniser.inside == most)
    assert one.metric("windows_in_flight", model="speech").value == most
    one.recogniser.go.set()
    for stream in range(1, 9):
        assert one.send(stream, end=True, seconds=0).wait().words() == " 0"
    assert one.recogniser.most == most


def test_a_stream_has_one_window_in_flight(bench):
    one = bench()
    one.recogniser.go.clear()
    one.send(start=True, seconds=5).wait()
    wait_until(lambda: one.recogniser.inside == 1)
    one.send(seconds=5).wait()
    one.recogniser.go.set()
    assert one.send(end=True, seconds=0).wait().error is None
    assert one.recogniser.most == 1
    assert one.recogniser.calls == 10


def test_answers_wait_while_too_much_is_not_heard(bench):
    one = bench(max_pending_s=5)
    one.recogniser.go.clear()
    one.send(start=True, seconds=5).wait()
    held = one.send(seconds=3)
    time.sleep(0.1)
    assert not held.given
    one.recogniser.go.set()
    assert held.wait().error is None


def test_a_stream_may_ask_for_answers_that_wait_until_it_is_heard(bench):
    one = bench(max_pending_s=5)
    one.recogniser.go.clear()
    patient = one.send(1, start=True, seconds=1, max_pending_s=0.0)
    greedy = one.send(2, start=True, seconds=8, max_pending_s=100.0)
    one.send(3, start=True, seconds=1).wait()
    time.sleep(0.1)
    assert not patient.given
    assert not greedy.given, "nobody gets more than the model's own limit"
    one.recogniser.go.set()
    assert patient.wait().words() == " 0"
    assert greedy.wait().error is None


def test_a_failed_window_is_heard_again(bench):
    one = bench()
    one.recogniser.errors = [Unavailable("no room"), RuntimeError("defect")]
    one.send(start=True).wait()
    assert one.send(end=True, seconds=0).wait().words() == " 0"
    assert one.metric("window_retries_total").value == 2


@pytest.mark.parametrize("policy", get_args(PolicyName))
def test_windows_that_fail_twice_are_the_same_the_third_time_and_nothing_is_lost(policy, monkeypatch):
    monkeypatch.setattr(module, "BACKOFF_S", 0.0)
    samples, said = speak([*VOCABULARY, 1.0, *VOCABULARY])
    asked: list[Sequence[Window]] = []

    def recogniser(windows: Sequence[Window]) -> list[Recognition]:
        asked.append(windows)
        if len(asked) % 3:
            raise Unavailable("no room")
        return [Recognition(hear(window.samples)) for window in windows]

    settings = SpeechSettings(policy=policy, max_windows_in_flight=1)
    service = SpeechService(settings, recogniser, lambda _: EnergyDetector(), SpeechMetrics(MemoryMetrics()))
    words = []
    try:
        for at in range(0, len(samples), SAMPLE_RATE):
            answer, end = Answer(), at + SAMPLE_RATE >= len(samples)
            service.submit(Chunk(1, samples[at : at + SAMPLE_RATE], at == 0, end, StreamOptions()), answer)
            words += answer.wait().update.committed
    finally:
        service.close()
    assert [word.text for word in words] == [word.text for word in said]
    assert all(asked[at] is asked[at + 1] is asked[at + 2] for at in range(0, len(asked), 3))


def test_a_recogniser_that_is_being_loaded_is_waited_for(bench, monkeypatch):
    monkeypatch.setattr("trimodal.speech.live.service.BACKOFF_S", 0.001)
    one = bench()
    loading = Unavailable("speech_recognize: the model 'speech_recognize' is not ready; try again later")
    one.recogniser.errors = [loading] * (MAX_FAILURES + 4)
    assert one.send(start=True, end=True).wait().error is None
    assert one.recogniser.calls == MAX_FAILURES + 5


def test_but_not_for_ever(bench, monkeypatch):
    monkeypatch.setattr("trimodal.speech.live.service.BACKOFF_S", 0.001)
    one = bench(recognizer_wait_s=0)
    one.recogniser.errors = [Unavailable("speech_recognize: not ready")] * MAX_FAILURES
    assert isinstance(one.send(start=True, end=True).wait().error, Unavailable)


def test_a_stream_that_cannot_be_heard_fails_with_the_recognisers_error(bench, monkeypatch):
    monkeypatch.setattr("trimodal.speech.live.service.BACKOFF_S", 0.01)
    one = bench()
    one.recogniser.errors = [InternalError("speech_recognize: broken")] * MAX_FAILURES
    other = one.send(2, start=True, seconds=0.5).wait()
    one.send(start=True).wait()
    wait_until(lambda: one.recogniser.calls == MAX_FAILURES)
    failed = one.send(end=True, seconds=0).wait()
    assert isinstance(failed.error, InternalError)
    assert "speech_recognize: broken" in str(failed.error)
    assert one.outcome("failed") == 1
    assert other.error is None
    assert one.send(2, end=True, seconds=1).wait().words() == " 0"


def test_a_recogniser_that_never_answers_fails_its_streams_and_those_that_wait_for_a_thread(bench):
    now = [0.0]
    one = bench(max_windows_in_flight=1, idle_s=600, clock=lambda: now[0])
    one.recogniser.go.clear()
    asked = one.send(1, start=True, end=True)
    wait_until(lambda: one.recogniser.inside == 1)
    now[0] += HUNG_S / 2
    waits = one.send(2, start=True, end=True)
    wait_until(lambda: one.service._windows._waiting)
    now[0] += HUNG_S / 2 + 1.0
    told = "speech_recognize has not answered for 61 s; try again later"
    assert (type(asked.wait().error), str(asked.error)) == (Unavailable, told)
    assert not waits.given
    now[0] += 10 * HUNG_S  # as where nobody looked for so long
    told = "speech_recognize has not answered for 631 s; try again later"
    assert (type(waits.wait().error), str(waits.error)) == (Unavailable, told)
    assert (one.open_streams, one.outcome("failed")) == (0, 2)
    one.recogniser.go.set()
    wait_until(lambda: one.recogniser.inside == 0)
    assert one.send(3, start=True, end=True).wait().words() == " 0"


def test_a_slow_recogniser_that_works_is_not_given_up(bench):
    """Of a burst on a fresh server the last calls took longer than a minute."""
    now = [0.0]
    one = bench(idle_s=600, clock=lambda: now[0])
    one.recogniser.gate = threading.Semaphore(0)
    answers = [one.send(stream, start=True, end=True, recording=True) for stream in range(1, 5)]
    wait_until(lambda: one.recogniser.inside == 4)
    for left in (3, 2, 1, 0):
        now[0] += HUNG_S * 0.7
        time.sleep(3 * LOOK_S)
        assert not any(answer.error for answer in answers)
        one.recogniser.gate.release()
        wait_until(lambda left=left: one.recogniser.inside == left)
        wait_until(lambda: one.service._windows.back == now[0])
    assert [answer.wait().words() for answer in answers] == [" 0"] * 4


def test_a_call_that_is_lost_alone_is_given_up_though_others_come_back(bench, monkeypatch):
    now, go_on = [0.0], threading.Event()
    one = bench(idle_s=3600, clock=lambda: now[0])

    def recogniser(windows: Sequence[Window]) -> list[Recognition]:
        if windows[0].language == "de":
            go_on.wait(BOUND)
        return one.recogniser(windows)

    monkeypatch.setattr(one.service, "_recogniser", recogniser)
    lost = one.send(1, start=True, end=True, language="de")
    wait_until(lambda: one.metric("windows_in_flight", model="speech").value == 1)
    while now[0] + HUNG_S / 2 < LOST_S:
        now[0] += HUNG_S / 2
        assert one.send(2, start=True, end=True).wait().words() == " 0"
        time.sleep(2 * LOOK_S)
        assert not lost.given
    now[0] = LOST_S + 1.0
    assert isinstance(lost.wait().error, Unavailable)
    go_on.set()


def test_nothing_more_is_heard_for_a_client_that_left(bench):
    one = bench()
    one.recogniser.gate = threading.Semaphore(0)
    one.send(start=True, seconds=5).wait()
    end = one.send(end=True, seconds=0)
    wait_until(lambda: one.recogniser.calls == 1)
    end.left = True
    one.recogniser.gate.release(5)
    assert isinstance(end.wait().error, Cancelled)
    assert (one.recogniser.calls, one.open_streams, one.outcome("left")) == (1, 0, 1)


def test_a_wrong_request_is_not_tried_again(bench):
    one = bench()
    one.recogniser.errors = [InvalidArgument("language: 'xx'; known are en")]
    one.send(start=True).wait()
    wait_until(lambda: one.recogniser.calls == 1)
    failed = one.send(seconds=0.5).wait()
    assert isinstance(failed.error, InvalidArgument)
    assert one.open_streams == 0


def test_a_wrong_request_does_not_make_the_recogniser_s_speed_unknown(bench):
    one = bench()
    one.send(1, start=True).wait()
    assert one.send(1, end=True, seconds=0).wait().words() == " 0"
    wait_until(lambda: one.service._windows.speed)
    one.recogniser.errors = [InvalidArgument("language: 'xx'; known are en")]
    assert isinstance(one.send(2, start=True, end=True).wait().error, InvalidArgument)
    assert one.service._windows.speed


def test_a_defect_of_a_session_is_told_without_details_and_harms_nobody(bench, caplog):
    one = bench()
    one.send(2, start=True, seconds=0.5).wait()
    failed = one.send(start=True, level=0.625).wait()
    assert isinstance(failed.error, InternalError)
    assert "defect" not in str(failed.error)
    assert "a defect of the session" in caplog.text
    assert one.send(2, end=True, seconds=0.5).wait().words() == " 0"


def test_no_answer_waits_for_a_window_that_only_more_audio_makes_due():
    # A speaker who does not pause is cut at 10 s; answers held from 5 s on would wait for each other.
    settings = SpeechSettings(policy="vad", max_pending_s=5, max_speech_duration_s=10)
    recogniser = Recogniser()
    metrics = SpeechMetrics(MemoryMetrics())
    service = SpeechService(settings, recogniser, lambda _: EnergyDetector(), metrics)
    sound = np.random.default_rng(0).uniform(-0.3, 0.3, SAMPLE_RATE).astype(np.float32)
    try:
        for second in range(12):
            answer = Answer()
            service.submit(Chunk(1, sound, second == 0, second == 11, StreamOptions()), answer)
            assert answer.wait().error is None
    finally:
        service.close()
    assert recogniser.calls == 2


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_that_cannot_be_given_ends_its_stream_and_no_thread(bench, caplog, fails):
    one = bench(max_windows_in_flight=1, max_pending_s=5)
    one.recogniser.go.clear()
    broken = BrokenAnswer()
    broken.fails = fails
    one.service.submit(Chunk(1, np.zeros(9 * SAMPLE_RATE, np.float32), True, False, StreamOptions()), broken)
    ahead = one.send()
    one.recogniser.go.set()  # the answer is given by the only thread that recognises windows
    assert isinstance(broken.wait().error, Unavailable)
    assert isinstance(ahead.wait().error, Unavailable)
    assert one.open_streams == 0
    assert "no room for the tensor" in caplog.text
    assert one.send(2, start=True, end=True).wait().words() == " 0"


def test_all_of_a_dropped_stream_are_answered_though_one_cannot_be(bench, caplog):
    one = bench(max_pending_s=5)
    one.recogniser.go.clear()
    broken = BrokenAnswer()
    broken.fails = True
    one.service.submit(Chunk(1, np.zeros(9 * SAMPLE_RATE, np.float32), True, False, StreamOptions()), broken)
    ahead = one.send()
    one.send(start=True, seconds=0.5).wait()
    assert isinstance(ahead.wait().error, Cancelled)
    assert "the sender is closed" in caplog.text


def test_no_answer_overtakes_the_one_before(bench):
    one = bench()
    order: list[float] = []
    writing, go = threading.Event(), threading.Event()

    class Slow(Answer):
        def answer(self, update, *, final: bool) -> None:
            if not order and not writing.is_set():
                writing.set()
                assert go.wait(BOUND)
            order.append(update.received_s)
            super().answer(update, final=final)

    answers = [Slow(), Slow()]
    half = np.zeros(SAMPLE_RATE // 2, np.float32)
    one.service.submit(Chunk(1, half, True, False, StreamOptions()), answers[0])
    assert writing.wait(BOUND)
    one.service.submit(Chunk(1, half, False, True, StreamOptions()), answers[1])
    time.sleep(0.1)
    go.set()
    assert [answer.wait().error for answer in answers] == [None, None]
    assert order == [0.5, 1.0]


@pytest.mark.parametrize("somebody_speaks", [False, True])
def test_a_recordings_windows_are_heard_by_two_unless_somebody_speaks(somebody_speaks):
    samples, said = speak([*VOCABULARY, 1.0] * 40)
    begin, sizes = threading.Event(), []

    def recogniser(windows: Sequence[Window]) -> list[Recognition]:
        begin.wait(BOUND)
        sizes.append(len(windows))
        return [Recognition(hear(window.samples)) for window in windows]

    settings = SpeechSettings(policy="file")
    service = SpeechService(settings, recogniser, lambda _: EnergyDetector(), SpeechMetrics(MemoryMetrics()))

    def send(stream: int, chunk: np.ndarray, start: bool, end: bool, **options: bool) -> Answer:
        answer = Answer()
        service.submit(Chunk(stream, chunk, start, end, StreamOptions(**options)), answer)
        return answer

    words, chunk = [], 10 * SAMPLE_RATE
    try:
        if somebody_speaks:
            send(2, np.zeros(chunk, np.float32), True, False).wait()
        for at in range(0, len(samples), chunk):
            end = at + chunk >= len(samples)
            if at == 9 * chunk:
                begin.set()
            words += send(1, samples[at : at + chunk], at == 0, end, recording=True).wait().update.committed
    finally:
        begin.set()
        service.close()
    assert [word.text for word in words] == [word.text for word in said]
    assert sizes[0] == 1
    assert (2 in sizes) is not somebody_speaks


def test_a_recogniser_that_takes_one_window_hears_them_one_by_one():
    samples, said = speak([*VOCABULARY, 1.0] * 40)

    def recogniser(windows: Sequence[Window]) -> list[Recognition]:
        if len(windows) > 1:
            raise InvalidArgument("speech_recognize: inference request batch-size must be <= 1")
        return [Recognition(hear(windows[0].samples))]

    settings = SpeechSettings(policy="file")
    service = SpeechService(settings, recogniser, lambda _: EnergyDetector(), SpeechMetrics(MemoryMetrics()))
    words, chunk = [], 30 * SAMPLE_RATE
    try:
        for at in range(0, len(samples), chunk):
            answer, options = Answer(), StreamOptions(recording=True)
            end = at + chunk >= len(samples)
            service.submit(Chunk(1, samples[at : at + chunk], at == 0, end, options), answer)
            words += answer.wait().update.committed
    finally:
        service.close()
    assert [word.text for word in words] == [word.text for word in said]


def test_a_recordings_answers_wait_for_no_window_that_is_out_with_the_next():
    samples, _ = speak([*VOCABULARY, 1.0] * 40)
    begin, first, out, over = (threading.Event() for _ in range(4))

    def recogniser(windows: Sequence[Window]) -> list[Recognition]:
        if not first.is_set():
            first.set()
            assert begin.wait(BOUND)
        else:
            out.set()
            assert over.wait(BOUND)
        return [Recognition(hear(window.samples)) for window in windows]

    settings = SpeechSettings(policy="file")
    service = SpeechService(settings, recogniser, lambda _: EnergyDetector(), SpeechMetrics(MemoryMetrics()))
    chunk, answers = 10 * SAMPLE_RATE, []
    try:
        for at in range(0, 20 * chunk, chunk):
            answers.append(Answer())
            options = StreamOptions(recording=True)
            service.submit(Chunk(1, samples[at : at + chunk], at == 0, False, options), answers[-1])
            if at == 12 * chunk:
                begin.set()
                assert out.wait(BOUND)
            if at >= 12 * chunk:
                assert answers[-1].wait().error is None
                break
            if not first.is_set() or at < 9 * chunk:
                answers[-1].wait()
    finally:
        begin.set()
        over.set()
        service.close()
