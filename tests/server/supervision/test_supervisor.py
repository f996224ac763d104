"""Processes of models that die, with real processes and a Triton that is played."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tritonclient.grpc import model_config_pb2

from tests.doubles.waiting import wait_until
from trimodal.repository import Model
from trimodal.server.supervision import supervisor as module
from trimodal.server.supervision.stubs import STUB, StubWatch, model_of
from trimodal.server.supervision.supervisor import Backoff, Health, Supervisor

LIMIT_S = 10.0


class Triton:
    """Plays the repository API; its stubs are children of this process, which stands for tritonserver."""

    http_port = 8000

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stubs: dict[str, list[subprocess.Popen[bytes]]] = {}
        self.killed: list[subprocess.Popen[bytes]] = []
        self.calls: list[tuple[str, str]] = []
        self.count: dict[str, int] = {}
        self.index: dict[str, str] = {}
        self.engine: dict[tuple[str, str], float] = {}
        self.canaries: dict[str, str] = {}  # model → state of its version 2
        self.reasons: list[str] = []
        self.loading = threading.Event()
        self.loading.set()
        self.answers = True
        self.broken: list[str] = []  # calls that fail on their way
        self.failure: type[Exception] = TimeoutError

    def start(self, model: str) -> None:
        file = self.folder / model / "1" / "model.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():  # one that was just started may be reading it
            file.write_text("import time; time.sleep(60)")
        started = subprocess.Popen([f"/backends/python/{STUB}", str(file)], executable=sys.executable)
        wait_until(lambda: model_of(started.pid), "the command line of the process")
        self.stubs.setdefault(model, []).append(started)
        self.index[model] = "READY"

    def kill(self, model: str) -> None:
        self.killed.append(self.stubs[model].pop(0))
        os.kill(self.killed[-1].pid, signal.SIGKILL)

    def close(self) -> None:
        self.loading.set()
        for stub in [*self.killed, *(one for stubs in self.stubs.values() for one in stubs)]:
            stub.kill()
            stub.wait()

    def states(self) -> dict[str, str]:
        if not self.answers:
            raise ConnectionRefusedError
        return dict(self.index)

    def versions(self) -> dict[str, dict[str, str]]:
        canaries = {name: {"2": state} for name, state in self.canaries.items()}
        return {name: {"1": state, **canaries.get(name, {})} for name, state in self.states().items()}

    def instances(self, model: str) -> int:
        return self.count[model]

    def engines(self) -> dict[tuple[str, str], float]:
        return self.engine

    def _arrives(self, call: str) -> None:
        if call in self.broken:
            self.broken.remove(call)
            raise self.failure

    def unload(self, model: str) -> None:
        self._arrives("unload")
        self.calls.append(("unload", model))
        self.index[model] = "UNLOADING"

    def load(self, model: str) -> str:
        self.calls.append(("load", model))
        assert self.loading.wait(LIMIT_S)
        self._arrives("load")
        if self.reasons:
            return self.reasons.pop(0)
        self.start(model)
        return ""


def a_model(name: str, *, count: int = 1, steps: tuple[str, ...] = (), decoupled: bool = False) -> Model:
    config: Any = model_config_pb2.ModelConfig(name=name, backend="" if steps else "python")
    config.instance_group.add(count=count)
    config.model_transaction_policy.decoupled = decoupled
    for step in steps:
        config.ensemble_scheduling.step.add(model_name=step)
    return Model(name, Path(name), Path(name), config)


@pytest.fixture
def triton(tmp_path: Path) -> Iterator[Triton]:
    server = Triton(tmp_path)
    yield server
    server.close()


@pytest.fixture
def watched(triton: Triton, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Supervisor]]:
    monkeypatch.setattr(module, "KEPT_S", 0.0)
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    monkeypatch.setattr(module, "STARTED_S", 0.02)
    supervisors = []

    def watch(*models: Model, hang_timeout: float = 0.0) -> Supervisor:
        for model in models:
            for _ in range(model.instances):
                triton.start(model.name)
            triton.index[model.name], triton.count[model.name] = "READY", model.instances
        supervisors.append(Supervisor(triton, hang_timeout=hang_timeout))  # type: ignore[arg-type]
        supervisors[-1].watch(os.getpid(), {one.name: one for one in models})
        return supervisors[-1]

    yield watch
    triton.loading.set()
    for one in supervisors:
        one.close()
    wait_until(lambda: not any(t.name.startswith("load ") for t in threading.enumerate()), "loads")


@pytest.mark.parametrize("refused", [False, True])
def test_http_connections_that_say_nothing_after_a_loss_are_ended(
    triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, refused: bool
) -> None:
    """At every loss of a model with streams; at one without none, as Triton answers its requests."""
    monkeypatch.setattr(module, "SILENT_S", 0.0)
    ended: list[tuple[int, int]] = []

    def end_silent(pid: int, port: int, seconds: float) -> int:
        ended.append((pid, port))
        if refused:
            raise PermissionError(1, "Operation not permitted")
        return 2

    monkeypatch.setattr(module, "end_silent", end_silent)
    supervisor = watched(a_model("llm", decoupled=True), a_model("vision"))

    def loaded_again(losses: int) -> bool:
        """A loss that is not noticed yet looks like none."""
        health = supervisor.health()
        return health.ready and all(one.lost == losses for one in health.models.values())

    for losses in (1, 2):
        triton.kill("vision")
        triton.kill("llm")
        wait_until(lambda: len(ended) == losses, "the end of the connections")  # noqa: B023
        wait_until(lambda: loaded_again(losses), "the models")  # noqa: B023
    assert set(ended) == {(os.getpid(), triton.http_port)}
    told = "HTTP streams of llm wait for their own timeout (Operation not permitted)"
    assert (told if refused else "2 silent HTTP connections were ended, as model llm died") in caplog.text


def test_a_model_whose_process_died_is_loaded_again(triton: Triton, watched: Any) -> None:
    supervisor = watched(a_model("llm"), a_model("vision"))
    health = supervisor.health()
    assert health.ready
    assert health.models["llm"].lost_s_ago is None
    triton.loading.clear()
    triton.kill("llm")
    wait_until(lambda: triton.calls == [("unload", "llm"), ("load", "llm")], "its load")
    health = supervisor.health()
    assert not health.ready
    assert health.models["vision"].ready
    llm = health.models["llm"]
    assert (llm.ready, llm.reason, llm.lost) == (False, "its process died; it is being loaded again", 1)
    assert 0 <= llm.lost_s_ago < LIMIT_S
    assert 0 <= supervisor.lost().pop("llm") < LIMIT_S
    assert supervisor.lost().keys() == {"llm"}
    triton.loading.set()
    wait_until(lambda: supervisor.health().ready, "the model")
    assert supervisor.health().models["llm"].lost == 1
    triton.kill("llm")  # the new process is watched like the first
    wait_until(lambda: supervisor.health().models["llm"].lost == 2, "the second loss")


@pytest.mark.parametrize("hang_timeout", [0.1, 0.0])
def test_a_process_that_stands_still_is_killed_and_loaded_again(
    triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch, hang_timeout: float
) -> None:
    monkeypatch.setattr(module, "Heartbeat", Mock())  # of the test's own process
    supervisor = watched(a_model("llm"), hang_timeout=hang_timeout)
    (stub,) = triton.stubs["llm"]
    os.kill(stub.pid, signal.SIGSTOP)
    if hang_timeout:
        assert stub.wait(LIMIT_S) == -signal.SIGKILL
        wait_until(lambda: ("load", "llm") in triton.calls, "the load")
        wait_until(lambda: supervisor.health().models["llm"].lost == 1, "the loss")
    else:
        time.sleep(0.2)
        assert stub.poll() is None, "a debugger's"


def test_all_threads_of_the_server_are_looked_at_seldom_unless_a_process_is_missing(
    triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took a third of all that an idle server did."""
    monkeypatch.setattr(module, "STARTED_S", 1e6)
    looks, wait, refresh = Counter[str](), StubWatch.wait, StubWatch.refresh

    def waits(self: StubWatch, timeout: float) -> None:
        looks["ends"] += 1
        wait(self, timeout)

    def refreshes(self: StubWatch) -> None:
        looks["starts"] += 1
        refresh(self)

    monkeypatch.setattr(StubWatch, "wait", waits)
    monkeypatch.setattr(StubWatch, "refresh", refreshes)
    supervisor = watched(a_model("llm"))
    wait_until(lambda: looks["ends"] > 5, "looks")
    assert looks["starts"] == 1
    triton.kill("llm")
    wait_until(lambda: supervisor.health().models["llm"].lost == 1, "the loss")
    wait_until(lambda: supervisor.health().ready, "the model")


def test_what_an_operator_does_is_no_loss(triton: Triton, watched: Any) -> None:
    supervisor = watched(a_model("llm"), a_model("speech"))
    triton.start("llm")  # a load of a model that is loaded: the new process comes before the old one goes
    wait_until(lambda: supervisor._expected["llm"] == 2, "the new process")
    triton.kill("llm")
    triton.index["speech"] = "UNAVAILABLE"
    triton.kill("speech")
    wait_until(lambda: supervisor._expected["llm"] == 1, "one of one again")
    triton.start("llm")
    triton.start("llm")
    wait_until(lambda: supervisor._expected["llm"] == 3, "an instance group of three")
    triton.count["llm"] = 1
    triton.kill("llm")
    triton.kill("llm")
    wait_until(lambda: supervisor._expected["llm"] == 1, "one of one")
    assert triton.calls == []
    assert supervisor.health().models["llm"].ready
    assert supervisor.health().models["speech"].reason == "the model is unavailable"


def test_one_of_two_processes_is_a_loss(triton: Triton, watched: Any) -> None:
    supervisor = watched(a_model("vision", count=2))
    triton.kill("vision")
    wait_until(lambda: supervisor.health().models["vision"].lost == 1, "the loss")


def test_a_pipeline_is_loaded_after_its_step(triton: Triton, watched: Any) -> None:
    watched(a_model("rank"), a_model("vision", steps=("rank",)))
    triton.kill("rank")
    wanted = [("unload", "rank"), ("load", "rank"), ("load", "vision")]
    wait_until(lambda: triton.calls == wanted, "the loads")


def test_a_load_that_fails_is_tried_again(
    triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.3)
    supervisor = watched(a_model("llm"))
    triton.reasons = ["no memory", "no memory"]
    triton.kill("llm")
    reason = "its process died, and it cannot be loaded: the server's log says why"
    wait_until(lambda: supervisor.health().models["llm"].reason == reason, "the reason")
    wait_until(lambda: supervisor.health().ready, "the model")
    assert triton.calls.count(("load", "llm")) == 3
    assert "model llm cannot be loaded: no memory" in caplog.text


def test_of_many_who_ask_at_once_one_asks_triton(
    triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asked it: Triton has eight threads for HTTP."""
    supervisor = watched(a_model("llm"))
    monkeypatch.setattr(module, "KEPT_S", 60.0)
    asked, go_on = [], threading.Event()

    def versions() -> dict[str, dict[str, str]]:
        asked.append(threading.current_thread())
        assert go_on.wait(LIMIT_S)
        return {"llm": {"1": "READY"}}

    monkeypatch.setattr(triton, "versions", versions)
    told: list[Health] = []
    threads = [threading.Thread(target=lambda: told.append(supervisor.health())) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: asked, "the first question")
    go_on.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(asked) == 1
    assert [one.ready for one in told] == [True] * 20


@pytest.mark.parametrize("failure", [TimeoutError, MemoryError])
def test_calls_that_fail_on_their_way_are_made_again(
    triton: Triton,
    watched: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Any,
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.01)
    supervisor = watched(a_model("llm"))
    triton.failure = failure
    triton.broken = ["unload", "load", "load"]
    triton.kill("llm")
    wait_until(lambda: triton.calls == [("unload", "llm"), *[("load", "llm")] * 3], "the loads")
    wait_until(lambda: supervisor.health().ready, "the model")
    assert f"model llm cannot be loaded: {failure.__name__}" in caplog.text


def test_a_drain_ends_the_tries_to_load(
    triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.2)
    supervisor = watched(a_model("llm"))
    triton.reasons = ["no memory"] * 100
    triton.kill("llm")
    wait_until(lambda: triton.calls.count(("load", "llm")) == 2, "two tries")
    supervisor.drain()
    wait_until(
        lambda: not any(t.name.startswith("load ") for t in threading.enumerate()), "the end of the tries"
    )
    assert triton.calls.count(("load", "llm")) == 2


def test_where_no_thread_can_be_started_the_next_look_tries_again(
    triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Thread(threading.Thread):
        refused = 2

        def start(self) -> None:
            if self.name.startswith("load ") and Thread.refused:
                Thread.refused -= 1
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(module.threading, "Thread", Thread)
    supervisor = watched(a_model("llm"))
    triton.kill("llm")
    wait_until(lambda: supervisor.health().models["llm"].lost == 1, "the loss")
    wait_until(lambda: supervisor.health().ready, "the model")
    assert not Thread.refused


def test_a_watch_that_cannot_begin_keeps_nothing_and_can_be_closed(
    triton: Triton, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end failed: so did each further start of `serve --restart`, which ends what is there."""
    stubs, start = Mock(), Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(module, "StubWatch", lambda pid: stubs)
    monkeypatch.setattr(module.threading.Thread, "start", start)
    supervisor = Supervisor(triton)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="can't start new thread"):
        supervisor.watch(os.getpid(), {})
    supervisor.close()
    stubs.close.assert_called_once_with()


def test_a_drain_is_never_ready_and_loads_nothing(triton: Triton, watched: Any) -> None:
    supervisor = watched(a_model("llm"))
    supervisor.drain()
    health = supervisor.health()
    assert (health.ready, health.draining, health.models["llm"].reason) == (False, True, "the server drains")
    triton.kill("llm")
    triton.killed[-1].wait(LIMIT_S)
    time.sleep(5 * module.LOOK_S)
    assert triton.calls == []
    assert supervisor.lost() == {}


def test_a_server_that_is_loading_or_ended(triton: Triton) -> None:
    supervisor = Supervisor(triton)  # type: ignore[arg-type]
    assert (supervisor.alive, supervisor.health()) == (True, Health(False, False, {}))
    server = subprocess.Popen(["sleep", "60"])
    supervisor.watch(server.pid, {"llm": a_model("llm")})
    server.kill()
    server.wait()
    wait_until(lambda: not supervisor.alive, "its end")
    supervisor.close()
    with pytest.raises(ProcessLookupError):
        Supervisor(triton).watch(server.pid, {})  # type: ignore[arg-type]


def test_a_lost_engine_and_a_silent_server_are_not_ready(triton: Triton, watched: Any) -> None:
    supervisor = watched(a_model("llm"))
    triton.engine = {("llm", "1"): 0.0}
    assert supervisor.health().models["llm"].reason == "its engine is being restarted, or was given up"
    triton.engine = {("llm", "1"): 1.0}
    assert supervisor.health().ready
    triton.answers = False
    assert supervisor.health().models["llm"].reason == "the server does not answer"
    assert not supervisor.health().ready


def test_the_highest_version_that_is_ready_decides_and_others_are_named(triton: Triton, watched: Any) -> None:
    supervisor = watched(a_model("llm"))
    triton.canaries = {"llm": "READY"}
    triton.engine = {("llm", "1"): 0.0, ("llm", "2"): 1.0}
    health = supervisor.health()
    assert (health.ready, health.models["llm"].reason) == (True, "")
    lost = "its engine is being restarted, or was given up"
    assert health.models["llm"].versions == {"1": lost, "2": ""}
    triton.engine = {("llm", "1"): 1.0, ("llm", "2"): 0.0}
    health = supervisor.health()
    assert (health.ready, health.models["llm"].reason) == (False, lost), "whoever names no version gets it"
    assert health.models["llm"].versions == {"1": "", "2": lost}
    for state in ("LOADING", "UNAVAILABLE"):  # Triton gives its requests to the other one
        triton.engine, triton.canaries = {}, {"llm": state}
        assert supervisor.health().ready
        assert supervisor.health().models["llm"].versions == {"1": "", "2": f"the model is {state.lower()}"}


def test_many_who_ask_are_one_question(triton: Triton, watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = watched(a_model("llm"))
    monkeypatch.setattr(module, "KEPT_S", LIMIT_S)
    first = supervisor.health()
    triton.answers = False
    assert supervisor.health() is first


def test_the_wait_grows_until_a_calm_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    backoff = Backoff()
    waits = []
    for _ in range(2000):  # each start fails after two seconds
        waits.append(backoff.next())
        now[0] += waits[-1] + 2.0
    assert waits[:7] == [0, 1, 2, 4, 8, 16, 30]
    assert set(waits[7:]) == {30}, "after nine hours it was an OverflowError, and nothing was started again"
    now[0] += 61.0
    assert [backoff.next(), backoff.next()] == [0, 1]


def test_only_stubs_are_watched(triton: Triton) -> None:
    watch = StubWatch(os.getpid())
    other = subprocess.Popen(["sleep", "60"])
    try:
        triton.start("llm")
        watch.refresh()
        assert watch.count("llm") == 1
        assert not watch.count("sleep")
        watch.wait(0.0)
        assert watch.count("llm") == 1
        triton.kill("llm")
        watch.wait(LIMIT_S)
        assert watch.count("llm") == 0
    finally:
        watch.close()
        other.kill()
        other.wait()
    assert model_of(other.pid) == ""
