"""Another server beside the served one: the same questions, answers as long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.bench.targets.test_http import app_of, listening
from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.load.plan import Case, LoadPlan
from trimodal.bench.scenarios.llm import LlmScenario, _beside, _open_beside, run_llm
from trimodal.bench.scenarios.server import LoadTest
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.client import Timeout
from trimodal.errors import ServerError, SettingsError

CASE = LoadPlan().cases[0]
MIX = Mix(parse_lengths("8", ""), parse_lengths("16", ""))


class Served:
    """The served side, of which the lengths of three answers are known."""

    def questions(self, case: Case, number: int) -> Questions:
        return Questions(MIX, f"{case.name} {number}")

    def lengths(self, case: Case, number: int) -> dict[int, int]:
        return {0: 5, 1: 0}


@asynccontextmanager
async def other_server(bodies: list[dict[str, Any]], *, knows_ignore_eos: bool) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if "ignore_eos" in body and not knows_ignore_eos:
            return web.json_response({"error": {"message": "unknown field"}}, status=400)
        bodies.append({**body, "key": request.headers.get("Authorization", "")})
        return web.Response(text='data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n')

    async with listening(app_of(answer, "/v1/chat/completions")) as url:
        yield f"{url}/v1"


@pytest.mark.parametrize("knows", [True, False])
async def test_it_is_asked_the_same_for_answers_as_long(knows: bool) -> None:
    bodies: list[dict[str, Any]] = []
    async with other_server(bodies, knows_ignore_eos=knows) as url:
        target = await _open_beside(url, LoadTest(LoadPlan(), key="k"))
        try:
            send = _beside(target, Served())(CASE, 2)  # type: ignore[arg-type]
            records = [await send(number) for number in range(3)]
        finally:
            await target.aclose()
    assert [record.outcome for record in records] == ["ok"] * 3
    asked = bodies[-3:]
    assert [body["max_tokens"] for body in asked] == [5, 16, 16]
    served = Served().questions(CASE, 2)
    assert [body["messages"][0]["content"] for body in asked] == [served(n).text for n in range(3)]
    assert all(("ignore_eos" in body) == knows for body in asked)
    assert all(body["key"] == "Bearer k" for body in asked)


async def test_the_key_of_the_served_one_goes_to_no_other() -> None:
    bodies: list[dict[str, Any]] = []
    async with other_server(bodies, knows_ignore_eos=True) as url:
        test = LoadTest(LoadPlan(), url="http://elsewhere/v1", key="secret")
        await (await _open_beside(url, test)).aclose()
    assert {body["key"] for body in bodies} == {""}


async def test_a_server_that_is_not_there_ends_it_before_any_load() -> None:
    async with listening(web.Application()) as url:
        pass
    with pytest.raises(ServerError, match=f"no server at {url}/v1/models"):
        await _open_beside(f"{url}/v1", LoadTest(LoadPlan()))

    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.4)
        return web.Response()

    app = web.Application()
    app.router.add_get("/v1/models", silent)
    async with listening(app) as url:
        with pytest.raises(Timeout, match="/v1/models did not answer within 0.1 s"):
            await _open_beside(f"{url}/v1", LoadTest(LoadPlan(timeout=0.1)))
    with pytest.raises(SettingsError, match="h:1: http://host:port"):
        await _open_beside("h:1", LoadTest(LoadPlan()))


async def test_the_bare_engine_is_of_this_machine() -> None:
    with pytest.raises(SettingsError, match="--bare runs on this machine's own model"):
        await run_llm(LoadTest(LoadPlan(), url="127.0.0.1:1"), LlmScenario(MIX, bare=True))
