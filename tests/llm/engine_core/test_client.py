"""Our end of the connection to an engine: it never blocks its owner, and tells when the engine is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from multiprocessing.connection import Connection, Pipe
from typing import Any

import pytest

from tests.llm.doubles.sinks import eventually
from tests.llm.engine_core.rig import Reader
from trimodal.errors import OperatorError
from trimodal.llm.engine_core import client as client_module
from trimodal.llm.engine_core import process as process_module
from trimodal.llm.engine_core.client import EngineCoreClient, start_process
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engines.protocol import EngineCall, EngineInfo, EngineRequest, EngineStats, Sampling
from trimodal.llm.settings import LlmSettings

FAKE = LlmSettings(engine="fake", fake_step_ms=1)
INFO = EngineInfo("fake", 64, 32, 4, 1 << 20)


def opened() -> tuple[EngineCoreClient, Connection]:
    """A client of an engine that the test plays itself."""
    ours, theirs = Pipe()
    theirs.send(INFO)
    return EngineCoreClient(ours), theirs


def request(id: int = 1, tokens: int = 10) -> EngineRequest:
    return EngineRequest(id, [7] * tokens, Sampling(5))


def test_an_engine_that_reads_nothing_does_not_hold_up_its_owner() -> None:
    client, engine = opened()
    adding = threading.Thread(
        target=lambda: [client.add(request(id, 300_000)) for id in range(4)], daemon=True
    )
    adding.start()
    adding.join(5)
    assert not adding.is_alive(), "add() waits for the pipe"
    client.cancel(0)
    for id in range(4):
        assert engine.recv().id == id
    assert engine.recv().id == 0, "commands arrive in their order"
    engine.close()
    client.close()


def test_a_message_that_cannot_be_read_is_a_lost_engine(caplog: Any) -> None:
    client, engine = opened()
    reader = Reader(client)
    engine.send_bytes(b"no pickle")
    assert reader.died.wait(10), "the reader still waits"
    assert "the engine's message cannot be read" in caplog.text
    reader.close()


def test_a_lost_engine_leaves_no_thread_and_no_descriptor() -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    times = 3
    for _ in range(times):
        client = start_process(FAKE)
        reader = Reader(client)
        client.add(request())
        assert client.pid
        os.kill(client.pid, signal.SIGKILL)
        assert reader.died.wait(10)
        reader.close()
        assert not os.path.exists(f"/proc/{client.pid}"), "a zombie"
    # Not even one each; what other tests began (gRPC's threads) may come and go meanwhile.
    eventually(lambda: threading.active_count() < threads + times)
    eventually(lambda: len(os.listdir("/proc/self/fd")) < descriptors + times)


def test_an_engine_killed_while_it_opens_is_an_operators_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.kill()
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(process_module.subprocess, "Popen", Killed)
    with pytest.raises(
        OperatorError, match="ended with status -9 while it opened: the lines above .* say why"
    ):
        start_process(FAKE)


def test_a_stopped_engine_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_CLOSE_SECONDS", 0.2)
    client = start_process(FAKE)
    reader = Reader(client)
    assert client.pid
    os.kill(client.pid, signal.SIGSTOP)
    for id in range(3):
        client.add(request(id, 300_000))
    reader.close()
    assert not os.path.exists(f"/proc/{client.pid}")


def test_an_engine_that_stands_still_with_work_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_module, "_GLANCE_SECONDS", 0.02)
    client = start_process(FAKE.model_copy(update={"stall_timeout_s": 0.3}))
    reader = Reader(client)
    assert client.pid
    client.add(request())
    eventually(lambda: bool(reader.steps) and not reader.steps[-1].working)
    os.kill(client.pid, signal.SIGSTOP)
    time.sleep(0.4)
    assert not reader.died.is_set(), "an idle engine may be silent"
    client.add(request(2))
    assert reader.died.wait(10)
    assert "the engine made no step for 0.3 s" in caplog.text
    reader.close()
    assert not os.path.exists(f"/proc/{client.pid}")


def test_what_an_engine_was_given_while_it_told_of_its_end_counts_as_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "_GLANCE_SECONDS", 0.02)
    ours, theirs = Pipe()
    theirs.send(INFO)
    client = EngineCoreClient(ours, None, 0.3)  # type: ignore[arg-type]
    reader = Reader(client)
    client.add(request(1))
    client.add(request(2))
    theirs.send(Stepped([], EngineStats(), taken=1, working=False))  # the second is still in the pipe
    assert reader.died.wait(10)
    theirs.close()
    reader.close()


def test_an_operators_call_may_take_longer_than_a_step(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Weights that came back for 120 s were the end of the engine."""
    monkeypatch.setattr(client_module, "_GLANCE_SECONDS", 0.02)
    monkeypatch.setattr(client_module, "_CALL_SECONDS", 0.9)
    ours, theirs = Pipe()
    theirs.send(INFO)
    client = EngineCoreClient(ours, None, 0.3)  # type: ignore[arg-type]
    reader = Reader(client)
    client.call(EngineCall(1, "wake_up"))
    assert reader.died.wait(10)
    assert "the engine made no step for 0.9 s" in caplog.text, "it is not waited for without an end"
    theirs.close()
    reader.close()


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_does_not_end_the_engine(name: signal.Signals) -> None:
    client = start_process(FAKE)
    reader = Reader(client)
    assert client.pid
    os.kill(client.pid, name)
    time.sleep(0.05)
    client.add(request())
    eventually(lambda: reader.steps != [])
    assert not reader.died.is_set(), "the engine must go on until the server has drained"
    reader.close()
