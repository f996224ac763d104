"""Faults of our own, wherever they are: each request gets one end, and gives everything back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.llm.answers import Answers, ask
from tests.llm.sinks import Collector, FakeServer, eventually
from trimodal.errors import InternalError
from trimodal.llm.dispatch import Dispatch
from trimodal.llm.front import Front
from trimodal.llm.scheduler import Scheduler
from trimodal.llm.service import LlmService
from trimodal.llm.stream import Stream


@pytest.fixture(params=["no cache", "cache"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    with FakeServer(answers=Answers() if request.param == "cache" else None, fake_step_ms=2.0) as running:
        yield running


def fault(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a fault")


def failed(sink: Collector, server: FakeServer) -> None:
    """It got one end, nothing is left of it, and the next one is served."""
    assert isinstance(sink.wait().error, InternalError)
    eventually(lambda: server.service.counts == (0, 0, 0))
    assert server.service._book.streams == set()
    assert server.service._book.looking == 0
    assert not sink.after_end


@pytest.mark.parametrize(
    ("where", "what"), [(Scheduler, "admit"), (Dispatch, "changed"), (Scheduler, "next"), (Dispatch, "add")]
)
def test_a_fault_while_it_is_queued(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: Any, where: type, what: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(where, what, fault)
        sink = ask(server)
        sink.wait()
    failed(sink, server)
    assert ask(server, "next").wait().error is None
    assert "a fault" in capsys.readouterr().err


def test_a_fault_while_a_stored_answer_is_taken(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with FakeServer(answers=Answers()) as server:
        ask(server).wait()
        with monkeypatch.context() as patch:
            patch.setattr(Stream, "answer", fault)
            sink = ask(server)
            sink.wait()
        failed(sink, server)
        assert "a fault" in capsys.readouterr().err


def test_a_fault_while_it_joins(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with FakeServer(answers=Answers(), fake_step_ms=2.0) as server:
        first = ask(server, max_tokens=200)
        eventually(lambda: first.deltas != [])
        with monkeypatch.context() as patch:
            patch.setattr(Dispatch, "hasten", fault)
            second = ask(server, max_tokens=200)
            eventually(lambda: second.deltas != [])
        assert first.wait().text == second.wait().text
        assert not second.after_end
        assert "a fault" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "what"), [(LlmService, "_complete"), (Front, "keep"), (Scheduler, "finish")]
)
def test_a_fault_when_an_answer_is_complete_costs_nobody_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, where: type, what: str
) -> None:
    monkeypatch.setattr(where, what, fault)
    with FakeServer(answers=Answers(), fake_step_ms=2.0) as server:
        sinks = [ask(server, max_tokens=20) for _ in range(3)]
        for sink in sinks:
            sink.wait()
        eventually(lambda: server.service.counts == (0, 0, 0))
        assert server.service._book.streams == set()
        assert not any(sink.after_end for sink in sinks)
        assert "a fault" in capsys.readouterr().err
