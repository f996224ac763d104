"""Schedules of what threads share beside the services: indexes of vectors, counted values for Triton."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any, ClassVar

from tests.cache.doubles import FakeEmbedder
from tests.schedules.play import Scenario
from tests.schedules.world import World
from trimodal.cache.stores.vector_index import VectorIndexes
from trimodal.triton.metrics import TritonMetrics

THREADS, CALLS = 4, 6


class Indexing(Scenario):
    """Threads use indexes of several scopes while others make room for them."""

    switching: ClassVar[tuple[str, ...]] = ("trimodal.cache.stores.vector_index",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.indexes = VectorIndexes(limit=5_000)
        self.vector = FakeEmbedder(8).embed("a")

    def run(self) -> None:
        draws = [random.Random(self.draw.random()) for _ in range(THREADS)]
        threads = [threading.Thread(target=self._work, args=(draw,)) for draw in draws]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, draw: random.Random) -> None:
        for _ in range(CALLS):
            what = draw.choice(("add", "add", "drop", "best", "clear"))
            self.seen[what] += 1
            if what == "clear":
                if draw.random() < 0.2:
                    self.indexes.clear()
                continue
            with self.indexes.use(draw.choice("pqr"), 8) as index:
                time.sleep(0)
                if what == "add":
                    index.add([draw.choice("abc")], self.vector[None], [time.time() + 60])
                elif what == "drop":
                    index.drop(["a", "b"])
                else:
                    index.best(self.vector, 2, time.time())

    def check(self) -> None:
        check_bytes(self.indexes)


class Counting(Scenario):
    """Threads count while another one carries what they counted to Triton."""

    switching: ClassVar[tuple[str, ...]] = ("trimodal.triton.metrics",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.shown: dict[str, Shown] = {}
        self.metrics = TritonMetrics(self, "m", "1")
        self.expected: Counter[str] = Counter()

    def MetricFamily(self, *, name: str, description: str, kind: Any) -> Any:  # noqa: N802
        """Triton's own, as pb_utils has it."""
        return Family(self, name)

    MetricFamily.COUNTER = MetricFamily.GAUGE = MetricFamily.HISTOGRAM = 0  # type: ignore[attr-defined]

    def run(self) -> None:
        draws = [random.Random(self.draw.random()) for _ in range(THREADS)]
        threads = [threading.Thread(target=self._work, args=(draw,)) for draw in draws]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.metrics.gauge("level", "", {}).set(7)
        self.metrics.close()

    def _work(self, draw: random.Random) -> None:
        for _ in range(CALLS):
            name = draw.choice(("count", "busy", "seen"))
            self.seen[name] += 1
            self.expected[name] += 1
            if name == "count":
                self.metrics.counter(name, "", {}).increment(1)
            elif name == "busy":
                self.metrics.gauge(name, "", {}).increment(1)
            else:
                self.metrics.histogram(name, "", {}, [1.0]).observe(1.0)
            self.metrics.gauge("level", "", {}).set(draw.random())
            time.sleep(draw.choice([0.0, 0.02, 0.06]))

    def check(self) -> None:
        for name, count in self.expected.items():
            assert self.shown[name].value == count, f"{name} shows {self.shown[name].value}, not {count}"
        assert self.shown["level"].value == 7


class Family:
    """A family whose series note what they are given, two calls at once being what ends the server."""

    def __init__(self, counting: Counting, name: str) -> None:
        self._counting, self._name = counting, name

    def Metric(self, *, labels: Any, **options: Any) -> Shown:  # noqa: N802
        """A new series of it."""
        time.sleep(0)
        assert self._name not in self._counting.shown
        return self._counting.shown.setdefault(self._name, Shown())


class Shown:
    """What the server shows of one series."""

    def __init__(self) -> None:
        self.value = 0.0
        self._inside = False

    def increment(self, value: float) -> None:
        self._call()
        self.value += value

    def set(self, value: float) -> None:
        self._call()
        self.value = value

    def observe(self, value: float) -> None:
        self.increment(1)

    def _call(self) -> None:
        assert not self._inside, "two calls into one metric at once"
        self._inside = True
        time.sleep(0)
        self._inside = False


def check_bytes(indexes: VectorIndexes) -> None:
    """What is counted is what is there."""
    assert set(indexes._bytes) == set(indexes._indexes), "an index is held that is not counted"
    assert indexes._total == sum(indexes._bytes.values())
    assert all(indexes._bytes[name] == index.nbytes for name, index in indexes._indexes.items())
