"""Streams through the service: answers, windows in flight, failures, crowds, and clients that go away.

Sessions are scripted here: a window is due for every full second of audio, and hearing it
commits one word. What real sessions cut and commit is tested beside them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from trimodal.errors import Cancelled, InternalError, InvalidArgument, RequestError, Unavailable
from trimodal.metrics import MemoryMetrics
from trimodal.speech import service as module
from trimodal.speech.carrier import MAX_FAILURES
from trimodal.speech.metrics import SpeechMetrics
from trimodal.speech.request import Chunk, StreamOptions
from trimodal.speech.service import SpeechService
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.vad import EnergyDetector
from trimodal.speech.values import SAMPLE_RATE, Recognition, Window, Word

BOUND = 10.0


class ScriptedSession:
    """A window for every full second; what is heard in it is committed."""

    made: list[ScriptedSession] = []

    def __init__(self, settings, *, policy, language, prompt, detector) -> None:
        self.settings, self.policy, self.language, self.prompt = settings, policy, language, prompt
        self.received = self.planned = self.heard = 0
        self.outstanding = self.ended = False
        self.fresh: list[Word] = []
        ScriptedSession.made.append(self)

    received_s = property(lambda self: self.received / SAMPLE_RATE)
    speech_s = property(lambda self: self.received / SAMPLE_RATE / 2)
    pending_s = property(lambda self: self.received_s - self.heard)
    waiting = property(lambda self: self.outstanding or self.heard + 1 <= self.received_s)
    behind_s = property(lambda self: self.received_s - self.heard - 1 if self.waiting else 0.0)
    finished = property(
        lambda self: self.ended and not self.outstanding and self.heard >= int(self.received_s)
    )

    def feed(self, samples) -> None:
        if len(samples) and samples[0] == 0.625:
            raise ArithmeticError("a defect of the session")
        self.received += len(samples)

    def end(self) -> None:
        self.ended = True

    def next_window(self):
        if self.outstanding or self.heard + 1 > self.received_s:
            return None
        self.outstanding = True
        return SimpleNamespace(window=Window(np.zeros(8, np.float32), self.language, str(self.heard)))

    def accept(self, planned, heard) -> tuple[Word, ...]:
        self.outstanding = False
        words = tuple(word.shifted(self.heard) for word in heard.words)
        self.heard += 1
        self.fresh += words
        return words

    def give_up(self, planned) -> None:
        self.outstanding = False

    def take(self):
        fresh, self.fresh = tuple(self.fresh), []
        return SimpleNamespace(committed=fresh, tentative=(), received_s=self.received_s, lag_s=0.0)


class Recognizer:
    """Says the window's prompt as its word; may be held, may fail."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.errors: list[Exception] = []
        self.gate: threading.Semaphore | None = None  # lets one call through for each release
        self.lock = threading.Lock()
        self.inside = self.most = self.calls = 0

    def __call__(self, window: Window) -> Recognition:
        with self.lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            error = self.errors.pop(0) if self.errors else None
        try:
            assert self.go.wait(BOUND)
            assert self.gate is None or self.gate.acquire(timeout=BOUND)
            if error:
                raise error
            return Recognition((Word(f" {window.prompt}", 0.25, 0.75, 1.0),))
        finally:
            with self.lock:
                self.inside -= 1


class Answer:
    """One request's sink; a second answer is a defect."""

    def __init__(self) -> None:
        self.update = self.error = self.final = None
        self.times = 0
        self._ended = threading.Event()

    def answer(self, update, *, final: bool) -> None:
        self.update, self.final = update, final
        self.times += 1
        self._ended.set()

    def fail(self, error: RequestError) -> None:
        self.error = error
        self.times += 1
        self._ended.set()

    @property
    def given(self) -> bool:
        return self._ended.is_set()

    def wait(self) -> Answer:
        assert self._ended.wait(BOUND), "no answer"
        return self

    def words(self) -> str:
        assert self.error is None, self.error
        return "".join(word.text for word in self.update.committed)


class Bench:
    """A service on scripted sessions, and how tests talk to it."""

    def __init__(self, settings: dict, idle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.recognizer, self.metrics = Recognizer(), MemoryMetrics()
        self.service = SpeechService(
            SpeechSettings(**settings),
            self.recognizer,
            lambda: None,
            SpeechMetrics(self.metrics),
            idle_s=idle_s,
            clock=clock,
        )

    def send(self, stream=1, seconds=1.0, *, start=False, end=False, level=0.0, **options) -> Answer:
        samples = np.full(round(seconds * SAMPLE_RATE), level, np.float32)
        answer = Answer()
        self.service.submit(Chunk(stream, samples, start, end, StreamOptions(**options)), answer)
        return answer

    def metric(self, name: str, **labels: str):
        return self.metrics.get(f"trimodal_speech_{name}", labels)

    def outcome(self, name: str) -> float:
        return self.metric("streams_total", outcome=name).value


@pytest.fixture
def bench(monkeypatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.setattr(module, "LiveSession", ScriptedSession)
    ScriptedSession.made.clear()
    benches: list[Bench] = []

    def make(idle_s: float = 60.0, clock=time.monotonic, **settings) -> Bench:
        benches.append(Bench(settings, idle_s, clock))
        return benches[-1]

    yield make
    for one in benches:
        one.recognizer.go.set()
        one.service.close()
        assert one.metric("active_requests", model="speech").value == 0
    assert not [t for t in threading.enumerate() if t.name.startswith(("window-", "listener", "sweeper"))]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def test_a_chunk_is_answered_before_anything_is_heard(bench):
    one = bench()
    one.recognizer.go.clear()
    assert one.send(start=True).wait().words() == ""
    assert one.send(seconds=0.5).wait().update.received_s == 1.5


def test_the_answer_to_end_has_everything(bench):
    one = bench()
    first = one.send(start=True, seconds=3).wait()
    last = one.send(end=True, seconds=2).wait()
    assert first.words() + last.words() == " 0 1 2 3 4"
    assert (first.final, last.final) == (False, True)
    assert [word.start for word in first.update.committed + last.update.committed] == [
        0.25,
        1.25,
        2.25,
        3.25,
        4.25,
    ]
    assert one.service.open_streams == 0
    assert one.outcome("finished") == 1


def test_end_waits_for_what_is_still_being_heard(bench):
    one = bench()
    one.recognizer.go.clear()
    one.send(start=True).wait()
    last = one.send(end=True, seconds=0)
    eventually(lambda: one.recognizer.inside == 1)
    assert not last.given
    one.recognizer.go.set()
    assert last.wait().words() == " 0"
    assert last.times == 1


def test_a_whole_recording_in_one_request(bench):
    answer = bench().send(start=True, end=True, seconds=2).wait()
    assert (answer.words(), answer.final) == (" 0 1", True)


def test_an_empty_stream_ends_with_nothing(bench):
    assert bench().send(start=True, end=True, seconds=0).wait().words() == ""


def test_windows_of_many_streams_are_in_flight_together(bench):
    one = bench()
    one.recognizer.go.clear()
    for stream in range(1, 9):
        one.send(stream, start=True).wait()
    eventually(lambda: one.recognizer.inside == 8)
    assert one.metric("windows_in_flight", model="speech").value == 8
    one.recognizer.go.set()
    for stream in range(1, 9):
        assert one.send(stream, end=True, seconds=0).wait().words() == " 0"


def test_a_stream_has_one_window_in_flight(bench):
    one = bench()
    one.recognizer.go.clear()
    one.send(start=True, seconds=5).wait()
    eventually(lambda: one.recognizer.inside == 1)
    one.send(seconds=5).wait()
    one.recognizer.go.set()
    assert one.send(end=True, seconds=0).wait().error is None
    assert one.recognizer.most == 1
    assert one.recognizer.calls == 10


def test_no_more_windows_are_in_flight_than_set(bench):
    one = bench(max_windows_in_flight=3)
    one.recognizer.go.clear()
    for stream in range(1, 9):
        one.send(stream, start=True).wait()
    eventually(lambda: one.recognizer.inside == 3)
    one.recognizer.go.set()
    for stream in range(1, 9):
        assert one.send(stream, end=True, seconds=0).wait().words() == " 0"
    assert one.recognizer.most == 3


def test_answers_wait_while_too_much_is_not_heard(bench):
    one = bench(max_pending_s=5)
    one.recognizer.go.clear()
    one.send(start=True, seconds=5).wait()
    held = one.send(seconds=3)
    time.sleep(0.1)
    assert not held.given
    one.recognizer.go.set()
    assert held.wait().error is None


def test_a_failed_window_is_heard_again(bench):
    one = bench()
    one.recognizer.errors = [Unavailable("no room"), RuntimeError("defect")]
    one.send(start=True).wait()
    assert one.send(end=True, seconds=0).wait().words() == " 0"
    assert one.metric("window_retries_total").value == 2


def test_a_stream_that_cannot_be_heard_fails_with_the_recognisers_error(bench):
    one = bench()
    one.recognizer.errors = [InternalError("speech_recognize: broken")] * MAX_FAILURES
    other = one.send(2, start=True, seconds=0.5).wait()
    one.send(start=True).wait()
    eventually(lambda: one.recognizer.calls == MAX_FAILURES)
    failed = one.send(end=True, seconds=0).wait()
    assert isinstance(failed.error, InternalError)
    assert "speech_recognize: broken" in str(failed.error)
    assert one.outcome("failed") == 1
    assert other.error is None
    assert one.send(2, end=True, seconds=1).wait().words() == " 0"


def test_a_wrong_request_is_not_tried_again(bench):
    one = bench()
    one.recognizer.errors = [InvalidArgument("language: 'xx'; known are en")]
    one.send(start=True).wait()
    eventually(lambda: one.recognizer.calls == 1)
    failed = one.send(seconds=0.5).wait()
    assert isinstance(failed.error, InvalidArgument)
    assert one.service.open_streams == 0


def test_a_defect_of_a_session_is_told_without_details_and_harms_nobody(bench, capfd):
    one = bench()
    one.send(2, start=True, seconds=0.5).wait()
    failed = one.send(start=True, level=0.625).wait()
    assert isinstance(failed.error, InternalError)
    assert "defect" not in str(failed.error)
    assert "a defect of the session" in capfd.readouterr().err
    assert one.send(2, end=True, seconds=0.5).wait().words() == " 0"


def test_a_chunk_without_start_is_refused(bench):
    refused = bench().send(9).wait()
    assert isinstance(refused.error, InvalidArgument)
    assert "stream 9 is not open" in str(refused.error)


def test_a_chunk_after_end_is_refused(bench):
    one = bench()
    one.send(start=True, end=True).wait()
    assert isinstance(one.send().wait().error, InvalidArgument)


def test_start_again_is_another_stream(bench):
    one = bench()
    one.send(start=True, seconds=2.5).wait()
    eventually(lambda: one.recognizer.calls == 2)
    one.send(start=True, seconds=0.5).wait()
    assert one.send(end=True, seconds=0.5).wait().words() == " 0"
    assert one.outcome("restarted") == 1
    assert one.service.open_streams == 0


def test_start_again_while_the_end_is_heard_leaves_the_ended_one_its_words(bench):
    one = bench()
    one.recognizer.go.clear()
    last = one.send(start=True, end=True)
    eventually(lambda: one.recognizer.inside == 1)
    one.send(start=True, seconds=0.5).wait()
    one.recognizer.go.set()
    assert last.wait().words() == " 0"
    assert one.send(end=True, seconds=0.5).wait().words() == " 0"


def test_an_answer_held_back_is_given_when_its_stream_is_started_anew(bench):
    one = bench(max_pending_s=5)
    one.recognizer.go.clear()
    held = one.send(start=True, seconds=8)
    eventually(lambda: one.recognizer.inside == 1)
    one.send(start=True, seconds=0.5).wait()
    assert isinstance(held.wait().error, Cancelled)
    assert held.times == 1


def test_a_refused_end_ends_the_stream(bench):
    one = bench()
    one.send(start=True).wait()
    answer = Answer()
    one.service.refuse(answer, InvalidArgument("audio: NaN"), ended=1)
    assert str(answer.wait().error) == "audio: NaN"
    assert one.service.open_streams == 0
    assert one.metric("chunks_total", outcome="refused").value == 1


def test_a_refused_chunk_leaves_the_stream_open(bench):
    one = bench()
    one.send(start=True, seconds=0.5).wait()
    one.service.refuse(Answer(), InvalidArgument("audio: NaN"))
    assert one.send(end=True, seconds=0.5).wait().words() == " 0"


def test_no_more_streams_than_set(bench):
    one = bench(max_streams=2)
    one.send(1, start=True, seconds=0.5).wait()
    one.send(2, start=True, seconds=0.5).wait()
    refused = one.send(3, start=True).wait()
    assert isinstance(refused.error, Unavailable)
    assert "max_streams" in str(refused.error)
    one.send(1, end=True, seconds=0).wait()
    assert one.send(3, start=True, seconds=0.5).wait().error is None
    assert one.outcome("refused") == 1


def test_new_streams_are_refused_while_the_recogniser_is_behind(bench):
    one = bench(refuse_lag_s=1)
    one.recognizer.go.clear()
    one.send(start=True).wait()
    assert one.send(2, start=True, seconds=0.5).wait().error is None
    time.sleep(1.1)
    refused = one.send(3, start=True).wait()
    assert isinstance(refused.error, Unavailable)
    assert "refuse_lag_s (1 s)" in str(refused.error)
    assert one.send(1, seconds=0.5).wait().error is None  # who is in stays in
    one.recognizer.go.set()
    eventually(lambda: one.recognizer.inside == 0)
    eventually(lambda: one.send(3, start=True).wait().error is None)


def test_a_stream_whose_client_is_silent_is_dropped(bench):
    one = bench(idle_s=0.4)
    for stream in range(1, 101):
        one.send(stream, start=True, seconds=0.5).wait()
    eventually(lambda: one.service.open_streams == 0)
    assert one.outcome("idle") == 100
    assert one.metric("active_streams", model="speech").value == 0
    assert "is not open" in str(one.send(1).wait().error)


def test_a_stream_that_waits_for_its_last_words_is_not_idle(bench):
    one = bench(idle_s=0.2)
    one.recognizer.go.clear()
    last = one.send(start=True, end=True)
    time.sleep(0.6)
    one.recognizer.go.set()
    assert last.wait().words() == " 0"


def test_unloading_answers_what_is_owed(bench):
    one = bench()
    one.recognizer.go.clear()
    last = one.send(start=True, end=True)
    eventually(lambda: one.recognizer.inside == 1)
    threading.Timer(0.2, one.recognizer.go.set).start()
    one.service.close()
    assert isinstance(last.wait().error, Unavailable)
    assert isinstance(one.send(2, start=True).wait().error, Unavailable)


def test_options_reach_the_session(bench):
    one = bench(policy="agreement", max_step_s=4)
    one.send(1, start=True, policy="vad", language="de", prompt="names", step_s=6.0).wait()
    one.send(2, start=True).wait()
    first, second = ScriptedSession.made
    assert (first.policy, first.language, first.prompt) == ("vad", "de", "names")
    assert (first.settings.step_s, first.settings.max_step_s) == (6, 6)
    assert (second.policy, second.settings.step_s) == ("agreement", 0.5)


def test_what_is_counted(bench):
    one = bench()
    one.send(start=True, seconds=2).wait()
    one.send(end=True, seconds=1).wait()
    assert one.metric("chunks_total", outcome="taken").value == 2
    assert one.metric("received_seconds_total").value == 3
    assert one.metric("voiced_seconds_total").value == 1.5
    lags = one.metric("lag_seconds").observations
    assert len(lags) == 3
    # What was received when the client was told, less the end of the word.
    assert min(lags) == pytest.approx(0.25)
    assert len(one.metric("turnaround_seconds").observations) == 3


def test_a_crowd_is_answered_once_each(bench):
    one = bench(max_windows_in_flight=4)

    def stream(number: int, answers: list[Answer]) -> None:
        for chunk in range(20):
            answers.append(one.send(number, 0.3, start=chunk == 0).wait())
        answers.append(one.send(number, 0.0, end=True).wait())

    streams: list[list[Answer]] = [[] for _ in range(12)]
    threads = [threading.Thread(target=stream, args=(n + 1, answers)) for n, answers in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for answers in streams:
        assert "".join(answer.words() for answer in answers) == " 0 1 2 3 4 5"
        assert {answer.times for answer in answers} == {1}


def test_chunks_sent_ahead_are_taken_in_order_each_after_the_answer_before(bench):
    one = bench(max_pending_s=5)
    one.recognizer.go.clear()
    first = one.send(start=True, seconds=9)  # held back: more is pending than may be
    ahead = [one.send(seconds=0.5) for _ in range(4)]
    last = one.send(end=True, seconds=0.5)
    eventually(lambda: one.recognizer.calls == 1)
    assert not any(answer.given for answer in (first, *ahead, last))
    one.recognizer.go.set()
    received = [answer.wait().update.received_s for answer in (first, *ahead, last)]
    assert received == [9, 9.5, 10, 10.5, 11, 11.5]
    assert [answer.times for answer in (first, *ahead, last)] == [1] * 6
    words = "".join(answer.words() for answer in (first, *ahead, last))
    assert words == "".join(f" {n}" for n in range(11))


def test_who_sends_too_far_ahead_is_refused_and_the_stream_goes_on(bench):
    one = bench(max_pending_s=5)
    one.recognizer.go.clear()
    first = one.send(start=True, seconds=9)
    ahead = [one.send(seconds=2) for _ in range(2)]
    eventually(lambda: one.recognizer.calls == 1)
    refused = one.send(seconds=2)
    assert str(refused.wait().error).startswith(
        "stream 1: 4.0 s of audio wait already, max_pending_s allows 5 s"
    )
    assert isinstance(refused.error, Unavailable)
    last = one.send(end=True, seconds=2)
    one.recognizer.go.set()
    assert [answer.wait().error for answer in (first, *ahead, last)] == [None] * 4
    assert last.update.received_s == 15


def test_a_number_is_free_as_soon_as_its_end_came(bench):
    one = bench()
    one.recognizer.go.clear()
    one.send(start=True).wait()
    last, again = one.send(end=True), one.send(start=True, seconds=3)
    one.recognizer.go.set()
    assert last.wait().final
    assert again.wait().update.received_s == 3
    assert one.outcome("restarted") == 0


def test_all_that_a_dropped_stream_owes_is_answered(bench):
    one = bench(max_pending_s=5)
    one.recognizer.go.clear()
    waiting = [one.send(start=True, seconds=9), *(one.send() for _ in range(3))]
    eventually(lambda: one.recognizer.calls == 1)
    one.send(start=True).wait()
    assert [type(answer.wait().error) for answer in waiting] == [Cancelled] * 4
    assert one.metric("active_requests", model="speech").value == 0


def test_whole_recordings_that_wait_keep_others_out_too(bench):
    now = [0.0]
    one = bench(refuse_lag_s=8, clock=lambda: now[0])
    one.recognizer.go.clear()
    whole = one.send(start=True, end=True)
    eventually(lambda: one.recognizer.calls == 1)
    now[0] = 9.0
    assert "open streams are heard 9.0 s late" in str(one.send(2, start=True).wait().error)
    one.recognizer.go.set()
    assert whole.wait().final
    assert one.send(2, start=True).wait().error is None


def test_no_answer_waits_for_a_window_that_only_more_audio_makes_due():
    # A speaker who does not pause is cut at 10 s; answers held from 5 s on would wait for each other.
    settings = SpeechSettings(policy="vad", max_pending_s=5, max_window_s=10)
    recognizer = Recognizer()
    metrics = SpeechMetrics(MemoryMetrics())
    service = SpeechService(settings, recognizer, EnergyDetector, metrics, idle_s=60)
    sound = np.random.default_rng(0).uniform(-0.3, 0.3, SAMPLE_RATE).astype(np.float32)
    try:
        for second in range(12):
            answer = Answer()
            service.submit(Chunk(1, sound, second == 0, second == 11, StreamOptions()), answer)
            assert answer.wait().error is None
    finally:
        service.close()
    assert recognizer.calls == 2


class BrokenAnswer(Answer):
    """Its answer cannot be written; with `fails`, its error neither."""

    fails = False

    def answer(self, update, *, final: bool) -> None:
        raise MemoryError("no room for the tensor")

    def fail(self, error: RequestError) -> None:
        super().fail(error)
        if self.fails:
            raise OSError("the sender is closed")


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_that_cannot_be_given_ends_its_stream_and_no_thread(bench, capfd, fails):
    one = bench(max_windows_in_flight=1, max_pending_s=5)
    one.recognizer.go.clear()
    broken = BrokenAnswer()
    broken.fails = fails
    one.service.submit(Chunk(1, np.zeros(9 * SAMPLE_RATE, np.float32), True, False, StreamOptions()), broken)
    ahead = one.send()
    one.recognizer.go.set()  # the answer is given by the only thread that carries windows
    assert isinstance(broken.wait().error, InternalError)
    assert isinstance(ahead.wait().error, InternalError)
    assert one.service.open_streams == 0
    assert "no room for the tensor" in capfd.readouterr().err
    assert one.send(2, start=True, end=True).wait().words() == " 0"


def test_all_of_a_dropped_stream_are_answered_though_one_cannot_be(bench, capfd):
    one = bench(max_pending_s=5)
    one.recognizer.go.clear()
    broken = BrokenAnswer()
    broken.fails = True
    one.service.submit(Chunk(1, np.zeros(9 * SAMPLE_RATE, np.float32), True, False, StreamOptions()), broken)
    ahead = one.send()
    one.send(start=True, seconds=0.5).wait()
    assert isinstance(ahead.wait().error, Cancelled)
    assert "the sender is closed" in capfd.readouterr().err


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


@pytest.mark.parametrize("hasty", [False, True], ids=["microphone", "file"])
def test_who_speaks_and_is_heard_ever_later_keeps_others_out_but_not_who_sends_ahead(bench, hasty):
    now = [0.0]
    one = bench(refuse_lag_s=8, clock=lambda: now[0])
    one.recognizer.gate = threading.Semaphore(0)
    one.send(start=True, seconds=30 if hasty else 1).wait()
    if hasty:
        one.send(seconds=10).wait()
    for calls in range(1, 6):  # each window is heard 3 s after the one before, and holds 1 s
        eventually(lambda calls=calls: one.recognizer.calls == calls)
        now[0] += 3
        one.send(seconds=3).wait()
        one.recognizer.gate.release()
    eventually(lambda: one.recognizer.calls == 6)
    other = one.send(2, start=True, seconds=0.5).wait()
    one.recognizer.gate.release(100)
    assert str(other.error).startswith("None" if hasty else "speech: open streams are heard 9.0 s")
    assert one.send(end=True, seconds=0).wait().final
    assert one.send(3, start=True, seconds=0.5).wait().error is None


def test_a_stream_that_failed_keeps_nobody_out(bench):
    now = [0.0]
    one = bench(refuse_lag_s=8, clock=lambda: now[0])
    one.recognizer.errors = [InvalidArgument("language: 'xx'; known are en")]
    one.send(start=True, seconds=20).wait()
    eventually(lambda: one.recognizer.calls == 1 and one.recognizer.inside == 0)
    now[0] = 15.0
    eventually(lambda: one.send(2, start=True, seconds=0.5).wait().error is None)
