"""Asyncio engines that die, seen or unseen, stall, or do not end: each is lost, and none is waited for."""

from __future__ import annotations

import threading
import time

import pytest

from tests.llm.async_rig import PlayedRuntime, Rig, engine_of, request
from tests.llm.sinks import eventually
from trimodal.llm import async_engine, core
from trimodal.llm.async_runtime import Chunk
from trimodal.llm.engine import EngineLost


def test_an_engine_that_dies_in_a_request_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig()
    rig.link.add(request(1))
    rig.runtime.say(1, Chunk([1]))
    eventually(lambda: rig.tokens(1) == [1])
    rig.runtime.dead = True
    rig.runtime.say(1, RuntimeError("the core is gone"))
    assert rig.died.wait(10)
    assert "played ended during a request: the core is gone" in capsys.readouterr().err
    assert rig.runtime.closed
    rig.link.close()


def test_an_engine_that_dies_unseen_is_lost_while_sequences_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(async_engine, "_ALIVE_SECONDS", 0.01)
    rig = Rig()
    rig.link.add(request(1))
    rig.runtime.dead = True
    assert rig.died.wait(10)
    assert "played has ended" in capsys.readouterr().err
    rig.link.close()


def test_an_engine_that_dies_while_idle_is_lost_at_once_not_at_the_next_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core, "_CHECK_SECONDS", 0.01)
    rig = Rig()
    rig.runtime.dead = True
    assert rig.died.wait(10)
    assert "played has ended" in capsys.readouterr().err
    rig.link.close()


def test_an_engine_that_makes_no_token_any_more_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig(stall_s=0.1)
    rig.link.add(request(1))
    rig.runtime.say(1, Chunk([1]))
    assert rig.died.wait(10)
    assert rig.tokens(1) == [1]
    assert "no token of 1 sequences for 0.1 s" in capsys.readouterr().err
    rig.link.close()


def test_an_idle_engine_does_not_stall() -> None:
    runtime = PlayedRuntime()
    engine = engine_of(runtime, stall_s=0.05)
    time.sleep(0.1)
    engine.add(request(1))
    assert engine.step() == []  # the clock begins with the first sequence
    time.sleep(0.1)
    with pytest.raises(EngineLost):
        engine.step()
    engine.close()


def test_close_ends_the_loop_and_what_runs_on_it() -> None:
    threads = threading.active_count()
    rig = Rig()
    rig.link.add(request(1))
    eventually(lambda: bool(rig.runtime.requests))
    rig.link.close()
    eventually(lambda: threading.active_count() == threads)
    assert rig.runtime.closed
    assert rig.runtime.aborted == [1]
    assert not rig.died.is_set()


def test_a_library_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_engine, "_CLOSE_SECONDS", 0.05)
    runtime, hang = PlayedRuntime(), threading.Event()
    monkeypatch.setattr(runtime, "close", lambda: hang.wait(20))
    closing = threading.Thread(target=engine_of(runtime).close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    hang.set()
    eventually(lambda: not runtime.loop.loop.is_running())
