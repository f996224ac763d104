"""Requests and generations are found by what one looks for, and none is left when all have gone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.llm.frontend.test_request_state import generation_of, state_of
from trimodal.errors import Cancelled
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.frontend import registry as module
from trimodal.llm.frontend.registry import RequestRegistry
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms


def keyed(key: str) -> RequestState:
    state = state_of()
    state.request = GenerationRequest("hello", None, Sampling(8), terms=Terms(cancel_key=key))
    return state


def test_who_listens_to_nothing_yet_is_looking() -> None:
    registry = RequestRegistry()
    states = [state_of() for _ in range(3)]
    for state in states:
        registry.add(state)
    assert registry.looking == 3
    generation = generation_of(states[0])
    registry.begin(generation)
    registry.join(generation, states[1])
    assert registry.looking == 1
    assert registry.remove(states[0]) is None
    assert registry.remove(states[2]) is None
    assert registry.looking == 0
    assert registry.remove(states[1]) is generation
    registry.drop(generation)
    assert (registry.looking, registry.states, registry.generations) == (0, {}, {})


def test_who_leaves_twice_does_not_take_the_key_of_the_next_one() -> None:
    registry = RequestRegistry()
    first, second = keyed("a"), keyed("a")
    registry.add(first)
    registry.remove(first)
    registry.add(second)
    registry.remove(first)
    assert registry.cancelled("a") is second


def test_cancelled_keys_are_bounded_and_the_latest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_REMEMBERED", 3)
    registry = RequestRegistry()
    for key in ("a", "b", "c", "a", "d", "e"):
        assert registry.cancelled(key) is None
    for key in ("a", "d", "e"):
        with pytest.raises(Cancelled):
            registry.add(keyed(key))
    for key in ("b", "c", "a"):  # a: once only
        registry.add(keyed(key))


def test_a_cancelled_key_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = RequestRegistry()
    now = 100.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    registry.cancelled("a")
    now += 10.5
    registry.add(keyed("a"))
