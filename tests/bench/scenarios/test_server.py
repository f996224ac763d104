from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.scenarios import server
from trimodal.bench.scenarios.server import LoadTest, ServerUnderTest, facts, server_under_test
from trimodal.errors import SettingsError
from trimodal.server.options import ServerOptions
from trimodal.server.process import Interrupted

CHANGES = {"llm": {"engine": "fake"}}


def test_what_a_running_server_does_not_have_is_not_told_of_it() -> None:
    with pytest.raises(SettingsError, match="--set changes a server that is started for the test"):
        LoadTest(LoadPlan(), url="127.0.0.1:8001", changes=CHANGES)
    told = dict(facts(LoadTest(LoadPlan(), url="127.0.0.1:8001"), ServerUnderTest("127.0.0.1:8001")))
    assert told["server"] == "127.0.0.1:8001"
    assert "settings" not in told
    assert dict(facts(LoadTest(LoadPlan(), changes=CHANGES), ServerUnderTest("here:1")))["settings"] == (
        "llm.engine=fake"
    )


async def test_a_start_that_is_cancelled_leaves_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop stood still while a server started: Ctrl-C did nothing."""
    began, told = threading.Event(), []

    class Starting:
        def __init__(self, options: ServerOptions) -> None: ...

        def start(self, *, stop: Callable[[], bool]) -> None:
            began.set()
            while not stop():
                pass
            told.append("ended")
            raise Interrupted

        def kill(self) -> None:
            told.append("killed")

    async def bench() -> None:
        async with server_under_test(LoadTest(LoadPlan()), "llm"):
            told.append("served")

    monkeypatch.setattr(server, "TritonServer", Starting)
    task = asyncio.create_task(bench())
    await asyncio.to_thread(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["ended", "killed"]
