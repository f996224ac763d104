"""An AnswerCache over a scripted store, whose writer can be waited for and whose counts can be read."""

from __future__ import annotations

import time

from tests.cache.doubles import ScriptedGuard, ScriptedStore
from trimodal.cache.answers import AnswerCache
from trimodal.cache.embedder import FakeEmbedder
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.options import CacheOptions
from trimodal.metrics import MemoryMetrics

LONG = 30.0  # seconds: a budget that nothing healthy here uses up
PARAPHRASE = "lambda a is what"  # the words of `ask()`'s question: one vector for the fake embedder


class Rig:
    """Everything of one cache; `keep` returns when its answer is stored."""

    def __init__(
        self, mode="semantic", *, embedder=None, guard=None, threshold=0.9, default_guard=False, **options
    ):
        self.store, self.metrics = ScriptedStore(), MemoryMetrics()
        self.guard = guard or ScriptedGuard()
        self.embedder = embedder or FakeEmbedder(4096)
        budgets = {"budget_s": LONG, "embedding_budget_s": LONG, "ttls": {"default": 900.0, "live": 1.0}}
        self.cache = AnswerCache(
            CacheOptions(mode, "unused", **{**budgets, **options}),
            self.embedder,
            CacheMetrics(self.metrics, "llm"),
            store=self.store,
            guard=None if default_guard else self.guard,
            threshold=threshold,
        )

    def keep(self, question, answer="An anonymous function.", finish_reason="stop", tokens=5):
        before = self.stored_in_all()
        self.cache.keep(question, answer, finish_reason, tokens)
        deadline = time.monotonic() + 60
        while self.stored_in_all() == before:
            assert time.monotonic() < deadline, "the writer did nothing"
            time.sleep(0.001)

    def count(self, name, **labels):
        return self.metrics.get(f"trimodal_cache_{name}", {"model": "llm", **labels}).value

    def stored_in_all(self):
        return sum(self.count("stored_total", outcome=o) for o in ("kept", "skipped", "dropped", "failed"))
