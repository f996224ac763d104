"""The semantic layer over a scripted store: threshold, judge, embeddings and what never reaches them."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cache.doubles import (
    PARAPHRASE,
    Alike,
    FakeEmbedder,
    ScriptedJudge,
    ask,
    calibration,
)
from trimodal.cache import decision
from trimodal.cache.answers import MAX_CHARACTERS
from trimodal.cache.bounded_calls import CircuitBreaker, DaemonThreads, TimedCalls
from trimodal.cache.decision import JUDGED
from trimodal.cache.embedder import VECTORS_KEPT, QuestionVectors
from trimodal.errors import InvalidArgument, SettingsError, Unavailable


class TestSemantic:
    def test_finds_what_means_the_same(self, rig):
        one = rig()
        one.keep(ask())
        hit = one.cache.lookup(ask(PARAPHRASE)).semantic()
        assert hit.kind == "semantic"
        assert hit.similarity == pytest.approx(1.0)
        assert hit.similarity <= 1.0
        assert one.judge.asked == [[(PARAPHRASE, "what is a lambda")]]
        assert one.count("lookups_total", layer="semantic", outcome="hit") == 1

    def test_is_none_with_mode_exact(self, rig):
        one = rig("exact")
        one.keep(ask())
        assert one.cache.lookup(ask()).semantic() is None
        assert "nearest" not in one.store.calls

    def test_what_is_far_never_reaches_the_judge(self, rig):
        one = rig()
        one.keep(ask("what is a lambda tell me everything about it now please and be quick"))
        assert one.cache.lookup(ask()).semantic() is None
        assert one.judge.asked == []
        assert one.count("refused_total", reason="threshold") == 1

    @pytest.mark.parametrize("scores", [(0.89, 0.1), (0.1, 0.89)])
    def test_a_refusal_is_counted_and_the_next_candidate_is_judged(self, rig, scores):
        one = rig(judge=ScriptedJudge(*scores))
        one.keep(ask())
        one.keep(ask("a lambda what is"))
        one.keep(ask("a is what lambda"))
        assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None
        assert [len(pairs) for pairs in one.judge.asked] == [1] * JUDGED
        assert one.count("refused_total", reason="judge") == 2
        assert one.count("lookups_total", layer="semantic", outcome="miss") == 1

    @pytest.mark.parametrize("scores", [(0.95,), (0.91, 0.92), (0.2, 0.95)])
    def test_the_first_that_is_not_refused_is_taken(self, rig, scores):
        one = rig(judge=ScriptedJudge(*scores))
        one.keep(ask(), answer="first")
        one.keep(ask("a lambda what is"), answer="second")
        hit = one.cache.lookup(ask(PARAPHRASE)).semantic()
        asked = [pair for (pair,) in one.judge.asked]
        at = next(at for at, score in enumerate(scores) if score > 0.9)
        assert len(asked) == at + 1
        assert hit.entry.text == asked[at][1]

    def test_one_budget_is_for_all_that_are_judged(self, rig, monkeypatch):
        class Slow(ScriptedJudge):
            def same(self, pairs):
                now[0] += 1e6  # seconds
                return super().same(pairs)

        now = [0.0]
        one = rig(judge=Slow(0.1))
        one.keep(ask())
        one.keep(ask("a lambda what is"))
        monkeypatch.setattr(decision, "time", SimpleNamespace(perf_counter=lambda: now[0]))
        assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None
        assert len(one.judge.asked) == 1

    @pytest.mark.parametrize("text", ["WHAT IS A LAMBDA", "What is  a lambda", "what's a lambda"])
    def test_the_same_after_the_normaliser_is_a_hit_without_the_judge(self, rig, text):
        one = rig(judge=ScriptedJudge(0.0), embedder=Alike())
        one.keep(ask())
        assert one.cache.lookup(ask(text)).semantic()
        assert one.judge.asked == []

    @pytest.mark.parametrize(
        ("stored", "asked"),
        [("what does grep -v do", "what does grep -V do"), ("if x:\n  a()\n  b()", "if x:\n  a()\nb()")],
    )
    def test_what_the_judge_does_not_see_is_never_a_hit(self, rig, stored, asked):
        one = rig(embedder=Alike())
        one.keep(ask(stored))
        assert one.cache.lookup(ask(asked)).semantic() is None
        assert one.judge.asked == []
        assert one.count("refused_total", reason="case") == 1

    @pytest.mark.parametrize(
        ("score", "languages", "found"),
        [(0.998, ("en",), 0), (0.999, ("en",), 1), (0.91, ("en", "de"), 1)],
    )
    def test_in_a_language_that_the_judge_does_not_read_it_must_be_surer(self, rig, score, languages, found):
        one = rig(judge=ScriptedJudge(score), calibrated=calibration(languages=languages))
        one.keep(ask("Wie setze ich mein Passwort zurück?"))
        assert bool(one.cache.lookup(ask("mein Passwort setze ich Wie zurück?")).semantic()) == bool(found)
        assert one.count("refused_total", reason="language") == 1 - found

    def test_a_cut_answer_is_not_kept_for_it(self, rig):
        one = rig()
        one.keep(ask(max_tokens=8), finish_reason="length", tokens=8)
        assert one.cache.lookup(ask(PARAPHRASE, max_tokens=8)).semantic() is None
        assert one.cache.lookup(ask(max_tokens=8)).exact()

    def test_an_answer_longer_than_wanted_is_passed_over(self, rig):
        one = rig()
        one.keep(ask(), tokens=20)
        assert one.cache.lookup(ask(PARAPHRASE, max_tokens=19)).semantic() is None
        assert one.judge.asked == []

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

    def test_a_raw_prompt_is_answered_by_itself_alone(self, rig):
        """One that ends otherwise goes on otherwise, though both are the same question to the judge."""
        one = rig()
        question = ask("The capital of France is", verbatim=True)
        assert one.cache.lookup(question).semantic() is None
        one.keep(question)
        for asked in ("The capital of France is?", "the capital of France is", "The capital of France is "):
            other = one.cache.lookup(ask(asked, verbatim=True))
            assert (other.exact(), other.semantic()) == (None, None)
        assert one.cache.lookup(question).exact()
        ((_, vector),) = one.store.held.values()
        assert vector is None, "nothing looks for it"
        assert one.count("lookups_total", layer="semantic", outcome="miss") == 0

    def test_a_similarity_that_is_no_number_is_below_every_threshold(self, rig):
        one = rig()
        one.keep(ask())
        one.store.nearest = lambda scope, vector, count: [
            (float("nan"), *next(iter(one.store.held.values()))[:1])
        ]
        assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None


class TestJudge:
    """What is wrong with the judge is a miss with a counter."""

    def test_a_slow_one_is_given_up_after_its_budget(self, rig):
        class Slow(ScriptedJudge):
            def same(self, pairs):
                assert lookup.until <= time.perf_counter() + 5
                lookup.give_up(math.inf)
                return super().same(pairs)

        one = rig(judge=Slow(), judge_budget_s=5)
        one.keep(ask())
        lookup = one.cache.lookup(ask(PARAPHRASE))
        assert lookup.semantic() is None
        assert one.count("bypassed_total", reason="timeout") == 1
        assert one.count("lookups_total", layer="semantic", outcome="bypass") == 1

    @pytest.mark.parametrize("error", [KeyError("judge"), Unavailable("the queue is full"), OSError()])
    def test_one_that_fails_is_a_bypass(self, rig, error):
        one = rig(judge=Failing(error))
        one.keep(ask())
        assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None
        assert one.count("bypassed_total", reason="error") == 1
        assert one.cache.lookup(ask()).exact()

    def test_it_has_a_breaker_of_its_own(self, rig, monkeypatch):
        monkeypatch.setattr(CircuitBreaker, "ROW_S", 0.0)
        one = rig(judge=Failing(OSError()))
        one.keep(ask())
        for _ in range(CircuitBreaker.FAILURES + 2):
            assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None
        assert one.count("bypassed_total", reason="open") == 2
        assert one.cache.lookup(ask("WHAT IS A LAMBDA")).semantic(), "needs no judge"

    def test_what_it_refuses_to_read_does_not_count_against_it(self, rig):
        one = rig(judge=Failing(InvalidArgument("question: 9000 bytes; at most 8192 are accepted")))
        one.keep(ask())
        for _ in range(9):
            assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None
        assert one.count("refused_total", reason="length") == 9
        assert one.count("bypassed_total", reason="open") == 0

    @pytest.mark.parametrize("lie", [math.nan, math.inf, -math.inf, 1.5, -1.0])
    def test_what_is_no_probability_is_no_hit(self, rig, lie):
        one = rig(judge=ScriptedJudge(lie))
        one.keep(ask())
        assert one.cache.lookup(ask(PARAPHRASE)).semantic() is None
        assert one.count("refused_total", reason="judge") == 1


class Failing(ScriptedJudge):
    def __init__(self, error):
        super().__init__()
        self._error = error

    def same(self, pairs):
        raise self._error


@pytest.mark.parametrize(("bound", "score", "found"), [(0.01, 0.91, 1), (0.01, 0.89, 0), (0.005, 0.91, 0)])
def test_the_threshold_follows_from_the_bound_on_false_hits(rig, bound, score, found):
    one = rig(judge=ScriptedJudge(score), max_false_hit=bound)
    one.keep(ask())
    assert bool(one.cache.lookup(ask(PARAPHRASE)).semantic()) == bool(found)


def test_a_bound_that_nothing_keeps_ends_the_start(rig):
    with pytest.raises(SettingsError, match="cache_max_false_hit 0.001"):
        rig(max_false_hit=0.001)


def test_only_the_vectors_of_the_last_questions_are_remembered():
    embedded = []

    def embed(text):
        embedded.append(text)
        return np.zeros(4, np.float32)

    threads = DaemonThreads(1, "test", jobs=1)
    vectors = QuestionVectors(embed, threads, callers=1, budget_s=30.0)
    for number in range(VECTORS_KEPT + 1):
        vectors.embed(f"key {number}", f"{number}", TimedCalls(30.0))
    embedded.clear()
    for number in (1, VECTORS_KEPT, 0):
        assert vectors.take(f"key {number}", f"{number}") is not None
    assert embedded == ["0"]
    threads.close(0)
