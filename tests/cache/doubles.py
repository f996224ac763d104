"""A store of answers in a dictionary that can hang, fail and lie, for tests of what stands in front."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trimodal.cache.keys import question
from trimodal.cache.stores.base import StoreError
from trimodal.cache.values import Entry, Place, Question, StoreStats, Vector


class ScriptedStore:
    """Keeps all in memory. `before` runs in front of every call, named: it may wait or raise."""

    def __init__(self) -> None:
        self.held: dict[tuple[Place, str], tuple[Entry, Vector | None]] = {}
        self.before: Callable[[str], None] = lambda call: None
        self.calls: list[str] = []
        self.closed = threading.Event()

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)

    def get(self, place: Place, key: str) -> Entry | None:
        self._begin("get")
        return self.held[place, key][0] if (place, key) in self.held else None

    def nearest(self, place: Place, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        self._begin("nearest")
        here = [(e, v) for (where, _), (e, v) in self.held.items() if where == place and v is not None]
        return sorted(((float(v @ vector), e) for e, v in here), key=lambda one: -one[0])[:count]

    def put(self, place: Place, key: str, entry: Entry, vector: Vector | None) -> None:
        self._begin("put")
        self.held[place, key] = entry, vector

    def clear(self, **wanted: str | None) -> int:
        self._begin("clear")
        matching = [
            key
            for key in self.held
            if all(getattr(key[0], name) == value for name, value in wanted.items() if value is not None)
        ]
        for key in matching:
            del self.held[key]
        return len(matching)

    def count(self) -> int:
        self._begin("count")
        return len(self.held)

    def stats(self) -> StoreStats:
        self._begin("stats")
        return StoreStats(len(self.held), 0, len({place.tenant for place, _ in self.held}))

    def close(self) -> None:
        self.closed.set()


class ScriptedGuard:
    """Refuses with `reason`; keeps what it was asked."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.asked: list[tuple[str, str]] = []

    def judge(self, asked: str, stored: str, similarity: float = 0.0) -> str:
        self.asked.append((asked, stored))
        return self.reason


def fails(*calls: str) -> Callable[[str], None]:
    """A `before` that raises for these calls."""

    def before(call: str) -> None:
        if call in calls:
            raise StoreError("it is down")

    return before


def ask(text: str = "what is a lambda", **changes: object) -> Question:
    """A greedy raw prompt with `changes`."""
    values: dict[str, object] = {
        "tenant": "",
        "namespace": "default",
        "prompt": text,
        "messages": None,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "seed": None,
        "stops": (),
        "max_tokens": 64,
    }
    return question("0123456789abcdef", **{**values, **changes})  # type: ignore[arg-type]
