"""Requests for news: answered when words come, though no audio does; audio that does not come is silence."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doubles.waiting import wait_until
from tests.speech.live.rig import Answer
from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import InternalError, InvalidArgument, Unavailable
from trimodal.metrics import MemoryMetrics
from trimodal.speech.engines.fake import VOCABULARY, hear, speak
from trimodal.speech.live import service as module
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk, StreamOptions
from trimodal.speech.live.stream import NEWS_S, LiveStream, Recognise, TakeIn
from trimodal.speech.live.stream import Answer as Answered
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import EnergyDetector
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition

CHUNK = SAMPLE_RATE // 10
IDLE = Unavailable("idle")


def test_news_come_as_soon_as_they_are_heard(bench):
    one = bench()
    one.recogniser.go.clear()
    one.send(start=True).wait()
    asked = one.ask(after_s=1.0)
    wait_until(lambda: one.recogniser.inside == 1)
    assert not asked.given
    one.recogniser.go.set()
    assert asked.wait().words() == " 0"
    assert (asked.final, asked.times) == (False, 1)


def test_the_next_chunk_ends_the_wait_and_its_answer_comes_after(bench):
    one = bench()
    one.send(start=True, seconds=0.5).wait()
    asked, chunk = one.ask(after_s=0.5), one.send(seconds=0.25)
    assert asked.wait().update.received_s == 0.5
    assert chunk.wait().update.received_s == 0.75
    asked, last = one.ask(after_s=0.75), one.send(end=True, seconds=0.25)
    assert not asked.wait().final
    assert (last.wait().final, last.words()) == (True, " 0")


def test_a_request_that_was_overtaken_by_a_chunk_is_answered_at_once(bench):
    one = bench()
    one.send(start=True, seconds=0.5).wait()
    one.send(seconds=0.25).wait()
    assert one.ask(after_s=0.5).wait().update.received_s == 0.75


def test_a_failure_is_told_to_who_waits(bench):
    one = bench()
    one.recogniser.go.clear()
    one.recogniser.errors = [InvalidArgument("language: 'xx'; known are en")]
    one.send(start=True).wait()
    asked = one.ask(after_s=1.0)
    one.recogniser.go.set()
    assert isinstance(asked.wait().error, InvalidArgument)
    assert one.open_streams == 0


def test_who_waits_is_not_idle_is_answered_in_the_end_and_holds_up_no_drain(bench):
    now = [0.0]
    one = bench(idle_s=0.4, clock=lambda: now[0])
    one.send(start=True, seconds=0.5).wait()
    asked = one.ask(after_s=0.5)
    wait_until(lambda: one.service._table.get(1)._waits_for_news)
    assert one.metric("active_requests", model="speech").value == 0
    now[0] = NEWS_S - 0.1
    one.service._table.get(1).look(0.4, IDLE)
    assert not asked.given
    assert one.open_streams == 1
    now[0] = NEWS_S + 0.1
    assert asked.wait().error is None

    def closed_later() -> bool:
        now[0] += 1  # each time: when the stream notes that it was asked may be after the first
        return one.open_streams == 0

    wait_until(closed_later)
    assert one.outcome("idle") == 1


def test_a_defect_at_a_look_fails_its_stream_alone(bench, monkeypatch):
    one = bench()
    one.send(1, start=True, seconds=0.5).wait()
    asked = one.ask(after_s=0.5)
    one.send(2, start=True, seconds=0.5).wait()
    wait_until(lambda: one.service._table.get(1)._waits_for_news)
    monkeypatch.setattr(one.service._table.get(1), "look", lambda *_: 1 / 0)
    assert isinstance(asked.wait().error, InternalError)
    assert one.send(2, end=True, seconds=0.5).wait().words() == " 0"


class Muted:
    """One stream on a clock of its own: a microphone that is muted at the end of its words."""

    def __init__(self, policy: str = "edge") -> None:
        self.now = 0.0
        self.answers: list[Answer] = []
        settings = SpeechSettings(policy=policy)
        session = LiveSession(settings, policy=policy, detector=EnergyDetector())
        metrics = SpeechMetrics(MemoryMetrics())
        self.stream = LiveStream(1, session, metrics, max_waiting_s=60, quiet_s=1.0, clock=lambda: self.now)

    def request(self, samples=None, *, start=False) -> Answer:
        answer, options = Answer(), StreamOptions()
        after = None if samples is not None else round(self.stream.progress.received_s * SAMPLE_RATE)
        given = np.zeros(0, np.float32) if samples is None else samples
        self.perform(self.stream.put(Chunk(1, given, start, False, options, after), answer))
        self.answers.append(answer)
        return answer

    def perform(self, actions) -> None:
        """As the service does; a window is heard at once."""
        for action in actions:
            if isinstance(action, TakeIn):
                self.perform(self.stream.take_in())
            elif isinstance(action, Recognise):
                planned = self.stream.next_windows(1)
                if planned:
                    words = [Recognition(hear(one.window.samples)) for one in planned]
                    self.perform(self.stream.heard(planned, words))
            elif isinstance(action, Answered):
                action.sink.answer(action.update, final=action.final)
                self.perform(self.stream.answered())

    def say(self, samples, chunk: int = CHUNK, pace: float = 1.0) -> None:
        for at in range(0, len(samples), chunk):
            piece = samples[at : at + chunk]
            self.now += len(piece) / SAMPLE_RATE / pace
            self.request(piece, start=not self.answers)

    def look(self) -> None:
        self.perform(self.stream.look(60.0, IDLE))

    def text(self) -> str:
        return "".join(word.text for one in self.answers if one.given for word in one.update.committed)


@pytest.mark.parametrize("policy", ["edge", "vad"])
def test_a_hundred_ends_of_speech_followed_by_nothing(policy):
    rng = np.random.default_rng(0)
    for number in range(100 if policy == "edge" else 20):
        samples, said = speak([VOCABULARY[n] for n in rng.integers(len(VOCABULARY), size=rng.integers(1, 7))])
        # Muted in the silence after the last word, or before that word is quite over.
        samples = samples[: round((said[-1].end + rng.uniform(-0.02, 0.15)) * SAMPLE_RATE)]
        muted = Muted(policy)
        muted.say(samples)
        asked = muted.request()
        muted.now += 0.9
        muted.look()
        ready = muted.now
        while not (asked.given and muted.text() == "".join(word.text for word in said)):
            asked = muted.request() if asked.given else asked
            muted.now += module.LOOK_S
            muted.look()
            assert muted.now - ready < 0.3, f"{number}: {muted.text()!r} of {said}"
        muted.now += 10.0
        muted.say(speak(["hello"], gap_s=0.5)[0])  # and it goes on
        muted.now += 2.0
        muted.look()
        muted.request()
        assert muted.text() == "".join(word.text for word in said) + " hello"


@pytest.mark.parametrize("chunk_s", [0.1, 2.0])
@pytest.mark.parametrize("pace", [1.0, 20.0])
def test_audio_that_comes_steadily_in_large_chunks_or_ahead_of_time_is_not_taken_for_silence(chunk_s, pace):
    samples, said = speak(VOCABULARY, gap_s=0.1)
    muted, paused = Muted("vad"), []
    pause, muted.stream._session.pause = muted.stream._session.pause, lambda: paused.append(muted.now)
    chunk = round(chunk_s * SAMPLE_RATE)
    for at in range(0, len(samples), chunk):
        muted.say(samples[at : at + chunk], chunk, pace)
        muted.now += 0.05 + chunk_s * 0.9 / pace  # a little late
        muted.look()
    assert not paused
    muted.stream._session.pause = pause
    muted.now = len(samples) / SAMPLE_RATE + 2 * chunk_s + 20.0
    muted.look()
    muted.request()
    assert muted.text() == "".join(word.text for word in said)


@pytest.mark.parametrize("gap_s", [0.0, 30.0])
def test_audio_ahead_of_its_time_cannot_be_late_after_a_gap_either(gap_s):
    samples, _ = speak(VOCABULARY, gap_s=0.1)
    muted, paused = Muted("vad"), []
    muted.say(samples)
    muted.now += gap_s
    muted.look()
    muted.stream._session.pause = lambda: paused.append(muted.now)
    began = muted.now
    muted.say(samples, pace=1000.0)
    for _ in range(int(len(samples) / SAMPLE_RATE / 0.05)):
        muted.look()
        assert not paused, paused[0] - began
        muted.now += 0.05
    muted.now += 1.1
    muted.look()
    assert paused


def test_a_client_whose_answer_was_held_back_speaks_on_from_then():
    muted, paused = Muted("vad"), []
    muted.stream._session.pause = lambda: paused.append(muted.now)
    muted.stream._session.max_pending_s = 0.0
    out: list[Recognise] = []
    perform, muted.perform = muted.perform, lambda actions: perform(_kept(actions, out))
    samples, _ = speak(["one", "two"], gap_s=0.6)
    for at in range(0, len(samples), CHUNK):
        muted.say(samples[at : at + CHUNK])
        if out:
            break
    held = muted.answers[-1]
    assert not held.given
    muted.now += 3.0  # the recogniser is slow
    muted.perform(muted.stream.heard(muted.stream.next_windows(1), [Recognition(())]))
    assert held.given
    muted.look()
    assert not paused
    muted.now += 1.1
    muted.look()
    assert paused


def _kept(actions, out):
    """The actions without those that have a window recognised, which `out` gets."""
    out += [action for action in actions if isinstance(action, Recognise)]
    return [action for action in actions if not isinstance(action, Recognise)]
