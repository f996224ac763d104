"""Nothing that goes wrong in one request, one client or one engine may leave a request without its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.llm.doubles.answers import Answers, ask
from tests.llm.doubles.engine_thread import PlayedEngines
from tests.llm.doubles.sinks import Collector, FakeServer, counts, eventually
from trimodal.errors import Cancelled, InternalError, Unavailable
from trimodal.llm.engine_core import core
from trimodal.llm.engine_core.client import EngineCoreClient, start_process
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import Output, Sampling
from trimodal.llm.frontend.dispatcher import Dispatcher
from trimodal.llm.frontend.request_state import Generation, RequestState
from trimodal.llm.request.outputs import Delta
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import ProbeRequest
from trimodal.llm.scheduler.scheduler import Scheduler
from trimodal.llm.settings import LlmSettings


class Starts:
    """Opens engines one after the other; an exception in the script is raised instead."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.links: list[EngineCoreClient] = []

    def __call__(self, settings: LlmSettings) -> EngineCoreClient:
        step = self.script.pop(0) if self.script else start_process
        if isinstance(step, BaseException):
            raise step
        self.links.append(step(settings))
        return self.links[-1]

    def kill(self) -> None:
        pid = self.links[-1].pid
        assert pid
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def crash_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ended thread's exception would be a warning of pytest; here it is what the test is about."""
    monkeypatch.setattr(threading, "excepthook", lambda args: None)


def test_a_token_that_is_no_text_fails_its_request_alone(crash_window: None, caplog: Any) -> None:
    class Odd(FakeEngine):
        def step(self) -> list[Output]:
            outputs = super().step()
            return [Output(o.id, [-1] if o.id == 1 else o.token_ids, o.finish_reason) for o in outputs]

    with FakeServer(kind=Odd, max_num_seqs=2) as server:
        odd, good = server.ask(), server.ask()
        assert isinstance(odd.wait().error, InternalError)
        assert good.wait().deltas[-1].finish_reason == "length"
        assert server.ask().wait().deltas[-1].finish_reason == "length"
        assert counts(server.service) == (0, 0, 0)
    assert "ValueError" in caplog.text


def test_a_client_that_cannot_be_asked_does_not_end_the_others_cancellation(
    crash_window: None, caplog: Any
) -> None:
    class Broken(Collector):
        def is_cancelled(self) -> bool:
            raise RuntimeError("no such sender")

    with FakeServer(max_num_seqs=2) as server:
        broken, leaving = Broken(), server.ask(max_tokens=2000)
        server.service.submit(GenerationRequest("hello", None, Sampling(2000)), broken)
        assert isinstance(broken.wait().error, Cancelled)
        leaving.cancelled = True
        assert isinstance(leaving.wait().error, Cancelled)
    assert "no such sender" in caplog.text


@pytest.mark.parametrize("refused", ["first", "last"])
def test_a_delta_that_cannot_be_sent_ends_the_answer_with_an_error(refused: str, caplog: Any) -> None:
    class Full(Collector):
        def send(self, delta: Delta) -> None:
            if bool(delta.finish_reason) == (refused == "last"):
                raise RuntimeError("no shared memory left")
            super().send(delta)

    with FakeServer() as server:
        sink = Full()
        server.service.submit(GenerationRequest("hello", None, Sampling(200)), sink)
        assert isinstance(sink.wait().error, InternalError)
        assert not sink.after_end
        eventually(lambda: counts(server.service) == (0, 0, 0))
        eventually(lambda: server.value("requests_total", outcome="internal") == 1)
    assert "no shared memory left" in caplog.text


def test_an_engine_that_never_opens_again_is_given_up(crash_window: None, caplog: Any) -> None:
    starts = Starts(start_process, *[OSError("out of memory")] * 3)
    with FakeServer(start=starts, max_num_seqs=2, fake_step_ms=2.0) as server:
        probe = server.submit(ProbeRequest())
        assert probe.wait().deltas[-1].finish_reason == "ready"
        server.ask(max_tokens=2000), server.ask(max_tokens=2000)
        waiting = server.ask()
        starts.kill()
        assert "keeps failing" in str(waiting.wait().error)
        with pytest.raises(Unavailable, match="keeps failing"):
            server.ask()
        with pytest.raises(Unavailable, match="keeps failing"):
            server.submit(ProbeRequest())
    assert "out of memory" in caplog.text


def test_an_engine_that_opens_after_close_is_ended() -> None:
    opening, closed = threading.Event(), threading.Event()

    def late(settings: LlmSettings) -> EngineCoreClient:
        opening.set()
        closed.wait(1)  # service.close() waits for this thread
        return start_process(settings)

    starts = Starts(start_process, late)
    server = FakeServer(start=starts)
    starts.kill()
    assert opening.wait(10)
    server.service.close()
    closed.set()
    eventually(lambda: len(starts.links) == 2)
    eventually(lambda: not os.path.exists(f"/proc/{starts.links[-1].pid}"))


def test_a_new_engine_with_less_memory_refuses_who_fits_it_no_more(caplog: Any) -> None:
    """A pool that is as large as memory allows need not be the same the second time."""
    engines = PlayedEngines(64, 4)
    with FakeServer(start=engines.start, max_num_seqs=2) as server:
        running = [server.ask(max_tokens=400) for _ in range(2)]
        large, small = server.ask(max_tokens=900), server.ask(max_tokens=20)
        eventually(lambda: counts(server.service)[:2] == (2, 2))
        engines.lose()
        for answer in running:
            assert str(answer.wait().error) == "the engine that had this request died; retry after 2 s"
        assert str(large.wait().error) == "the engine was opened anew with less memory than this needs"
        assert small.wait().deltas[-1].finish_reason == "length"
        assert server.value("engine_restarts_total") == 1
    assert "illegal memory access" in caplog.text


def test_an_engine_lost_while_idle_is_replaced_before_anyone_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_CHECK_SECONDS", 0.01)
    engines = PlayedEngines()
    with FakeServer(start=engines.start) as server:
        server.ask().wait()
        engines.lose()
        eventually(lambda: len(engines.opened) == 2 and server.value("engine_ready") == 1)
        assert server.ask().wait().deltas[-1].finish_reason == "length"


def test_a_fault_while_a_new_engine_is_taken_costs_that_engine_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(core, "_CHECK_SECONDS", 0.01)
    reopen, faults = Scheduler.reopen, iter([fault])
    monkeypatch.setattr(Scheduler, "reopen", lambda self, info: next(faults, reopen)(self, info))
    engines = PlayedEngines()
    with FakeServer(start=engines.start) as server:
        engines.lose()
        eventually(lambda: len(engines.opened) == 3 and server.value("engine_ready") == 1)
        assert server.ask().wait().deltas[-1].finish_reason == "length"
    assert "a fault" in caplog.text


@pytest.fixture(params=["no cache", "cache"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    with FakeServer(answers=Answers() if request.param == "cache" else None, fake_step_ms=2.0) as running:
        yield running


def fault(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a fault")


def failed(sink: Collector, server: FakeServer) -> None:
    """It got one end, nothing is left of it, and the next one is served."""
    assert isinstance(sink.wait().error, InternalError)
    server.nothing_left()
    assert not sink.after_end


@pytest.mark.parametrize(
    ("where", "what"),
    [(Scheduler, "admit"), (Dispatcher, "schedule"), (Scheduler, "next"), (Dispatcher, "add")],
)
def test_a_fault_while_it_is_queued(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, caplog: Any, where: type, what: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(where, what, fault)
        sink = ask(server)
        sink.wait()
    failed(sink, server)
    assert ask(server, "next").wait().error is None
    assert "a fault" in caplog.text


def test_a_fault_while_a_stored_answer_is_taken(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    with FakeServer(answers=Answers()) as server:
        ask(server).wait()
        with monkeypatch.context() as patch:
            patch.setattr(RequestState, "answer", fault)
            sink = ask(server)
            sink.wait()
        failed(sink, server)
        assert "a fault" in caplog.text


def test_a_fault_while_it_joins(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    engines = PlayedEngines()
    with FakeServer(answers=Answers(), start=engines.start) as server:
        first = ask(server, max_tokens=200)
        eventually(lambda: first.deltas != [])
        with engines.paused(), monkeypatch.context() as patch:
            patch.setattr(Dispatcher, "boost", fault)
            second = ask(server, max_tokens=200)
            eventually(lambda: second.deltas != [])
        assert first.wait().text == second.wait().text
        assert not second.after_end
        assert "a fault" in caplog.text


@pytest.mark.parametrize(("where", "what"), [(Answers, "keep"), (Scheduler, "finish"), (Generation, "push")])
def test_a_fault_when_an_answer_is_complete_costs_nobody_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, where: type, what: str
) -> None:
    monkeypatch.setattr(where, what, fault)
    with FakeServer(answers=Answers(), fake_step_ms=2.0) as server:
        sinks = [ask(server, max_tokens=20) for _ in range(3)]
        for sink in sinks:
            sink.wait()
        server.nothing_left()
        assert not any(sink.after_end for sink in sinks)
        eventually(lambda: "a fault" in caplog.text)
