"""What schedules found, each as a schedule of its own that fails without the mend."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from tests.cache.doubles import ScriptedStore, ask
from tests.schedules.play import Scenario, play
from tests.schedules.scenarios.assistant import SAMPLES, TEMPLATE, Client, DrawnModels
from trimodal.assistant.metrics import AssistantMetrics
from trimodal.assistant.request import AskRequest
from trimodal.assistant.service import AssistantService
from trimodal.assistant.settings import AssistantSettings
from trimodal.cache.bounded_calls import Bypassed, CircuitBreaker, Guarded, TimedCalls
from trimodal.cache.metrics import STORED, CacheMetrics
from trimodal.cache.values import Entry
from trimodal.cache.write_behind import WriteBehind
from trimodal.metrics import MemoryMetrics


class GivenUpAsItBegins(Scenario):
    """A lookup waits too long for its thread and is given up just when it gets it, as a breaker lets one try.

    The breaker then waited for the end of that try, and all went past the cache until the server ended.
    """

    def run(self) -> None:
        self.target = Guarded("the store", 2)
        for _ in range(CircuitBreaker.FAILURES):
            self.target.breaker.record_failure("as drawn")
            time.sleep(CircuitBreaker.ROW_S)
        time.sleep(CircuitBreaker.PAUSE_S)
        self.calls = TimedCalls(0.0)
        threads = [threading.Thread(target=run) for run in (self._call, self._give_up)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _call(self) -> None:
        try:
            self.calls.call(self.target, lambda: None, 1.0)
        except Bypassed as missed:
            self.seen[missed.reason] += 1

    def _give_up(self) -> None:
        self.calls.give_up(time.perf_counter())

    def check(self) -> None:
        assert not self.target.breaker._trying


class KeptWhileItCloses(Scenario):
    """An answer is kept while the cache closes: it was queued behind the end, lost and not counted."""

    switching = ("trimodal.cache.write_behind",)

    def run(self) -> None:
        self.metrics = MemoryMetrics()
        counts = CacheMetrics(self.metrics, "llm")
        self.writer = WriteBehind(ScriptedStore(), None, counts, CircuitBreaker("the store"))
        threads = [threading.Thread(target=run) for run in (self._put, lambda: self.writer.close(5.0))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _put(self) -> None:
        question = ask()
        entry = Entry("what", "that", "stop", 1, 64, time.time(), time.time() + 60)
        self.writer.put(question.scope, question.key, entry)

    def check(self) -> None:
        made = [{"model": "llm", "outcome": outcome} for outcome in STORED]
        assert sum(self.metrics.get("trimodal_cache_stored_total", labels).value for labels in made) == 1


class AskedWhileItCloses(Scenario):
    """The assistant is closed before a request with a picture begins: it was logged as a defect."""

    def run(self) -> None:
        settings = AssistantSettings(template=str(TEMPLATE), cancel_poll_ms=2)
        models: Any = DrawnModels(random.Random(0))
        self.service = AssistantService(settings, models, AssistantMetrics(MemoryMetrics()))
        self.client = Client(random.Random(1))
        self.service.submit(AskRequest("a question", b"a file", SAMPLES), self.client)
        self.service.close()

    def check(self) -> None:
        assert self.client.sender.finals == 1


def test_a_breaker_waits_for_no_try_that_is_given_up() -> None:
    ends: Counter[str] = Counter()
    for seed in range(100):
        ends += play(GivenUpAsItBegins, seed).seen
    assert ends["timeout"] > 0


def test_an_answer_that_is_kept_while_the_cache_closes_is_counted() -> None:
    for seed in range(300):
        play(KeptWhileItCloses, seed)


def test_the_assistant_closes_without_a_defect() -> None:
    for seed in range(20):
        play(AskedWhileItCloses, seed)
