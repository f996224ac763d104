"""Schedules of the cache alone: lookups on its threads, one that gives them up, a store that fails."""

from __future__ import annotations

import random
import threading
import time
from typing import ClassVar

from tests.cache.doubles import ask
from tests.schedules.play import Scenario
from tests.schedules.scenarios.misbehaving import real_cache
from tests.schedules.world import World
from trimodal.cache.answers import AnswerCache, AnswerLookup
from trimodal.cache.metrics import LAYERS, OUTCOMES, STORED
from trimodal.metrics import MemoryMetrics

CLIENTS, LOOKUPS = 4, 5
POLL_S = 0.02


class Lookups(Scenario):
    """Clients look questions up and keep answers; what takes too long is given up, as the service does it."""

    stall_s = 0.2
    comes_to = ("exact", "semantic", "miss", "given up", "skipped")
    switching: ClassVar[tuple[str, ...]] = (
        *("trimodal.cache.answers", "trimodal.cache.bounded_calls"),
        *("trimodal.cache.embedder", "trimodal.cache.write_behind"),
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.metrics = MemoryMetrics()
        self.answers = real_cache(random.Random(self.draw.random()), self.metrics)
        self.lock = threading.Lock()
        self.open: dict[AnswerLookup, None] = {}
        self.ended = self.submitted = self.kept = 0
        self.over = threading.Event()

    def run(self) -> None:
        draws = [random.Random(self.draw.random()) for _ in range(CLIENTS)]
        clients = [threading.Thread(target=self._ask_all, args=(draw,), name="client") for draw in draws]
        monitor = threading.Thread(target=self._give_up_all, name="monitor")
        for thread in (*clients, monitor):
            thread.start()
        if self.draw.random() < 0.2:
            time.sleep(self.draw.choice([0.0, 0.1, 1.0]))
            self.answers.close()
        for thread in clients:
            thread.join()
        self.world.settle(lambda: not self.open, 10.0)
        self.over.set()
        monitor.join()
        self.answers.close(10.0)

    def _ask_all(self, draw: random.Random) -> None:
        for _ in range(LOOKUPS):
            question = ask(draw.choice(["what is a lambda", "a lambda is what", "why"]))
            lookup = self.answers.lookup(question)
            with self.lock:
                self.open[lookup] = None
                self.submitted += 1
            if not self.answers.submit(self._look_up, lookup):
                self._end(lookup, "skipped")
            if draw.random() < 0.5:
                self.kept += 1
                self.answers.keep(question, "An anonymous function.", draw.choice(["stop", "length"]), 5)
            time.sleep(draw.choice([0.0, 0.01, 0.3, 1.2]))

    def _look_up(self, lookup: AnswerLookup) -> None:
        for layer in (lookup.exact, lookup.semantic):
            with self.lock:
                if lookup not in self.open:
                    return
            if hit := layer():
                self._end(lookup, hit.kind)
                return
        self._end(lookup, "miss")

    def _give_up_all(self) -> None:
        while not self.over.wait(POLL_S):
            now = time.perf_counter()
            for lookup in list(self.open):
                if lookup.give_up(now):
                    self._end(lookup, "given up")

    def _end(self, lookup: AnswerLookup, how: str) -> bool:
        with self.lock:
            if lookup not in self.open:
                return False
            del self.open[lookup]
            self.ended += 1
            self.seen[how] += 1
            return True

    def check(self) -> None:
        assert (self.open, self.ended) == ({}, self.submitted), "a lookup has no end"
        check_cache(self.answers, self.metrics)
        assert self._count("stored_total", "outcome", STORED) == self.kept, "each answer is counted once"

    def _count(self, name: str, label: str, values: tuple[str, ...]) -> float:
        made = ({"model": "llm", label: value} for value in values)
        return sum(self.metrics.get(f"trimodal_cache_{name}", labels).value for labels in made)


def check_cache(answers: AnswerCache, metrics: MemoryMetrics) -> None:
    """Every slot is back, no breaker waits for the end of a try that nobody makes, no lookup counts twice."""
    assert answers.threads.unfinished == 0, f"{answers.threads.unfinished} jobs are counted as under way"
    assert answers._vectors
    assert answers._decider
    limited = ((answers._at_store, 8), (answers._vectors._guarded, 6), (answers._decider._guarded, 6))
    for guarded, slots in limited:
        assert guarded.slots._value == slots, "a slot is not back, or came back twice"
        assert not guarded.breaker._trying, "the breaker waits for a try that nobody makes"
    for layer in LAYERS:
        seconds = metrics.get("trimodal_cache_lookup_seconds", {"model": "llm", "layer": layer})
        outcomes = ({"model": "llm", "layer": layer, "outcome": outcome} for outcome in OUTCOMES)
        counted = sum(metrics.get("trimodal_cache_lookups_total", labels).value for labels in outcomes)
        assert counted == len(seconds.observations), "a lookup is counted twice, or not at all"
