"""Calls that would never end: of a silent server, of a process that is gone, as its health page says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.doubles.waiting import until
from trimodal.client.transports import watchdog as module
from trimodal.client.transports.base import Request
from trimodal.client.transports.probes import stages
from trimodal.client.transports.watchdog import HealthPage, Watchdog

LIMIT_S = 10.0


class Call:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Page:
    """Knows that a model was lost a moment ago."""

    asked, lost_model = 0, "llm"

    async def lost(self, models: Sequence[str], waited: float) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        return self.lost_model if self.lost_model in models and waited > 0 else ""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    return Page()


async def test_a_call_in_a_dead_process_is_cancelled(page: Any) -> None:
    call = Call()
    watchdog = Watchdog(call, "assistant", LIMIT_S, page)  # the assistant needs the llm
    watchdog.wait()
    await until(lambda: call.cancelled)
    assert (watchdog.lost, watchdog.silent) == ("llm", False)
    assert str(watchdog.loss()) == "llm: the process that had this request died; retry after 2 s"
    watchdog.end()


@pytest.mark.parametrize("model", ["vision", "speech"])  # speech asks again by itself
async def test_other_models_go_on(page: Any, model: str) -> None:
    call = Call()
    watchdog = Watchdog(call, model, LIMIT_S, page)
    watchdog.wait()
    await until(lambda: page.asked > 2)
    assert not call.cancelled
    watchdog.end()
    asked = page.asked
    await asyncio.sleep(0.05)
    assert page.asked <= asked + 1  # nothing asks on after the end


IMAGE = Request("assistant@2", {"image": np.array([b""], dtype=object)})


@pytest.mark.parametrize(
    ("inputs", "stage", "asked"),
    [
        ({"audio"}, "heard", "speech"),
        ({"audio_int16", "image"}, "heard", "speech"),
        ({"audio", "image"}, "saw", "vision_classify"),
    ],
)
async def test_a_stage_whose_model_is_lost_ends_the_call(
    page: Any, inputs: set[str], stage: str, asked: str
) -> None:
    """A call to a process that was stopped, then killed, may stay unanswered: it took the silence's 20 s."""
    page.lost_model = asked
    all_stages = stages(Request("assistant", dict.fromkeys(inputs, np.zeros(1))))
    for passed in (False, True):
        call = Call()
        watchdog = Watchdog(call, "assistant", LIMIT_S, page, all_stages)
        if passed:
            watchdog.passed([stage.encode()])
        watchdog.wait()
        before = page.asked
        await until(lambda: call.cancelled or page.asked > before + 2)  # noqa: B023
        assert (call.cancelled, watchdog.lost) == (not passed, "" if passed else asked)
        watchdog.end()


@pytest.mark.parametrize("request_", [Request("assistant", {}), replace(IMAGE, model="vision")])
def test_what_is_not_asked_is_no_stage(request_: Request) -> None:
    assert stages(IMAGE).keys() == {"saw"}
    assert stages(request_) == {}


async def test_a_call_that_nobody_waits_for_goes_on(page: Any) -> None:
    call = Call()
    watchdog = Watchdog(call, "llm", 0.05, page)
    watchdog.wait()
    watchdog.came()
    await asyncio.sleep(0.15)
    assert (call.cancelled, page.asked, watchdog.silent) == (False, 0, False)
    watchdog.end()


@pytest.mark.parametrize("asks", [True, False])
async def test_silence_ends_a_call(page: Any, asks: bool) -> None:
    call = Call()
    watchdog = Watchdog(call, "vision", 0.05, page if asks else None)
    watchdog.wait()
    await until(lambda: call.cancelled)
    assert (watchdog.lost, watchdog.silent) == ("", True)
    watchdog.end()


async def test_an_answer_that_comes_during_a_question_is_not_cancelled(page: Any) -> None:
    call, asked, answer = Call(), asyncio.Event(), asyncio.Event()

    async def lost(models: Sequence[str], waited: float) -> str:
        asked.set()
        await answer.wait()
        return "llm"

    page.lost = lost
    watchdog = Watchdog(call, "llm", LIMIT_S, page)
    watchdog.wait()
    await asyncio.wait_for(asked.wait(), LIMIT_S)
    watchdog.came()
    answer.set()
    await asyncio.sleep(0.05)
    assert (call.cancelled, watchdog.lost) == (False, "")
    watchdog.end()


def told(**lost: float) -> bytes:
    return json.dumps(lost).encode()


@contextlib.asynccontextmanager
async def serving(body: bytes, *, hang: bool = False) -> AsyncIterator[tuple[HealthPage, list[bytes]]]:
    asked: list[bytes] = []
    release = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if hang:
            await release.wait()
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield HealthPage("127.0.0.1", server.sockets[0].getsockname()[1]), asked
    finally:
        release.set()
        server.close()
        await server.wait_closed()


async def test_a_model_that_was_lost_since() -> None:
    async with serving(told(llm=1.0, speech=9.0)) as (page, _):
        assert await page.lost(["llm"], 1.5) == "llm"
        assert await page.lost(["llm"], 0.5) == ""  # sent after that: the new process has it
        assert await page.lost(["assistant", "vision", "llm"], 1.5) == "llm"
        assert await page.lost(["vision", "unknown"], 1e9) == ""


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"[]", b'{"error": "there is no such page"}', b'{"llm": {}}', b"\xff"),
        *(b"[" * 5000, b'{"llm": ' + b"9" * 400 + b"}", b'{"llm": NaN}'),
    ],
)
async def test_a_page_that_says_something_else_is_no_loss(body: bytes) -> None:
    async with serving(body) as (page, _):
        assert await page.lost(["llm"], 1e9) == ""


async def test_a_page_that_hangs_or_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.05)
    async with serving(told(llm=0.0), hang=True) as (page, _):
        assert await page.lost(["llm"], 1e9) == ""
    assert await page.lost(["llm"], 1e9) == ""


async def test_many_who_wait_ask_once() -> None:
    async with serving(told(llm=0.1)) as (page, asked):
        assert await asyncio.gather(*(page.lost(["llm"], 1.0) for _ in range(50))) == ["llm"] * 50
        assert len(asked) == 1
