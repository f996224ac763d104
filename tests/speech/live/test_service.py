"""Streams through the service: answers, counts, many clients at once."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tests.doubles.waiting import wait_until
from tests.speech.live.rig import Answer, ScriptedSession
from trimodal.audio.values import SAMPLE_RATE
from trimodal.metrics import MemoryMetrics
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk, StreamOptions
from trimodal.speech.live.stream import LiveStream
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition


def test_the_answer_to_end_has_everything(bench):
    one = bench()
    first = one.send(start=True, seconds=3).wait()
    last = one.send(end=True, seconds=2).wait()
    assert first.words() + last.words() == " 0 1 2 3 4"
    assert (first.final, last.final) == (False, True)
    starts = [word.start for word in first.update.committed + last.update.committed]
    assert starts == [0.25, 1.25, 2.25, 3.25, 4.25]
    assert one.open_streams == 0
    assert one.outcome("finished") == 1


def test_end_waits_for_what_is_still_being_heard(bench):
    one = bench()
    one.recogniser.go.clear()
    one.send(start=True).wait()
    last = one.send(end=True, seconds=0)
    wait_until(lambda: one.recogniser.inside == 1)
    assert not last.given
    one.recogniser.go.set()
    assert last.wait().words() == " 0"
    assert last.times == 1


def test_a_stream_whose_end_waits_to_be_taken_in_is_not_one_chunk():
    settings = SpeechSettings()
    session = ScriptedSession(
        settings, policy="edge", language="", prompt="", translate=False, temperature=0.0, detector=None
    )
    stream = LiveStream(1, session, SpeechMetrics(MemoryMetrics()), max_waiting_s=60.0)
    sink = SimpleNamespace(is_cancelled=lambda: False)
    stream.put(Chunk(1, np.zeros(2 * SAMPLE_RATE, np.float32), True, False, StreamOptions()), sink)
    stream.take_in()
    planned = stream.next_windows(1)
    stream.put(Chunk(1, np.zeros(SAMPLE_RATE, np.float32), False, True, StreamOptions()), sink)
    stream.heard(planned, [Recognition(())])
    assert stream.live, "how late its words are tells of the load"


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


@pytest.mark.parametrize("options", [{"recording": True}, {"policy": "file", "recording": True}])
def test_no_lateness_is_told_of_a_recording(bench, options):
    """Its words wait for all of their window: objectives and autoscalers would take that for overload."""
    one = bench()
    one.send(start=True, seconds=2, **options).wait()
    assert one.send(end=True, seconds=1).wait().words().endswith(" 2")
    assert one.metric("lag_seconds").observations == []
    assert one.metric("turnaround_seconds").observations == []


def test_no_lateness_is_told_of_what_is_sent_faster_than_it_is_spoken(bench):
    one = bench()
    one.send(start=True, seconds=1).wait()
    one.send(seconds=2).wait()
    one.send(end=True, seconds=1).wait()
    assert len(one.metric("lag_seconds").observations) <= 1  # of the first second, before the others came


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


def test_a_stream_that_does_not_want_it_makes_no_span(bench, monkeypatch):
    made = []
    monkeypatch.setattr("trimodal.speech.live.stream.span", lambda *given, **more: made.append(given))
    bench().send(start=True, end=True).wait()
    assert not made
