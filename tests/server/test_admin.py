"""The launcher's calls: gauges that are read, loads in turn, and what silence means."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.doubles.http_server import Asked, answering
from trimodal.server import admin
from trimodal.server.admin import Api, LoadsInTurn, await_unloaded, drain
from trimodal.server.launch import OPERATOR_HEADER

METRICS = """
# HELP trimodal_llm_active_requests Requests in the engine
# TYPE trimodal_llm_active_requests gauge
trimodal_llm_active_requests{model="llm"} 3
trimodal_llm_queued_requests{model="llm",tier="free"} 2
trimodal_speech_active_requests{tier="x",model="speech"} 0
trimodal_llm_speculation_active{model="llm"} 1
trimodal_llm_engine_ready{model="llm",version="1"} 1
trimodal_llm_engine_ready{model="llm",version="2"} 0
nv_inference_pending_request_count{model="llm",version="1"} 7
"""


def test_gauges_of_the_metrics_page(monkeypatch):
    api = Api("127.0.0.1", 1, 1, "key")
    monkeypatch.setattr(Api, "_metrics", lambda self: METRICS)
    assert api.in_flight() == {"llm": 5.0, "speech": 0.0}
    assert api.engines() == {("llm", "1"): 1.0, ("llm", "2"): 0.0}
    monkeypatch.setattr(Api, "_metrics", lambda self: "")
    assert api.in_flight() == api.engines() == {}


Triton = tuple[int, list[tuple[str, str]]]


@pytest.fixture
def triton() -> Iterator[Triton]:
    """Loads all but `broken`, and vanishes while `fatal` loads: its port, and what it was asked."""
    asked: list[tuple[str, str]] = []

    def answer(request: Asked) -> tuple[int, bytes]:
        if request.command == "GET":
            return 200, b""
        asked.append((request.path, request.headers[OPERATOR_HEADER]))
        if "broken" in request.path:
            return 400, json.dumps({"error": "load failed for model 'broken'"}).encode()
        return 0 if "fatal" in request.path else 200, b""

    with answering(answer) as port:
        yield port, asked


@pytest.mark.parametrize(
    ("models", "asked", "failure"),
    [
        (["llm", "assistant"], ["llm", "assistant"], ""),
        (["broken", "assistant"], ["broken"], "model broken: load failed for model 'broken'"),
        (["fatal", "assistant"], ["fatal"], "tritonserver did not answer while models were loading ("),
        ([], [], ""),
    ],
)
def test_models_are_loaded_in_turn_with_the_operator_key(triton, models, asked, failure):
    port, loaded = triton
    loads = LoadsInTurn(Api("127.0.0.1", port, port, "key"), models)
    loads.start()
    loads.join(10)
    assert not loads.is_alive()
    assert loaded == [(f"/v2/repository/models/{name}/load", "key") for name in asked]
    assert loads.failure.startswith(failure)
    assert bool(loads.failure) == bool(failure)


class Played(Api):
    """Models that are gone so many looks after their unload, and gauges that are at zero after so many."""

    looks: dict[str, int]
    gauges: dict[str, int]
    order: list[tuple[str, list[str]]]  # model, and those that were not gone yet when it was told to go

    def __init__(self, looks: dict[str, int], gauges: dict[str, int]) -> None:
        super().__init__("127.0.0.1", 1, 1, "key")
        vars(self).update(looks=looks, gauges=gauges, order=[])

    def unload(self, model: str) -> None:
        self.order.append((model, sorted(name for name, _ in self.order if self.looks[name] > 0)))

    def states(self) -> dict[str, str]:
        for name, _ in self.order:
            self.looks[name] -= 1
        return {name: "UNLOADING" if left > 0 else "UNAVAILABLE" for name, left in self.looks.items()}

    def in_flight(self) -> dict[str, float]:
        for name, _ in self.order:
            if name in self.gauges:
                self.gauges[name] -= 1
        return {name: float(max(0, left)) for name, left in self.gauges.items()}


NONE: frozenset[str] = frozenset()


def test_a_model_goes_as_soon_as_its_callers_are_idle(monkeypatch):
    monkeypatch.setattr(admin, "_POLL", 0.0)
    api = Played({"speech": 50, "recognize": 20, "vision": 60}, {"speech": 2})
    callers = {"speech": NONE, "vision": NONE, "recognize": frozenset({"speech"})}
    assert drain(api, callers, 10.0, stop=lambda: False) == []
    # The recogniser went while the pictures, which do not need it, and the idle caller still unloaded.
    assert api.order == [("speech", []), ("vision", ["speech"]), ("recognize", ["speech", "vision"])]


def test_a_caller_that_is_busy_at_the_limit_keeps_what_it_calls(monkeypatch):
    monkeypatch.setattr(admin, "_POLL", 0.001)
    api = Played({"speech": 10**6, "recognize": 1}, {"speech": 10**6})
    callers = {"speech": NONE, "recognize": frozenset({"speech"})}
    assert drain(api, callers, 0.02, stop=lambda: False) == ["recognize", "speech"]
    assert [name for name, _ in api.order] == ["speech"]


def test_models_that_call_each_other_go_together(monkeypatch):
    monkeypatch.setattr(admin, "_POLL", 0.0)
    api = Played({"a": 2, "b": 2}, {})
    assert drain(api, {"a": frozenset("b"), "b": frozenset("a")}, 10.0, stop=lambda: False) == []
    assert [name for name, _ in api.order] == ["a", "b"]


@pytest.mark.parametrize(("limit", "left"), [(10.0, 0), (0.0, 3)])
def test_models_that_were_told_to_go_are_waited_for(monkeypatch, limit, left):
    monkeypatch.setattr(admin, "_POLL", 0.0)
    api = Played({"a": 3, "b": 2, "never loaded": 0}, {})
    api.unload("a")
    api.unload("b")
    await_unloaded(api, api.looks, limit)
    assert api.looks["a"] == left
    await_unloaded(Api("127.0.0.1", 1, 1, "key"), ["a"], 10.0)  # nobody is there


def test_answers_that_do_not_come_in_time_end_no_drain(monkeypatch):
    """As those of a busy machine, or while a model is being loaded: what runs keeps its time."""
    monkeypatch.setattr(admin, "_POLL", 0.0)

    class Slow(Played):
        late = {"unload": 2, "states": 2, "in_flight": 1}

        def _wait(self, call):
            if self.late[call]:
                self.late[call] -= 1
                raise TimeoutError

        def unload(self, model):
            self._wait("unload")
            super().unload(model)

        def states(self):
            self._wait("states")
            return super().states()

        def in_flight(self):
            self._wait("in_flight")
            return super().in_flight()

    api = Slow({"llm": 5, "vision": 3}, {"llm": 50})
    assert drain(api, {"llm": NONE, "vision": NONE}, 10.0, stop=lambda: False) == []
    assert sorted(name for name, _ in api.order) == ["llm", "vision"]
    assert not any(api.late.values())
    api = Slow({"llm": 10**6}, {"llm": 10**6})
    api.late = dict.fromkeys(api.late, 10**6)
    assert drain(api, {"llm": NONE}, 0.02, stop=lambda: False) == ["llm"]
