"""The exact layer over a scripted store, and what is kept: for whom, how long, and what is not."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.cache.doubles import PARAPHRASE, ScriptedGuard, ask, fails
from trimodal.cache.bounded_calls import Breaker
from trimodal.cache.embedder import FakeEmbedder
from trimodal.cache.values import Entry
from trimodal.errors import InvalidArgument


class TestExact:
    def test_finds_what_was_kept(self, rig):
        one = rig("exact")
        assert one.cache.exact(ask()) is None
        one.keep(ask())
        hit = one.cache.exact(ask("  what is a lambda \n"))
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

    @pytest.mark.parametrize(
        "change",
        [
            {"tenant": "other"},
            {"namespace": "live"},
            {"temperature": 0.5},
            {"stops": ("x",)},
            {"prompt": None, "messages": [{"role": "user", "content": "what is a lambda"}]},
        ],
    )
    def test_finds_nothing_in_another_place(self, rig, change):
        one = rig()
        one.keep(ask())
        assert one.cache.exact(ask(**change)) is None
        assert one.cache.semantic(ask(**change)) is None

    def test_an_answer_longer_than_wanted_is_none(self, rig):
        one = rig("exact")
        one.keep(ask(), tokens=20)
        assert one.cache.exact(ask(max_tokens=19)) is None
        assert one.cache.exact(ask(max_tokens=20))

    def test_an_answer_that_was_cut_serves_the_same_length_alone(self, rig):
        one = rig("exact")
        one.keep(ask(max_tokens=8), finish_reason="length", tokens=8)
        assert one.cache.exact(ask(max_tokens=8)).entry.finish_reason == "length"
        assert one.cache.exact(ask(max_tokens=9)) is None

    def test_cut_answers_of_several_lengths_and_a_whole_one_lie_side_by_side(self, rig):
        one = rig("exact")
        for length in (4, 8):
            one.keep(ask(max_tokens=length), f"cut at {length}", "length", length)
        one.keep(ask(max_tokens=64), "whole", "stop", 20)
        found = {length: one.cache.exact(ask(max_tokens=length)) for length in (4, 6, 8, 20, 64)}
        answers = {length: hit and hit.entry.answer for length, hit in found.items()}
        assert answers == {4: "cut at 4", 6: None, 8: "cut at 8", 20: "whole", 64: "whole"}

    def test_what_the_store_should_have_dropped_is_none(self, rig):
        one = rig("exact")
        one.keep(ask())
        ((key, (entry, vector)),) = one.store.held.items()
        one.store.held[key] = replace(entry, expires_at=time.time() - 1), vector
        assert one.cache.exact(ask()) is None

    def test_a_store_that_mixes_up_its_keys_gives_nobody_another_answer(self, rig):
        one = rig("exact")
        one.keep(ask("how do I enable it?"))
        question = ask("how do I disable it?")
        one.store.held[question.place, question.key] = next(iter(one.store.held.values()))
        assert one.cache.exact(question) is None


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

    def test_an_answer_as_long_as_allowed_is_kept(self, rig):
        one = rig("exact", max_answer_bytes=64)
        one.keep(ask(), "é" * 32)
        assert one.cache.exact(ask()).entry.answer == "é" * 32

    def test_it_lives_as_long_as_its_namespace_says(self, rig):
        one = rig("exact")
        for namespace, seconds in (("default", 900), ("live", 1), ("unheard of", 900)):
            one.keep(ask(namespace=namespace))
            entry = one.cache.exact(ask(namespace=namespace)).entry
            assert entry.expires_at - entry.stored_at == pytest.approx(seconds)

    def test_an_entry_says_what_its_request_allowed(self, rig):
        one = rig("exact")
        one.keep(ask(max_tokens=33), "yes", "length", 33)
        entry = one.cache.exact(ask(max_tokens=33)).entry
        assert entry == Entry("what is a lambda", "yes", "length", 33, 33, entry.stored_at, entry.expires_at)

    def test_after_close_an_answer_is_dropped_and_nothing_is_found(self, rig):
        one = rig("exact")
        one.keep(ask())
        one.cache.close()
        one.cache.keep(ask("another"), "x", "stop", 1)
        assert one.count("stored_total", outcome="dropped") == 1
        assert one.cache.exact(ask()) is None
        assert one.store.closed.is_set()


def test_lookups_from_many_threads_find_their_own(rig):
    one = rig()
    questions = [ask(f"question {index}", tenant=f"tenant {index % 5}") for index in range(40)]
    for index, question in enumerate(questions):
        one.keep(question, f"answer {index}")
    wrong: list[object] = []

    def look(offset: int) -> None:
        for step in range(len(questions)):
            index = (step + offset) % len(questions)
            hit = one.cache.exact(questions[index]) if offset % 2 else one.cache.semantic(questions[index])
            if hit is None or hit.entry.answer != f"answer {index}":
                wrong.append((index, hit))

    threads = [threading.Thread(target=look, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Failures open the breaker at once, however fast they come."""
    monkeypatch.setattr(Breaker, "ROW_S", 0.0)


class TestBypass:
    @pytest.mark.parametrize(
        ("mode", "call", "layer"), [("exact", "get", "exact"), ("semantic", "nearest", "semantic")]
    )
    def test_a_store_that_is_down_is_a_bypass_and_then_left_alone(self, rig, capfd, mode, call, layer):
        one = rig(mode)
        one.store.before = fails(call)
        find = one.cache.exact if layer == "exact" else one.cache.semantic
        assert [find(ask()) for _ in range(6)] == [None] * 6
        assert one.count("bypassed_total", reason="error") == 3
        assert one.count("bypassed_total", reason="open") == 3
        assert one.count("lookups_total", layer=layer, outcome="bypass") == 6
        assert one.store.calls.count(call) == 3
        assert capfd.readouterr().err.count("the cache's store fails") == 1

    def test_a_store_that_hangs_holds_nobody_up(self, rig):
        one = rig("exact", budget_s=0.005)
        over = threading.Event()
        one.store.before = lambda call: over.wait(60)
        assert one.cache.exact(ask()) is None
        assert one.count("bypassed_total", reason="timeout") == 1
        over.set()

    def test_an_embedder_that_hangs_holds_nobody_up(self, rig):
        over = threading.Event()

        class Hanging(FakeEmbedder):
            def embed(self, text):
                over.wait(60)
                return super().embed(text)

        one = rig(embedder=Hanging(), embedding_budget_s=0.005)
        assert one.cache.semantic(ask()) is None
        assert one.count("bypassed_total", reason="timeout") == 1
        assert "nearest" not in one.store.calls
        over.set()

    def test_an_embedder_that_fails_leaves_the_exact_layer_alone(self, rig, capfd):
        class Failing(FakeEmbedder):
            def embed(self, text):
                raise RuntimeError("no GPU")

        one = rig(embedder=Failing())
        assert [one.cache.semantic(ask()) for _ in range(4)] == [None] * 4
        one.keep(ask())
        assert one.cache.exact(ask())
        assert "the cache's embedding model fails" in capfd.readouterr().err

    def test_a_text_that_the_model_cannot_read_is_a_miss(self, rig):
        class Refusing(FakeEmbedder):
            def embed(self, text):
                raise InvalidArgument("text_input: nothing in it that the model can read")

        one = rig(embedder=Refusing())
        assert [one.cache.semantic(ask("\u2060")) for _ in range(9)] == [None] * 9
        assert one.count("lookups_total", layer="semantic", outcome="miss") == 9

    def test_a_guard_that_breaks_is_a_bypass(self, rig):
        class Broken(ScriptedGuard):
            def judge(self, asked, stored, similarity):
                raise KeyError(asked)

        one = rig(guard=Broken())
        one.keep(ask())
        assert one.cache.semantic(ask(PARAPHRASE)) is None
        assert one.count("bypassed_total", reason="error") == 1
