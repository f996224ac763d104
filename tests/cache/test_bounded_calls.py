"""Calls with a time limit: abandoned when they hang, and left alone for a while after failures in a row."""

from __future__ import annotations

import threading

import pytest

from trimodal.cache.bounded_calls import Breaker, Bypassed, Guarded, Workers

LONG = 30.0  # seconds: a budget that nothing here uses up


@pytest.fixture
def hang():
    """`hang()` waits until the test is over."""
    over = threading.Event()
    yield lambda: over.wait(60)
    over.set()


@pytest.fixture
def workers():
    workers = Workers(2, "test")
    yield workers
    workers.close()


def reason(call) -> str:
    with pytest.raises(Bypassed) as caught:
        call()
    return caught.value.reason


class TestWorkers:
    def test_hand_back_what_the_call_returns(self, workers):
        assert [workers.call(lambda n=n: n * n, LONG) for n in range(5)] == [0, 1, 4, 9, 16]

    def test_an_error_is_told_with_its_cause(self, workers):
        with pytest.raises(Bypassed, match="error: ZeroDivisionError") as caught:
            workers.call(lambda: 1 // 0, LONG)
        assert isinstance(caught.value.cause, ZeroDivisionError)

    def test_a_call_that_hangs_is_abandoned_and_others_go_on(self, workers, hang):
        assert reason(lambda: workers.call(hang, 0.01)) == "timeout"
        assert workers.call(lambda: "next", LONG) == "next"

    def test_when_all_threads_hang_the_next_call_is_told_so(self, workers, hang):
        for _ in range(2):
            assert reason(lambda: workers.call(hang, 0.01)) == "timeout"
        assert reason(lambda: workers.call(lambda: 1, 0.01)) == "busy"

    def test_a_thread_whose_call_ended_late_is_used_again(self, workers):
        ended = threading.Event()
        for _ in range(2):
            assert reason(lambda: workers.call(lambda: ended.wait(60), 0.01)) == "timeout"
        ended.set()
        assert workers.call(threading.get_ident, LONG)

    def test_there_are_never_more_threads_than_said(self, workers):
        idents = set()
        together = threading.Barrier(8)

        def caller():
            together.wait(LONG)
            for _ in range(20):
                idents.add(workers.call(threading.get_ident, LONG))

        callers = [threading.Thread(target=caller) for _ in range(8)]
        for one in callers:
            one.start()
        for one in callers:
            one.join(60)
        assert 1 <= len(idents) <= 2

    def test_after_close_nothing_is_called(self):
        workers = Workers(1, "test")
        ran = workers.call(threading.current_thread, LONG)
        workers.close()
        assert reason(lambda: workers.call(lambda: 1, LONG)) == "busy"
        ran.join(60)
        assert not ran.is_alive()


class TestBreaker:
    def setup_method(self):
        self.now = 0.0
        self.breaker = Breaker("the thing", clock=lambda: self.now)

    def fail(self, times: int) -> None:
        """So many failures in a row that lasts long enough, and no second longer."""
        self.now -= Breaker.ROW_S
        for number in range(times):
            assert self.breaker.enter()
            if number == times - 1:
                self.now += Breaker.ROW_S
            self.breaker.bad("why")

    def fail_try(self) -> None:
        assert self.breaker.enter()
        self.breaker.bad("why")

    def test_opens_after_failures_in_a_row(self):
        self.fail(2)
        self.breaker.good()
        self.fail(2)
        assert self.breaker.enter()
        self.breaker.bad("why")
        assert not self.breaker.enter()
        assert not self.breaker.closed

    def test_failures_at_the_same_moment_do_not_open_it(self):
        for _ in range(20):
            assert self.breaker.enter()
            self.breaker.bad("why")
        self.now = Breaker.ROW_S - 0.01
        self.breaker.bad("why")
        assert self.breaker.closed
        self.now = Breaker.ROW_S
        self.breaker.bad("why")
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
        self.breaker.good()
        assert self.breaker.closed
        self.fail(2)
        assert self.breaker.closed

    def test_says_once_that_it_fails_and_once_that_it_is_back(self, capfd):
        self.fail(3)
        for second in range(1, 5):
            self.now = float(second)
            self.fail_try()
        self.now = 5.0
        assert self.breaker.enter()
        self.breaker.good()
        self.breaker.good()
        assert capfd.readouterr().err.splitlines() == [
            "trimodal: the thing fails (why): requests go past it until it is back",
            "trimodal: the thing is back",
        ]


@pytest.fixture
def at_once(monkeypatch):
    """Failures need not last."""
    monkeypatch.setattr(Breaker, "ROW_S", 0.0)


@pytest.mark.usefixtures("at_once")
class TestGuarded:
    def test_after_failures_in_a_row_nothing_is_tried(self, workers):
        calls = []

        def fails():
            calls.append(1)
            raise OSError("down")

        guarded = Guarded("the thing", workers)
        reasons = [reason(lambda: guarded.call(fails, LONG)) for _ in range(5)]
        assert reasons == ["error"] * 3 + ["open"] * 2
        assert len(calls) == 3

    def test_timeouts_count_too_and_the_sentence_has_the_budget(self, hang, capfd):
        guarded = Guarded("the thing", Workers(3, "test"))
        assert [reason(lambda: guarded.call(hang, 0.01)) for _ in range(4)] == ["timeout"] * 3 + ["open"]
        assert "the thing fails (timeout after 10 ms)" in capfd.readouterr().err

    def test_pardoned_errors_do_not_count(self, workers):
        def refuses():
            raise ValueError("your fault")

        guarded = Guarded("the thing", workers)
        for _ in range(10):
            assert reason(lambda: guarded.call(refuses, LONG, (ValueError,))) == "error"
        assert guarded.breaker.closed

    def test_many_calls_at_once_do_not_count_against_it(self, workers, hang):
        guarded = Guarded("the thing", workers)
        for _ in range(2):
            reason(lambda: workers.call(hang, 0.01))
        for _ in range(10):
            assert reason(lambda: guarded.call(lambda: 1, 0.001)) == "busy"
        assert guarded.breaker.closed

    def test_a_try_that_found_no_thread_leaves_room_for_the_next_try(self, workers, hang):
        guarded = Guarded("the thing", workers)
        for _ in range(3):
            guarded.breaker.bad("why")
        guarded.breaker._until = 0.0  # The pause is over.
        for _ in range(2):
            reason(lambda: workers.call(hang, 0.01))
        assert reason(lambda: guarded.call(lambda: 1, 0.001)) == "busy"
        guarded.breaker._until = 0.0
        assert guarded.breaker.enter()
