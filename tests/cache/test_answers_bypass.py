"""What hangs, fails or breaks behind the cache: nobody waits for it, and counters show it."""

from __future__ import annotations

import threading

import pytest

from tests.cache.doubles import ScriptedGuard, ask, fails
from tests.cache.rig import PARAPHRASE
from trimodal.cache.budget import Breaker
from trimodal.cache.embedder import FakeEmbedder
from trimodal.errors import InvalidArgument


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
