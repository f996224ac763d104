"""The service's end of an engine: it never blocks its owner, and never loses an engine without a word."""

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
from trimodal.errors import OperatorError
from trimodal.llm.engine_core import client as link_module
from trimodal.llm.engine_core import process as process_module
from trimodal.llm.engine_core.client import EngineLink, start_process, start_thread
from trimodal.llm.engine_core.messages import Opened, Stepped
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineInfo, EngineRequest, EngineStats, Sampling
from trimodal.llm.settings import LlmSettings

FAKE = LlmSettings(engine="fake", fake_step_ms=1)
INFO = EngineInfo("fake", "none", 64, 32, 4, 1 << 20)


def opened() -> tuple[EngineLink, Connection]:
    """A link to an engine that the test plays itself."""
    ours, theirs = Pipe()
    theirs.send(Opened(INFO))
    return EngineLink(ours), theirs


def request(id: int = 1, tokens: int = 10) -> EngineRequest:
    return EngineRequest(id, [7] * tokens, Sampling(5))


def test_an_engine_that_reads_nothing_does_not_hold_up_its_owner() -> None:
    link, engine = opened()
    adding = threading.Thread(target=lambda: [link.add(request(id, 300_000)) for id in range(4)], daemon=True)
    adding.start()
    adding.join(5)
    assert not adding.is_alive(), "add() waits for the pipe"
    link.cancel(0)
    for id in range(4):
        assert engine.recv().request.id == id
    assert engine.recv().id == 0, "commands arrive in their order"
    engine.close()
    link.close()


def test_a_step_that_cannot_be_taken_is_a_lost_engine(capsys: Any) -> None:
    link, engine = opened()
    died = threading.Event()

    def stumble(step: Stepped) -> None:
        raise LookupError("no such word")

    link.start(stumble, died.set)
    engine.send(Stepped([], EngineStats()))
    assert died.wait(10), "the reader ended without a word"
    assert "no such word" in capsys.readouterr().err
    link.close()


def test_a_lost_engine_leaves_no_thread_and_no_descriptor() -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        link = start_process(FAKE)
        died = threading.Event()
        link.start(lambda step: None, died.set)
        link.add(request())
        assert link.pid
        os.kill(link.pid, signal.SIGKILL)
        assert died.wait(10)
        assert not os.path.exists(f"/proc/{link.pid}"), "a zombie"
        del link
    eventually(lambda: threading.active_count() == threads)
    eventually(lambda: len(os.listdir("/proc/self/fd")) == descriptors)


def test_an_engine_killed_while_it_opens_is_an_operators_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.kill()
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(process_module.subprocess, "Popen", Killed)
    with pytest.raises(OperatorError, match="ended with status -9 while it opened"):
        start_process(FAKE)


def test_a_stopped_engine_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_CLOSE_SECONDS", 0.2)
    link = start_process(FAKE)
    link.start(lambda step: None, lambda: None)
    assert link.pid
    os.kill(link.pid, signal.SIGSTOP)
    for id in range(3):
        link.add(request(id, 300_000))
    link.close()
    assert not os.path.exists(f"/proc/{link.pid}")


def test_closing_ends_an_engine_in_a_thread() -> None:
    threads = threading.active_count()
    link = start_thread(FakeEngine(FAKE))
    link.start(lambda step: None, lambda: pytest.fail("closing is no death"))
    link.close()
    eventually(lambda: threading.active_count() == threads)


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_the_servers_affair(name: signal.Signals) -> None:
    link = start_process(FAKE)
    died, stepped = threading.Event(), threading.Event()
    link.start(lambda step: stepped.set(), died.set)
    assert link.pid
    os.kill(link.pid, name)
    time.sleep(0.05)
    link.add(request())
    assert stepped.wait(10)
    assert not died.is_set(), "the engine must go on until the server has drained"
    link.close()
