"""What was there comes back, whatever happened in between."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("optuna")

from tests.tune.doubles import FakeServer, parsed
from trimodal.errors import ServerError
from trimodal.tune import guard
from trimodal.tune.live import Snapshot, apply

CONFIGS = {
    "pipe": "name: 'pipe' max_batch_size: 8",
    "step": "name: 'step' max_batch_size: 8 dynamic_batching { preferred_batch_size: 8 }",
    "other": "name: 'other'",
}


def changed(model: str = "step", **values: Any) -> dict[str, Any]:
    config = parsed(CONFIGS[model])
    for name, value in values.items():
        setattr(config, name, value)
    return {model: config}


def test_loads_only_what_is_different() -> None:
    server = FakeServer(CONFIGS)
    assert apply(server, changed(max_batch_size=16) | {"other": parsed(CONFIGS["other"])}, needed={}) == ""
    # Never over itself: on Triton 2.51 that ends a server whose models have custom metrics.
    assert server.calls == ["unload step", "load step"]
    # The server fills in the preferred size; a configuration without one is the same.
    server.calls.clear()
    plain = {"step": parsed("name: 'step' max_batch_size: 16 dynamic_batching { }")}
    assert apply(server, plain, needed={}) == ""
    assert server.calls == ["unload step", "load step"]
    server.live["step"].dynamic_batching.preferred_batch_size[:] = [16]
    assert apply(server, plain, needed={}) == ""
    assert server.calls == ["unload step", "load step"]
    assert apply(server, plain, needed={}, anew=True) == ""
    assert len(server.calls) == 4


def test_says_why_a_load_was_refused() -> None:
    server = FakeServer(CONFIGS, refuse=lambda config: "too large" if config.max_batch_size > 8 else "")
    snapshot = Snapshot.take(server, CONFIGS)
    assert apply(server, changed(max_batch_size=16), needed={}) == "model step: too large"
    snapshot.restore(patience=0.0)
    assert server.config("step") == parsed(CONFIGS["step"])


def test_a_pipeline_that_is_not_ready_afterwards_is_a_refusal() -> None:
    class Strict(FakeServer):
        def ready(self, model: str) -> bool:
            return super().ready(model) and (model != "pipe" or self.live["step"].max_batch_size >= 8)

    server = Strict(CONFIGS)
    snapshot = Snapshot.take(server, CONFIGS)
    assert (
        apply(server, changed(max_batch_size=4), needed=snapshot.configs) == "pipe cannot be served with this"
    )
    snapshot.restore(patience=0.0)
    assert server.ready("pipe")


def test_a_step_that_fits_only_to_a_later_one_is_loaded_again() -> None:
    server = FakeServer(CONFIGS)
    server.refuse = lambda config: (
        "the step is smaller" if config.name == "pipe" and server.live["step"].max_batch_size < 16 else ""
    )
    wanted = changed("pipe", max_batch_size=16) | changed("step", max_batch_size=16)
    assert apply(server, wanted, needed={}) == ""
    assert server.live["pipe"].max_batch_size == 16


def test_an_ensemble_that_went_with_its_step_comes_back() -> None:
    class Dependent(FakeServer):
        def unload(self, model: str) -> None:
            super().unload(model)
            super().unload("pipe")

    server = Dependent(CONFIGS)
    needed = Snapshot.take(server, CONFIGS).configs
    assert apply(server, changed(max_batch_size=16), needed=needed) == ""
    assert server.live["pipe"] == parsed(CONFIGS["pipe"])


def test_restores_what_changed_and_nothing_else() -> None:
    server = FakeServer(CONFIGS)
    snapshot = Snapshot.take(server, CONFIGS)
    apply(server, changed(max_batch_size=16), needed={})
    server.unload("other")
    server.calls.clear()
    assert sorted(snapshot.restore(patience=0.0)) == ["other", "step"]
    assert sorted(server.calls) == ["load other", "load step", "unload other", "unload step"]
    assert {name: server.config(name) for name in CONFIGS} == snapshot.configs
    assert snapshot.restore(patience=0.0) == []


def test_names_what_does_not_come_back() -> None:
    server = FakeServer(CONFIGS)
    snapshot = Snapshot.take(server, CONFIGS)
    apply(server, changed(max_batch_size=16), needed={})
    server.refuse = lambda config: "out of memory"
    with pytest.raises(ServerError, match=r"not put back as before: step \(out of memory\): load it again"):
        snapshot.restore(patience=0.0)


def test_a_model_that_is_not_loaded_cannot_be_tuned() -> None:
    with pytest.raises(ServerError, match="model nowhere is not loaded"):
        Snapshot.take(FakeServer(CONFIGS), ["nowhere"])


@pytest.mark.parametrize(("rest", "restored"), [("", True), ("don", True), (guard.DONE, False)])
def test_the_guard_restores_unless_all_was_done(
    rest: str, restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer(CONFIGS)
    task = {"url": "here:1", "key": "k", "models": Snapshot.take(server, CONFIGS).dump()}
    apply(server, changed(max_batch_size=16), needed={})
    monkeypatch.setattr(guard, "LiveServer", lambda url, key: server)
    sentence = guard.watch(task, rest)
    assert (server.live["step"].max_batch_size == 8) == restored
    assert ("put back at here:1: step" in sentence) == restored
