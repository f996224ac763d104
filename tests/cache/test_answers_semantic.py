"""The semantic layer over a scripted store: threshold, guard, embeddings and what never reaches them."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest

from tests.cache.doubles import LONG, PARAPHRASE, FakeEmbedder, ScriptedGuard, ScriptedStore, ask
from trimodal.cache import calibration
from trimodal.cache.answers import MAX_CHARACTERS, AnswerCache
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.options import CacheOptions
from trimodal.cache.values import Entry
from trimodal.errors import SettingsError
from trimodal.metrics import MemoryMetrics


class TestSemantic:
    def test_finds_what_means_the_same(self, rig):
        one = rig()
        one.keep(ask())
        hit = one.cache.lookup(ask(PARAPHRASE)).semantic()
        assert hit.kind == "semantic"
        assert hit.similarity == pytest.approx(1.0)
        assert hit.similarity <= 1.0
        assert one.guard.asked == [(PARAPHRASE, "what is a lambda")]
        assert one.count("lookups_total", layer="semantic", outcome="hit") == 1

    def test_is_none_with_mode_exact(self, rig):
        one = rig("exact")
        one.keep(ask())
        assert one.cache.lookup(ask()).semantic() is None
        assert "nearest" not in one.store.calls

    def test_below_the_threshold_the_guard_is_not_even_asked(self, rig):
        one = rig()
        one.keep(ask("what is a lambda tell me everything about it"))
        assert one.cache.lookup(ask()).semantic() is None
        assert one.guard.asked == []
        assert one.count("refused_total", reason="threshold") == 1

    def test_a_refusal_is_counted_by_its_reason_and_the_next_candidate_is_judged(self, rig):
        one = rig(guard=ScriptedGuard("number"))
        one.keep(ask())
        one.keep(ask("a lambda what is"))
        assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None
        assert one.count("refused_total", reason="number") == 2
        assert one.count("lookups_total", layer="semantic", outcome="miss") == 1

    def test_the_second_nearest_is_taken_when_the_first_is_refused(self, rig):
        class Second(ScriptedGuard):
            def judge(self, asked, stored, similarity):
                super().judge(asked, stored, similarity)
                return "name" if len(self.asked) == 1 else ""

        one = rig(guard=Second())
        one.keep(ask(), answer="first")
        one.keep(ask("a lambda what is"), answer="second")
        hit = one.cache.lookup(ask(PARAPHRASE)).semantic()
        assert hit.entry.text == one.guard.asked[1][1]

    def test_a_reason_that_nobody_foresaw_makes_no_new_label(self, rig):
        one = rig(guard=ScriptedGuard("tenant-secret"))
        one.keep(ask())
        one.cache.lookup(ask(PARAPHRASE)).semantic()
        assert one.count("refused_total", reason="other") == 1
        assert not [series for series in one.metrics.series if "tenant-secret" in repr(series)]

    def test_a_cut_answer_is_not_kept_for_it(self, rig):
        one = rig()
        one.keep(ask(max_tokens=8), finish_reason="length", tokens=8)
        assert one.cache.lookup(ask(PARAPHRASE, max_tokens=8)).semantic() is None
        assert one.cache.lookup(ask(max_tokens=8)).exact()

    def test_an_answer_longer_than_wanted_is_passed_over(self, rig):
        one = rig()
        one.keep(ask(), tokens=20)
        assert one.cache.lookup(ask(PARAPHRASE, max_tokens=19)).semantic() is None
        assert one.guard.asked == []

    def test_the_vector_of_a_lookup_is_used_again_when_its_answer_is_kept(self, rig):
        class Counting(FakeEmbedder):
            calls = 0

            def embed(self, text):
                type(self).calls += 1
                return super().embed(text)

        one = rig(embedder=Counting())
        one.cache.lookup(ask()).semantic()
        one.keep(ask())
        assert Counting.calls == 1
        assert one.cache.lookup(ask(PARAPHRASE)).semantic()

    def test_a_question_that_was_not_looked_up_is_embedded_when_it_is_kept(self, rig):
        one = rig()
        one.keep(ask())
        assert one.cache.lookup(ask(PARAPHRASE)).semantic()

    def test_a_slow_embedding_is_waited_for_when_its_answer_is_kept(self, rig):
        class Slow(FakeEmbedder):
            def embed(self, text):
                time.sleep(0.05)
                return super().embed(text)

        one = rig(embedder=Slow(), embedding_budget_s=0.001)
        one.keep(ask())
        ((_, vector),) = one.store.held.values()
        assert vector is not None

    def test_an_embedding_that_comes_too_late_for_its_lookup_is_kept_with_the_answer(self, rig):
        class Late(FakeEmbedder):
            calls = 0

            def embed(self, text):
                type(self).calls += 1
                lookup.give_up(math.inf)
                return super().embed(text)

        one = rig(embedder=Late())
        lookup = one.cache.lookup(ask())
        assert lookup.semantic() is None
        one.keep(ask())
        ((_, vector),) = one.store.held.values()
        assert (Late.calls, vector is not None) == (1, True)

    def test_a_megabyte_never_reaches_the_embedder(self, rig):
        class Refusing(FakeEmbedder):
            def embed(self, text):
                assert len(text) <= MAX_CHARACTERS
                return super().embed(text)

        one = rig(embedder=Refusing())
        question = ask("x" * 1_000_000)
        assert one.cache.lookup(question).semantic() is None
        one.keep(question)
        assert one.cache.lookup(question).exact()
        assert one.cache.lookup(ask("x" * 1_000_001)).exact() is None
        ((entry, vector),) = one.store.held.values()
        assert len(entry.text) < 100
        assert vector is None
        assert one.count("refused_total", reason="length") == 1
        assert one.count("lookups_total", layer="semantic", outcome="miss") == 1

    def test_a_similarity_that_is_no_number_is_below_every_threshold(self, rig):
        one = rig()
        one.keep(ask())
        one.store.nearest = lambda place, vector, count: [
            (float("nan"), *next(iter(one.store.held.values()))[:1])
        ]
        assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None

    def test_it_needs_an_embedder(self):
        with pytest.raises(SettingsError, match="embedder"):
            AnswerCache(
                CacheOptions("semantic", ""),
                None,
                CacheMetrics(MemoryMetrics(), "llm"),
                store=ScriptedStore(),
            )


@pytest.fixture
def calibrated(monkeypatch, tmp_path):
    """The shipped calibration is for the fake embedder: 1 % from a cosine of 0.75 on, 0.1 % from none."""
    points = [
        {"threshold": cosine, "hit_rate": 0.5, "false_hits": 1, "false_hit_upper": upper}
        for cosine, upper in ((0.5, 0.05), (0.75, 0.01), (0.95, 0.005))
    ]
    values = {
        "checkpoint_sha256": "fake", "pairs": "p.jsonl", "paraphrases": 9, "hard_negatives": 9,
        "curve": points,
    }  # fmt: skip
    (tmp_path / "calibration.json").write_text(json.dumps(values))
    monkeypatch.setattr(calibration, "SHIPPED", tmp_path / "calibration.json")


def cache(bound, embedder=None, calibration=None, guard=None):
    options = CacheOptions(
        "semantic",
        "",
        budget_s=LONG,
        embedding_budget_s=LONG,
        max_false_hit=bound,
        calibration=calibration,
    )
    embedder, store = embedder or FakeEmbedder(4096), ScriptedStore()
    counts, guard = CacheMetrics(MemoryMetrics(), "llm"), guard or ScriptedGuard()
    return AnswerCache(options, embedder, counts, store=store, guard=guard)


@pytest.mark.parametrize(
    ("bound", "similarity", "found"), [(0.01, 0.76, 1), (0.01, 0.74, 0), (0.005, 0.76, 0)]
)
def test_the_threshold_follows_from_the_bound_on_false_hits(calibrated, bound, similarity, found):
    one = cache(bound)
    question = ask("How do I reset my password?")
    entry = Entry(question.text, "yes", "stop", 1, 64, time.time(), time.time() + 900)
    one._store.nearest = lambda place, vector, count: [(similarity, entry)]
    assert bool(one.lookup(ask("HOW DO I RESET MY PASSWORD?")).semantic()) == bool(found)
    one.close()


def test_a_bound_that_nothing_keeps_or_another_checkpoint_ends_the_start(calibrated):
    with pytest.raises(SettingsError, match="cache_max_false_hit 0.001"):
        cache(0.001)
    other = FakeEmbedder()
    other.checkpoint = "another"
    with pytest.raises(SettingsError, match="another"):
        cache(0.01, other)


def test_without_a_guard_of_ones_own_the_packages_judges(rig):
    one = rig(guard=None, threshold=-1.0, default_guard=True)
    one.keep(ask("How do I enable dark mode?"))
    assert one.cache.lookup(ask("How do I disable dark mode?")).semantic() is None
    assert one.cache.lookup(ask("HOW DO I ENABLE DARK MODE?")).semantic()


def test_a_calibration_of_the_operators_own_is_read_instead(calibrated, tmp_path):
    with pytest.raises(SettingsError, match="own.json"):
        cache(0.01, calibration=tmp_path / "own.json")
    (tmp_path / "calibration.json").rename(tmp_path / "own.json")
    one = cache(0.01, calibration=tmp_path / "own.json")
    assert one._threshold == 0.75
    one.close()


def test_vectors_are_remembered_in_bounds(rig):
    one = rig()
    for index in range(1100):
        one.cache._vectors._kept[f"old {index}"] = np.zeros(4, np.float32)
    one.cache.lookup(ask()).semantic()
    assert len(one.cache._vectors._kept) == 1024
