"""Calls that would never end: of a silent server, of a process that is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from trimodal.client.transports import watchdog as module
from trimodal.client.transports.watchdog import Watchdog

LIMIT_S = 10.0


class Call:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Page:
    """Knows that the llm was lost a moment ago."""

    asked = 0

    async def lost(self, models: Sequence[str], waited: float) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        return "llm" if "llm" in models and waited > 0 else ""


async def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.002)


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
