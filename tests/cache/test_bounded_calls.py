"""Calls with a time limit: given up when they hang, and left alone for a while after failures in a row."""

from __future__ import annotations

import math
import queue
import threading
from unittest.mock import Mock

import pytest

from tests.doubles.waiting import wait_until
from trimodal.cache.bounded_calls import Bypassed, CircuitBreaker, DaemonThreads, Guarded, TimedCalls
from trimodal.errors import InvalidArgument, Unavailable

LONG = 30.0  # seconds: a budget that nothing here uses up


@pytest.fixture
def hang():
    """`hang()` waits until the test is over."""
    over = threading.Event()
    yield lambda: over.wait(60)
    over.set()


@pytest.fixture
def threads():
    threads = DaemonThreads(2, "test", jobs=4)
    yield threads
    threads.close(0)


def reason(call) -> str:
    with pytest.raises(Bypassed) as caught:
        call()
    return caught.value.reason


class TestDaemonThreads:
    def test_a_job_that_fails_is_logged_and_its_thread_goes_on(self, threads, caplog):
        done = threading.Event()
        for _ in range(2):
            assert threads.submit(lambda: 1 // 0)
        assert threads.submit(done.set)
        assert done.wait(60)
        assert "ZeroDivisionError" in caplog.text

    def test_more_jobs_than_may_wait_are_not_taken_until_one_has_ended(self, threads):
        over = threading.Event()
        assert [threads.submit(over.wait, 60) for _ in range(5)] == [True] * 4 + [False]
        over.set()
        wait_until(lambda: threads.unfinished == 0)
        assert threads.submit(over.wait)

    def test_there_are_never_more_threads_than_said(self, threads):
        idents = set()
        for _ in range(50):
            wait_until(lambda: threads.submit(lambda: idents.add(threading.get_ident())))
        wait_until(lambda: threads.unfinished == 0)
        assert 1 <= len(idents) <= 2

    @pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
    def test_where_the_system_has_no_thread_left_a_job_gets_a_free_one_or_is_not_taken(
        self, threads, monkeypatch, error
    ):
        over, done = threading.Event(), threading.Event()

        def refuse(thread):
            raise error

        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            assert not threads.submit(done.set)
        assert threads.unfinished == 0
        assert threads.submit(over.wait, 60)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert not threads.submit(done.set)  # behind a job that may hang
        assert threads.unfinished == 1
        over.set()
        wait_until(lambda: threads.unfinished == 0)
        assert threads.submit(done.set)
        assert done.wait(60)

    def test_after_close_nothing_is_run(self):
        threads = DaemonThreads(1, "test", jobs=4)
        ran = queue.SimpleQueue()
        assert threads.submit(lambda: ran.put(threading.current_thread()))
        thread = ran.get(timeout=60)
        threads.close(60)
        assert not threads.submit(lambda: None)
        assert not thread.is_alive()

    def test_close_leaves_a_thread_behind_that_hangs(self, hang):
        threads = DaemonThreads(1, "test", jobs=4)
        assert threads.submit(hang)
        threads.close(0.01)  # returns, though `hang` goes on
        assert threads.unfinished == 1


class TestCircuitBreaker:
    def setup_method(self):
        self.now = 0.0
        self.breaker = CircuitBreaker("the thing", clock=lambda: self.now)

    def fail(self, times: int) -> None:
        """So many failures in a row that lasts long enough, and no second longer."""
        self.now -= CircuitBreaker.ROW_S
        for number in range(times):
            assert self.breaker.enter()
            if number == times - 1:
                self.now += CircuitBreaker.ROW_S
            self.breaker.record_failure("why")

    def fail_try(self) -> None:
        assert self.breaker.enter()
        self.breaker.record_failure("why")

    def test_opens_after_failures_in_a_row(self):
        self.fail(2)
        self.breaker.record_success()
        self.fail(2)
        assert self.breaker.enter()
        self.breaker.record_failure("why")
        assert not self.breaker.enter()
        assert not self.breaker.closed

    def test_failures_at_the_same_moment_do_not_open_it(self):
        for _ in range(20):
            assert self.breaker.enter()
            self.breaker.record_failure("why")
        self.now = CircuitBreaker.ROW_S - 0.01
        self.breaker.record_failure("why")
        assert self.breaker.closed
        self.now = CircuitBreaker.ROW_S
        self.breaker.record_failure("why")
        assert not self.breaker.closed

    def test_lets_one_call_try_after_the_pause(self):
        self.fail(3)
        self.now = 0.99
        assert not self.breaker.enter()
        self.now = 1.0
        assert self.breaker.enter()
        assert not self.breaker.enter()

    def test_a_try_that_fails_begins_another_pause(self):
        self.fail(3)
        self.now = 1.0
        self.fail_try()
        self.now = 1.99
        assert not self.breaker.enter()
        self.now = 2.0
        assert self.breaker.enter()

    def test_a_try_that_goes_well_closes_it(self):
        self.fail(3)
        self.now = 1.0
        assert self.breaker.enter()
        self.breaker.record_success()
        assert self.breaker.closed
        self.fail(2)
        assert self.breaker.closed

    def test_logs_once_that_it_fails_and_once_that_it_is_back(self, caplog):
        self.fail(3)
        for second in range(1, 5):
            self.now = float(second)
            self.fail_try()
        self.now = 5.0
        assert self.breaker.enter()
        self.breaker.record_success()
        self.breaker.record_success()
        assert caplog.messages == [
            "the thing fails (why): requests go past it until it is back",
            "the thing is back",
        ]


@pytest.fixture
def at_once(monkeypatch):
    """Failures need not last."""
    monkeypatch.setattr(CircuitBreaker, "ROW_S", 0.0)


@pytest.mark.usefixtures("at_once")
class TestTimedCalls:
    def setup_method(self):
        self.now = 100.0
        self.target = Guarded("the thing", callers=2)

    def calls(self, patience_s=LONG):
        return TimedCalls(patience_s, clock=lambda: self.now)

    def call(self, work, *pardoned):
        return self.calls().call(self.target, work, LONG, pardoned)

    def hanging(self, hang, budget_s=1.0):
        """A call that hangs on another thread, and its end."""
        calls, ended, began = self.calls(), queue.SimpleQueue(), threading.Event()

        def work():
            began.set()
            hang()

        def run():
            try:
                ended.put(calls.call(self.target, work, budget_s))
            except Bypassed as missed:
                ended.put(missed)

        threading.Thread(target=run, daemon=True).start()
        assert began.wait(60)
        return calls, ended

    def give_up(self, hang, times=1):
        for _ in range(times):
            calls, _ = self.hanging(hang)
            assert calls.give_up(self.now + 1.0)

    def test_an_error_is_told_with_its_cause(self):
        with pytest.raises(Bypassed, match="error: ZeroDivisionError") as caught:
            self.call(lambda: 1 // 0)
        assert isinstance(caught.value.cause, ZeroDivisionError)

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (Unavailable("judge: another checkpoint"), "error: judge: another checkpoint"),
            (InvalidArgument("what a client sent"), "error: InvalidArgument"),
        ],
    )
    def test_the_log_has_what_a_model_says_but_nothing_that_a_client_sent(self, error, told):
        with pytest.raises(Bypassed) as caught:
            self.call(Mock(side_effect=error))
        assert str(caught.value) == told

    def test_a_call_that_hangs_is_given_up_once_and_in_time_only(self, hang):
        calls, _ = self.hanging(hang)
        assert calls.until == 101.0
        assert [calls.give_up(now) for now in (100.9, 101.0, 102.0)] == [False, True, False]

    def test_what_returns_after_it_was_given_up_is_dropped_and_its_slot_is_free(self):
        over = threading.Event()
        ended = []
        for _ in range(2):
            calls, end = self.hanging(lambda: over.wait(60))
            assert calls.give_up(101.0)
            ended.append(end)
        over.set()
        assert [end.get(timeout=60).reason for end in ended] == ["timeout"] * 2
        assert self.call(lambda: "next") == "next"

    def test_what_returns_in_time_cannot_be_given_up(self):
        calls = self.calls()
        assert calls.call(self.target, lambda: 1, 1.0) == 1
        assert calls.until == math.inf
        assert not calls.give_up(1e9)

    def test_a_lookup_that_waits_too_long_for_its_thread_is_given_up(self):
        calls = self.calls(patience_s=3.0)
        assert calls.until == 103.0
        assert not calls.give_up(102.9)
        assert calls.give_up(103.0)
        assert self.target.breaker.closed
        begun = self.calls(patience_s=3.0)
        begun.begin()
        assert not begun.give_up(1e9)

    def test_timeouts_count_too_and_the_sentence_has_the_budget(self, hang, caplog):
        self.target = Guarded("the thing", callers=3)
        self.give_up(hang, times=3)
        assert reason(lambda: self.call(lambda: 1)) == "open"
        assert "the thing fails (timeout after 1000 ms)" in caplog.text

    def test_pardoned_errors_do_not_count(self):
        def refuses():
            raise ValueError("your fault")

        for _ in range(10):
            assert reason(lambda: self.call(refuses, ValueError)) == "error"
        assert self.target.breaker.closed

    def test_many_calls_at_once_do_not_count_against_it(self, hang):
        for _ in range(2):
            self.hanging(hang)
        for _ in range(10):
            assert reason(lambda: self.calls().call(self.target, lambda: 1, 0.001)) == "busy"
        assert self.target.breaker.closed

    def test_a_try_that_found_no_slot_leaves_room_for_the_next_try(self, hang):
        self.target.breaker = breaker = CircuitBreaker("the thing", clock=lambda: self.now)
        for _ in range(2):
            self.hanging(hang)
        for _ in range(3):
            breaker.record_failure("why")
        self.now += CircuitBreaker.PAUSE_S
        assert reason(lambda: self.calls().call(self.target, lambda: 1, 0.001)) == "busy"
        self.now += CircuitBreaker.PAUSE_S
        assert breaker.enter()
