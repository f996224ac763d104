"""The exact layer over a scripted store, and what is kept: for whom, how long, and what is not."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace

import pytest

from tests.cache.doubles import FakeEmbedder, ask, fails
from trimodal.cache.answers import CacheOptions
from trimodal.cache.bounded_calls import CircuitBreaker
from trimodal.cache.values import Entry
from trimodal.errors import InvalidArgument


class TestExact:
    def test_finds_what_was_kept(self, rig):
        one = rig("exact")
        assert one.cache.lookup(ask()).exact() is None
        one.keep(ask())
        hit = one.cache.lookup(ask("  what is a lambda \n")).exact()
        assert (hit.kind, hit.similarity, hit.entry.answer) == ("exact", 1.0, "An anonymous function.")
        assert one.count("lookups_total", layer="exact", outcome="hit") == 1
        assert one.count("lookups_total", layer="exact", outcome="miss") == 1
        assert (
            len(
                one.metrics.get(
                    "trimodal_cache_lookup_seconds", {"model": "llm", "layer": "exact"}
                ).observations
            )
            == 2
        )

    def test_cut_answers_of_several_lengths_and_a_whole_one_lie_side_by_side(self, rig):
        one = rig("exact")
        for length in (4, 8):
            one.keep(ask(max_tokens=length), f"cut at {length}", "length", length)
        one.keep(ask(max_tokens=64), "whole", "stop", 20)
        found = {length: one.cache.lookup(ask(max_tokens=length)).exact() for length in (4, 6, 8, 19, 20, 64)}
        answers = {length: hit and hit.entry.answer for length, hit in found.items()}
        assert answers == {4: "cut at 4", 6: None, 8: "cut at 8", 19: None, 20: "whole", 64: "whole"}

    def test_what_the_store_should_have_dropped_is_none(self, rig):
        one = rig("exact")
        one.keep(ask())
        ((key, (entry, vector)),) = one.store.held.items()
        one.store.held[key] = replace(entry, expires_at=time.time() - 1), vector
        assert one.cache.lookup(ask()).exact() is None

    def test_a_store_that_mixes_up_its_keys_gives_nobody_another_answer(self, rig):
        one = rig("exact")
        one.keep(ask("how do I enable it?"))
        question = ask("how do I disable it?")
        one.store.held[question.scope, question.key] = next(iter(one.store.held.values()))
        assert one.cache.lookup(question).exact() is None


class TestKeep:
    @pytest.mark.parametrize(
        ("answer", "finish_reason"),
        [("", "stop"), ("x", "cancelled"), ("x", "deadline"), ("x", "error"), ("x", ""), ("é" * 33, "stop")],
    )
    def test_nothing_but_whole_answers_of_a_size(self, rig, answer, finish_reason):
        one = rig("exact", max_answer_bytes=64)
        one.keep(ask(), answer, finish_reason)
        assert one.store.held == {}
        assert one.count("stored_total", outcome="skipped") == 1

    def test_it_lives_as_long_as_its_namespace_says(self, rig):
        one = rig("exact")
        for namespace, seconds in (("default", 900), ("live", 1), ("unheard of", 900)):
            one.keep(ask(namespace=namespace))
            entry = one.cache.lookup(ask(namespace=namespace)).exact().entry
            assert entry.expires_at - entry.stored_at == pytest.approx(seconds)

    def test_an_entry_says_what_its_request_allowed(self, rig):
        one = rig("exact", max_answer_bytes=64)
        answer = "é" * 32  # as long as allowed
        one.keep(ask(max_tokens=33), answer, "length", 33)
        entry = one.cache.lookup(ask(max_tokens=33)).exact().entry
        assert entry == Entry("what is a lambda", answer, "length", 33, 33, entry.stored_at, entry.expires_at)

    def test_after_close_an_answer_is_dropped_and_nothing_is_found(self, rig):
        one = rig("exact")
        one.keep(ask())
        one.cache.close()
        one.cache.keep(ask("another"), "x", "stop", 1)
        assert one.count("stored_total", outcome="dropped") == 1
        assert not one.cache.submit(one.cache.lookup(ask()).exact)
        assert one.store.closed.is_set()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Failures open the breaker at once, however fast they come."""
    monkeypatch.setattr(CircuitBreaker, "ROW_S", 0.0)


def given_up(rig, layer, wait=True):
    """A lookup on a thread of the cache that is given up in time; what it found in the end."""
    lookup, found = rig.cache.lookup(ask()), queue.SimpleQueue()
    assert rig.cache.submit(lambda: found.put(getattr(lookup, layer)()))
    until = time.monotonic() + 60
    while wait and not lookup.give_up(time.perf_counter()):
        assert time.monotonic() < until, "it cannot be given up"
        time.sleep(0.001)
    assert not lookup.give_up(float("inf")) or not wait
    return found


class TestBypass:
    @pytest.mark.parametrize(
        ("mode", "call", "layer"), [("exact", "get", "exact"), ("semantic", "nearest", "semantic")]
    )
    def test_a_store_that_is_down_is_a_bypass_and_then_left_alone(self, rig, caplog, mode, call, layer):
        one = rig(mode)
        one.store.before = fails(call)

        def find(question):
            return getattr(one.cache.lookup(question), layer)()

        assert [find(ask()) for _ in range(6)] == [None] * 6
        assert one.count("bypassed_total", reason="error") == 3
        assert one.count("bypassed_total", reason="open") == 3
        assert one.count("lookups_total", layer=layer, outcome="bypass") == 6
        assert one.store.calls.count(call) == 3
        assert caplog.text.count("the cache's store fails") == 1

    def test_a_store_that_hangs_is_given_up_and_its_thread_comes_back(self, rig):
        one = rig("exact", budget_s=0.005)
        over = threading.Event()
        one.store.before = lambda call: over.wait(60)
        found = given_up(one, "exact")
        assert one.count("bypassed_total", reason="timeout") == 1
        assert one.count("lookups_total", layer="exact", outcome="bypass") == 1
        over.set()
        assert found.get(timeout=60) is None
        assert one.count("bypassed_total", reason="timeout") == 1

    def test_an_embedder_that_hangs_is_given_up_and_leaves_threads_to_the_exact_layer(self, rig):
        over = threading.Event()

        class Hanging(FakeEmbedder):
            def embed(self, text):
                over.wait(60)
                return super().embed(text)

        one = rig(embedder=Hanging(), embedding_budget_s=0.005)
        found = given_up(one, "semantic")
        assert one.count("bypassed_total", reason="timeout") == 1
        for _ in range(12):  # more than there are threads
            given_up(one, "semantic", wait=False)
        one.keep(ask())
        done = queue.SimpleQueue()
        assert one.cache.submit(lambda: done.put(one.cache.lookup(ask()).exact()))
        assert done.get(timeout=60).kind == "exact"
        over.set()
        assert found.get(timeout=60) is None
        assert "nearest" not in one.store.calls

    def test_an_embedder_that_fails_leaves_the_exact_layer_alone(self, rig, caplog):
        class Failing(FakeEmbedder):
            def embed(self, text):
                raise RuntimeError("no GPU")

        one = rig(embedder=Failing())
        assert [one.cache.lookup(ask()).semantic() for _ in range(4)] == [None] * 4
        one.keep(ask())
        assert one.cache.lookup(ask()).exact()
        assert "the cache's embedding model fails" in caplog.text

    def test_a_text_that_the_model_cannot_read_is_a_miss(self, rig):
        class Refusing(FakeEmbedder):
            def embed(self, text):
                raise InvalidArgument("text_input: nothing in it that the model can read")

        one = rig(embedder=Refusing())
        assert [one.cache.lookup(ask("\u2060")).semantic() for _ in range(9)] == [None] * 9
        assert one.count("lookups_total", layer="semantic", outcome="miss") == 9


def test_the_first_namespace_is_that_of_requests_without_one():
    options = CacheOptions("", ttls={"faq": 60.0, "live": 5.0})
    assert [options.ttl(name) for name in ("faq", "live", "", "other")] == [60, 5, 60, 60]
