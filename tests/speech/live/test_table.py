"""Streams are admitted, found, restarted and closed; what each request is answered then."""

from __future__ import annotations

import threading
import time

import pytest

from tests.doubles.waiting import wait_until
from tests.speech.live.rig import Answer, ScriptedSession
from trimodal.errors import Cancelled, InvalidArgument, Unavailable


def test_a_chunk_after_end_is_refused(bench):
    one = bench()
    one.send(start=True, end=True).wait()
    assert isinstance(one.send().wait().error, InvalidArgument)


def test_start_again_is_another_stream(bench):
    one = bench()
    one.send(start=True, seconds=2.5).wait()
    wait_until(lambda: one.recogniser.calls == 2)
    one.send(start=True, seconds=0.5).wait()
    assert one.send(end=True, seconds=0.5).wait().words() == " 0"
    assert one.outcome("restarted") == 1
    assert one.open_streams == 0


def test_start_again_at_the_moment_at_which_the_stream_is_dropped(bench):
    one = bench()
    one.send(start=True, seconds=0.5).wait()
    one.service._table.get(1).close("idle", Unavailable("idle"))  # by the sweeper, who has yet to forget it
    assert one.send(start=True, seconds=0.5).wait().error is None
    assert one.send(end=True, seconds=0.5).wait().words() == " 0"
    assert (one.outcome("idle"), one.outcome("restarted"), one.open_streams) == (1, 0, 0)


def test_start_again_while_the_end_is_heard_leaves_the_ended_one_its_words(bench):
    one = bench()
    one.recogniser.go.clear()
    last = one.send(start=True, end=True)
    wait_until(lambda: one.recogniser.inside == 1)
    one.send(start=True, seconds=0.5).wait()
    one.recogniser.go.set()
    assert last.wait().words() == " 0"
    assert one.send(end=True, seconds=0.5).wait().words() == " 0"


def test_a_refused_end_ends_the_stream(bench):
    one = bench()
    one.send(start=True).wait()
    answer = Answer()
    one.service.refuse(answer, InvalidArgument("audio: NaN"), ended=1)
    assert str(answer.wait().error) == "audio: NaN"
    assert one.open_streams == 0
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
    now = [0.0]
    one = bench(refuse_lag_s=1, clock=lambda: now[0])
    one.recogniser.go.clear()
    one.send(start=True).wait()
    assert one.send(2, start=True, seconds=0.5).wait().error is None
    now[0] = 1.1
    refused = one.send(3, start=True).wait()
    assert isinstance(refused.error, Unavailable)
    assert "refuse_lag_s (1 s)" in str(refused.error)
    assert one.send(1, seconds=0.5).wait().error is None  # who is in stays in
    one.recogniser.go.set()
    wait_until(lambda: one.recogniser.inside == 0)
    wait_until(lambda: one.send(3, start=True).wait().error is None)


def test_a_stream_whose_client_is_silent_is_dropped(bench):
    one = bench(idle_s=0.4)
    for stream in range(1, 101):
        one.send(stream, start=True, seconds=0.5).wait()
    wait_until(lambda: one.open_streams == 0)
    assert one.outcome("idle") == 100
    assert one.metric("active_streams", model="speech").value == 0
    assert "is not open" in str(one.send(1).wait().error)


def test_a_stream_that_waits_for_its_last_words_is_not_idle(bench):
    one = bench(idle_s=0.2)
    one.recogniser.go.clear()
    last = one.send(start=True, end=True)
    time.sleep(0.6)
    one.recogniser.go.set()
    assert last.wait().words() == " 0"


def test_unloading_answers_what_is_owed(bench):
    one = bench()
    one.recogniser.go.clear()
    last = one.send(start=True, end=True)
    wait_until(lambda: one.recogniser.inside == 1)
    threading.Timer(0.2, one.recogniser.go.set).start()
    one.service.close()
    assert isinstance(last.wait().error, Unavailable)
    assert isinstance(one.send(2, start=True).wait().error, Unavailable)


def test_options_reach_the_session(bench):
    one = bench(policy="file", delay="high", max_step_s=4)
    own = {
        "policy": "vad",
        "language": "de-AT",
        "prompt": "names",
        "step_s": 6.0,
        "temperature": 0.4,
        "delay": "minimal",
    }
    one.send(1, start=True, task="translate", **own).wait()
    one.send(2, start=True).wait()
    first, second = ScriptedSession.made
    assert (first.policy, first.language, first.prompt) == ("vad", "de", "names")
    assert (first.translate, second.translate) == (True, False)
    assert (first.temperature, second.temperature) == (0.4, 0.0)
    assert (first.settings.step_s, first.settings.max_step_s) == (6, 6)
    assert (second.policy, second.settings.step_s) == ("file", 0.5)
    assert (first.settings.delay, second.settings.delay) == ("minimal", "high")


def test_chunks_sent_ahead_are_taken_in_order_each_after_the_answer_before(bench):
    one = bench(max_pending_s=5)
    one.recogniser.go.clear()
    first = one.send(start=True, seconds=9)  # held back: more is pending than may be
    ahead = [one.send(seconds=0.5) for _ in range(4)]
    last = one.send(end=True, seconds=0.5)
    wait_until(lambda: one.recogniser.calls == 1)
    assert not any(answer.given for answer in (first, *ahead, last))
    one.recogniser.go.set()
    received = [answer.wait().update.received_s for answer in (first, *ahead, last)]
    assert received == [9, 9.5, 10, 10.5, 11, 11.5]
    assert [answer.times for answer in (first, *ahead, last)] == [1] * 6
    words = "".join(answer.words() for answer in (first, *ahead, last))
    assert words == "".join(f" {n}" for n in range(11))


def test_who_sends_too_far_ahead_is_refused_and_the_stream_goes_on(bench):
    one = bench(max_pending_s=5)
    one.recogniser.go.clear()
    first = one.send(start=True, seconds=9)
    ahead = [one.send(seconds=2) for _ in range(2)]
    wait_until(lambda: one.recogniser.calls == 1)
    refused = one.send(seconds=2)
    assert str(refused.wait().error).startswith(
        "stream 1: 4.0 s of audio wait already, max_pending_s allows 5 s"
    )
    assert isinstance(refused.error, Unavailable)
    last = one.send(end=True, seconds=2)
    one.recogniser.go.set()
    assert [answer.wait().error for answer in (first, *ahead, last)] == [None] * 4
    assert last.update.received_s == 15


def test_all_that_a_dropped_stream_owes_is_answered(bench):
    one = bench(max_pending_s=5)
    one.recogniser.go.clear()
    waiting = [one.send(start=True, seconds=9), *(one.send() for _ in range(3))]
    wait_until(lambda: one.recogniser.calls == 1)
    one.send(start=True).wait()
    assert [type(answer.wait().error) for answer in waiting] == [Cancelled] * 4
    assert one.metric("active_requests", model="speech").value == 0


@pytest.mark.parametrize("declared", [False, True])
def test_recordings_that_wait_keep_nobody_out(bench, declared):
    now = [0.0]
    one = bench(refuse_lag_s=8, clock=lambda: now[0])
    one.recogniser.go.clear()
    parts = one.send(1, start=True, seconds=3, recording=declared).wait()
    one.send(1, seconds=3).wait()
    last = one.send(1, end=True, seconds=3)
    whole = one.send(2, start=True, end=True, recording=declared)
    wait_until(lambda: one.recogniser.calls == 2)
    now[0] = 9.0
    assert one.send(3, start=True, seconds=0.5).wait().error is None
    assert one.send(4, start=True, seconds=0.5, recording=True).wait().error is None
    one.recogniser.go.set()
    assert parts.error is None
    assert last.wait().final
    assert whole.wait().final


def test_recordings_are_refused_where_they_would_wait_too_long_and_told_when_to_come_again(bench):
    now = [0.0]
    one = bench(max_pending_s=20, clock=lambda: now[0])
    one.recogniser.gate = threading.Semaphore(0)
    one.send(1, start=True, seconds=10, recording=True).wait()
    wait_until(lambda: one.recogniser.calls == 1)
    now[0] += 4.0  # for a window whose audio, in the rig, is half a millisecond
    one.recogniser.gate.release()
    wait_until(lambda: one.recogniser.calls == 2)
    refused = one.send(2, start=True, recording=True).wait()
    assert isinstance(refused.error, Unavailable)
    assert "the recordings that wait take 72000 s to hear, more than max_pending_s (20 s)" in str(
        refused.error
    )
    assert refused.error.retry_after_s == pytest.approx(71_980)
    assert one.send(3, start=True, seconds=0.5).wait().error is None  # of live streams only lateness counts
    one.recogniser.gate.release(100)
    assert one.send(1, end=True, seconds=0).wait().final
    assert one.send(2, start=True, end=True, recording=True).wait().final


def test_a_session_that_was_admitted_loses_no_later_turn(bench):
    now = [0.0]
    one = bench(refuse_lag_s=1, max_streams=8, clock=lambda: now[0])
    one.recogniser.go.clear()
    one.send(1, start=True).wait()
    wait_until(lambda: one.recogniser.calls == 1)
    now[0] = 5.0
    assert "refuse_lag_s (1 s)" in str(one.send(2, start=True, seconds=0.5).wait().error)
    for stream in range(3, 10):
        assert one.send(stream, start=True, seconds=0.5, admitted=True).wait().error is None
    one.recogniser.go.set()
    assert one.send(1, end=True, seconds=0).wait().final
    one.send(1, start=True, seconds=0.5).wait()
    assert one.open_streams == 8
    assert "max_streams" in str(one.send(2, start=True).wait().error)
    assert (
        one.send(2, start=True, seconds=0.5, admitted=True).wait().error is None
    )  # of the eighth kept for it
    assert "max_streams" in str(one.send(10, start=True, admitted=True).wait().error)


@pytest.mark.parametrize("hasty", [False, True], ids=["microphone", "file"])
def test_who_speaks_and_is_heard_ever_later_keeps_others_out_but_not_who_sends_ahead(bench, hasty):
    now = [0.0]
    one = bench(refuse_lag_s=8, clock=lambda: now[0])
    one.recogniser.gate = threading.Semaphore(0)
    one.send(start=True, seconds=30 if hasty else 1).wait()
    if hasty:
        one.send(seconds=10).wait()
    for calls in range(1, 6):  # each window is heard 3 s after the one before, and holds 1 s
        wait_until(lambda calls=calls: one.recogniser.calls == calls)
        now[0] += 3
        one.send(seconds=3).wait()
        one.recogniser.gate.release()
    wait_until(lambda: one.recogniser.calls == 6)
    other = one.send(2, start=True, seconds=0.5).wait()
    one.recogniser.gate.release(100)
    assert str(other.error).startswith("None" if hasty else "speech: open streams are heard 9.0 s")
    assert one.send(end=True, seconds=0).wait().final
    assert one.send(3, start=True, seconds=0.5).wait().error is None


def test_a_stream_that_failed_keeps_nobody_out(bench):
    now = [0.0]
    one = bench(refuse_lag_s=8, clock=lambda: now[0])
    one.recogniser.errors = [InvalidArgument("language: 'xx'; known are en")]
    one.send(start=True, seconds=20).wait()
    wait_until(lambda: one.recogniser.calls == 1 and one.recogniser.inside == 0)
    now[0] = 15.0
    wait_until(lambda: one.send(2, start=True, seconds=0.5).wait().error is None)


def test_nobody_looks_after_streams_while_there_are_none(bench):
    one, seen = bench(), []
    table = one.service._table
    looking = threading.Thread(target=lambda: seen.append(table.streams()))
    looking.start()
    assert not seen
    one.send(1, start=True, seconds=0.5).wait()
    looking.join(10)
    assert [stream.id for (stream,) in seen] == [1]
    assert one.send(1, end=True, seconds=0.5).wait().final
    looking = threading.Thread(target=lambda: seen.append(table.streams()))
    looking.start()
    looking.join(0.2)
    assert looking.is_alive()
    one.service.close()
    looking.join(10)
    assert seen[1:] == [[]]
