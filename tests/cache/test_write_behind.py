"""Write-behind: the queue is bounded, a slow or broken store delays no request, and all is counted."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.cache.doubles import ScriptedStore, ask, fails
from tests.doubles.waiting import wait_until
from trimodal.cache import write_behind as module
from trimodal.cache.bounded_calls import CircuitBreaker
from trimodal.cache.metrics import STORED, CacheMetrics
from trimodal.cache.values import Entry, Question
from trimodal.cache.write_behind import WriteBehind
from trimodal.metrics import MemoryMetrics


def entry(finish_reason: str = "stop", answer: str = "yes") -> Entry:
    now = time.time()
    return Entry("what is a lambda", answer, finish_reason, 1, 64, now, now + 900)


class Bench:
    """A writer with all that it touches."""

    def __init__(self, vectors=None) -> None:
        self.store, self.metrics, self.breaker = ScriptedStore(), MemoryMetrics(), CircuitBreaker("the store")
        counts = CacheMetrics(self.metrics, "llm")
        self.writer = WriteBehind(self.store, vectors, counts, self.breaker)

    def put(self, question: Question, entry: Entry) -> None:
        self.writer.put(question.scope, question.key, entry)

    def count(self, outcome: str) -> float:
        return self.metrics.get("trimodal_cache_stored_total", {"model": "llm", "outcome": outcome}).value

    def settle(self, answers: int) -> None:
        wait_until(lambda: sum(map(self.count, STORED)) >= answers, "the writer")


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.store.before = lambda call: None
    bench.writer.close(10)


def test_close_writes_what_waits_and_then_closes_the_store(bench):
    for index in range(100):
        bench.put(ask(f"question {index}"), entry())
    bench.writer.close(60)
    assert len(bench.store.held) == bench.count("kept") == 100
    assert bench.store.closed.is_set()


def test_answers_beyond_the_queue_are_dropped_and_nobody_waits(bench, monkeypatch):
    over = threading.Event()
    began = threading.Event()

    def hang(call: str) -> None:
        began.set()
        over.wait(60)

    bench.store.before = hang
    bench.put(ask("first"), entry())
    assert began.wait(60)
    for index in range(module._WAITING + 7):
        bench.put(ask(f"question {index}"), entry())
    assert bench.count("dropped") == 7
    over.set()
    bench.settle(module._WAITING + 8)
    assert bench.count("kept") == module._WAITING + 1


def test_close_leaves_a_store_behind_that_hangs(bench):
    began, over = threading.Event(), threading.Event()
    bench.store.before = lambda call: began.set() or over.wait(60)
    bench.put(ask(), entry())
    assert began.wait(60)  # else, on a busy machine, the answer is dropped and nothing hangs
    bench.writer.close(0.01)  # returns, or the test's own limit ends it
    assert not bench.store.closed.is_set()
    over.set()
    assert bench.store.closed.wait(60)


def test_after_the_end_of_its_patience_what_waits_is_dropped(bench):
    over = threading.Event()
    bench.store.before = lambda call: over.wait(60)
    for index in range(5):
        bench.put(ask(f"question {index}"), entry())
    bench.writer.close(0.01)
    over.set()
    bench.settle(5)
    assert bench.count("dropped") >= 4
    assert bench.store.closed.wait(60)


def test_a_store_that_fails_is_counted_and_the_writer_goes_on(bench):
    bench.store.before = fails("put")
    bench.put(ask(), entry("length"))
    bench.settle(1)
    bench.store.before = lambda call: None
    bench.put(ask(), entry())
    bench.settle(2)
    assert (bench.count("failed"), bench.count("kept")) == (1, 1)


def test_while_the_store_is_left_alone_answers_wait(bench, caplog, monkeypatch):
    monkeypatch.setattr(CircuitBreaker, "ROW_S", 0.0)
    for _ in range(CircuitBreaker.FAILURES):
        bench.breaker.record_failure("why")
    bench.put(ask(), entry())
    bench.put(ask("too late"), replace(entry(), expires_at=time.time() - 1))
    assert bench.store.calls == []
    bench.breaker.record_success()
    bench.settle(2)
    assert (bench.count("kept"), bench.count("dropped")) == (1, 1)


def test_close_tries_a_store_once_more_that_was_left_alone(bench, caplog, monkeypatch):
    monkeypatch.setattr(CircuitBreaker, "ROW_S", 0.0)
    for _ in range(CircuitBreaker.FAILURES):
        bench.breaker.record_failure("why")
    bench.put(ask(), entry())
    bench.writer.close(60)
    assert bench.count("kept") == 1
    assert bench.store.closed.is_set()


def test_a_vector_that_cannot_be_had_fails_one_answer_alone():
    class FailsOnce:
        failed = False

        def take(self, key, text):
            if not self.failed:
                self.failed = True
                raise RuntimeError("no embedder")

    bench = Bench(FailsOnce())
    for _ in range(2):
        bench.put(ask(), entry())
    bench.writer.close(60)
    assert (bench.count("failed"), bench.count("kept")) == (1, 1)


def test_the_number_of_answers_is_shown(bench):
    bench.put(ask(), entry())
    bench.settle(1)
    gauge = bench.metrics.get("trimodal_cache_entries", {"model": "llm"})
    wait_until(lambda: gauge.value == 1, "the gauge")
    assert "stats" not in bench.store.calls  # they are counted one by one there: too much for a gauge
