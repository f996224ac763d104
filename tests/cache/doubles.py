"""An AnswerCache over a store in a dictionary that can hang, fail and lie, with counts that can be read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from tests.doubles.pb_utils import Tensor, TritonError
from tests.doubles.waiting import wait_until
from trimodal.cache.answers import AnswerCache, CacheOptions
from trimodal.cache.calibration import Calibration
from trimodal.cache.keys import question
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.stores.base import Owner, StoreError
from trimodal.cache.values import CacheScope, Entry, Question, StoreStats, Vector
from trimodal.metrics import MemoryMetrics

LONG = 30.0  # seconds: a budget that nothing healthy here uses up
PARAPHRASE = "lambda a is what"  # the words of `ask()`'s question: one vector for the fake embedder


class FakeEmbedder:
    """A unit vector that the text's words decide: texts with the same words are alike, in whatever order."""

    def __init__(self, dimension: int = 64) -> None:
        self._dimension = dimension

    def embed(self, text: str) -> Vector:
        vector = np.full(self._dimension, 1e-3, np.float32)
        for word in text.lower().split():
            vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % self._dimension] += 1
        return (vector / np.linalg.norm(vector)).astype(np.float32)


class Alike(FakeEmbedder):
    """One vector for every text."""

    def embed(self, text: str) -> Vector:
        return super().embed("")


class TritonStub:
    """The stub of another model: answers every call with `output` or `error`, and keeps what was asked."""

    Tensor, TritonError = Tensor, TritonError

    def __init__(self, output=None, error=None):
        self.asked = []
        self.output = output
        told = error and SimpleNamespace(code=lambda: error.code, message=error.message)
        self.response = SimpleNamespace(has_error=lambda: error is not None, error=lambda: told)

    def InferenceRequest(self, **request):  # noqa: N802
        self.asked.append(request)
        return SimpleNamespace(exec=lambda: self.response)

    def get_output_tensor_by_name(self, response, name):
        return Tensor(name, self.output)


class ScriptedStore:
    """Keeps all in memory. `before` runs in front of every call, named: it may wait or raise."""

    def __init__(self) -> None:
        self.held: dict[tuple[CacheScope, str], tuple[Entry, Vector | None]] = {}
        self.before: Callable[[str], None] = lambda call: None
        self.calls: list[str] = []
        self.closed = threading.Event()

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        self._begin("get")
        return self.held[scope, key][0] if (scope, key) in self.held else None

    def nearest(self, scope: CacheScope, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        self._begin("nearest")
        here = [(e, v) for (where, _), (e, v) in list(self.held.items()) if where == scope and v is not None]
        return sorted(((float(v @ vector), e) for e, v in here), key=lambda one: -one[0])[:count]

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        self._begin("put")
        self.held[scope, key] = entry, vector

    def clear(self, owner: Owner) -> int:
        self._begin("clear")
        matching = [
            key
            for key in self.held
            if all(value in (None, getattr(key[0], name)) for name, value in owner._asdict().items())
        ]
        for key in matching:
            del self.held[key]
        return len(matching)

    def count(self) -> int:
        self._begin("count")
        return len(self.held)

    def stats(self) -> StoreStats:
        self._begin("stats")
        return StoreStats(len(self.held), len({scope.tenant for scope, _ in self.held}))

    def close(self) -> None:
        self.closed.set()


class ScriptedJudge:
    """Gives `scores` in turn, the last one again and again; keeps what it was asked, call by call."""

    def __init__(self, *scores: float) -> None:
        self._scores = list(scores or (1.0,))
        self.asked: list[list[tuple[str, str]]] = []

    def same(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        self.asked.append(list(pairs))
        return [self._scores.pop(0) if len(self._scores) > 1 else self._scores[0] for _ in pairs]


def calibration(**changes: object) -> Calibration:
    """Of a fake judge: 1 % of false hits from 0.9 on, half a percent from 0.99 on."""
    points = [
        {"threshold": threshold, "hit_rate": 0.5, "false_hits": 1, "false_hit_upper": upper}
        for threshold, upper in ((0.5, 0.05), (0.9, 0.01), (0.99, 0.005))
    ]
    values = {
        "checkpoint_sha256": "fake", "reading": "shorter_first", "pairs": "p.jsonl", "paraphrases": 9,
        "hard_negatives": 9, "curve": points,
    }  # fmt: skip
    return Calibration.model_validate({**values, **changes})


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


class Rig:
    """Everything of one cache; `keep` returns when its answer is stored."""

    def __init__(self, mode="semantic", *, store=None, embedder=None, judge=None, calibrated=None, **options):
        self.store, self.metrics = store or ScriptedStore(), MemoryMetrics()
        self.judge = judge or ScriptedJudge()
        self.embedder = embedder or FakeEmbedder(4096)
        budgets = {"budget_s": LONG, "embedding_budget_s": LONG, "judge_budget_s": LONG}
        options = {**budgets, "ttls": {"default": 900.0, "live": 1.0}, **options}
        self.cache = AnswerCache(
            CacheOptions("unused", **options),
            self.embedder.embed if mode == "semantic" else None,
            CacheMetrics(self.metrics, "llm"),
            same=self.judge.same,
            calibration=calibrated or calibration(),
            store=self.store,
        )

    def keep(self, question, answer="An anonymous function.", finish_reason="stop", tokens=5):
        before = self.stored_in_all()
        self.cache.keep(question, answer, finish_reason, tokens)
        wait_until(lambda: self.stored_in_all() != before, "the writer")

    def count(self, name, **labels):
        return self.metrics.get(f"trimodal_cache_{name}", {"model": "llm", **labels}).value

    def stored_in_all(self):
        return sum(self.count("stored_total", outcome=o) for o in ("kept", "skipped", "dropped", "failed"))
