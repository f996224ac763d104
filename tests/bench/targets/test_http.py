"""Text over HTTP against a server of known delays and against hostile ones, in this process."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from trimodal.bench.targets.http import HttpLlm, read_url
from trimodal.bench.targets.questions import Question, listed
from trimodal.errors import SettingsError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PATH = "/v2/models/llm/generate_stream"


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asked(app: web.Application, path: str = "", **options: object) -> AsyncIterator[HttpLlm]:
    async with listening(app) as url:
        questions = listed([Question("why?", 3)])
        target = HttpLlm(url + path, questions, **options)  # type: ignore[arg-type]
        try:
            yield target
        finally:
            await target.aclose()


def app_of(handler: Handler, path: str = PATH) -> web.Application:
    app = web.Application()
    app.router.add_post(path, handler)
    return app


async def pieces(request: web.Request) -> web.StreamResponse:
    """Four pieces of generate_stream, the first after 0.1 s: thoughts, then text."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.sleep(0.1)
    for number in range(4):
        said = {"text_output": "a"} if number > 1 else {"text_output": "", "reasoning": "b"}
        event = {**said, "prompt_tokens": 8, "completion_tokens": number + 1}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await asyncio.sleep(0.01)
    return response


async def test_the_pieces_of_generate_stream_are_read_as_they_come() -> None:
    async with asked(app_of(pieces)) as target:
        record = await target.send(0)
    assert (record.outcome, len(record.pieces)) == ("ok", 4)
    assert record.ttft is not None
    assert record.ttft >= 0.1
    assert (record.input_tokens, record.output_tokens) == (8, 4)


async def test_openais_chunks_are_read_and_the_key_is_sent() -> None:
    seen: list[object] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers["Authorization"], await request.json()))
        response = web.StreamResponse()
        await response.prepare(request)
        for delta in ({"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}):
            chunk = {"choices": [{"delta": delta}]}
            await response.write(f"data: {json.dumps(chunk)}\r\n\r\n".encode())
        usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
        await response.write(f": note\n\ndata: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async with asked(app_of(answer, "/v1/chat/completions"), "/v1", model="m", key="k") as target:
        record = await target.send(0)
    assert (record.outcome, len(record.pieces)) == ("ok", 2)
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (7, 2, 3)
    ((key, body),) = seen  # type: ignore[misc]
    assert key == "Bearer k"
    assert (body["model"], body["max_tokens"], body["stream"]) == ("m", 3, True)


@pytest.mark.parametrize(
    ("status", "body", "outcome", "told"),
    [
        (503, '{"error": {"message": "full"}}', "unavailable", "HTTP 503: full"),
        (429, '{"error": "slow down"}', "unavailable", "slow down"),
        (400, '{"error": "max_tokens"}', "invalid_arg", "max_tokens"),
        (500, "<html>", "internal", "HTTP 500: <html>"),
        (502, "[]", "internal", "HTTP 502"),
        (404, "", "invalid_arg", "no reason given"),
        (200, 'data: {"error": "UNAVAILABLE: full; retry after 2 s"}\n\n', "unavailable", "full"),
        (200, "data: {\n\n", "protocol", "no JSON object"),
        (200, "data: 5\n\n", "protocol", "no JSON object"),
        # They counted as answered, the quickest of all.
        (200, '{"choices": [{"message": {"content": "a"}}]}', "protocol", "no stream of events"),
        (200, "<html>\n</html>\n", "protocol", "no stream of events"),
        (200, "", "protocol", "no stream of events"),
    ],
)
async def test_refusals_are_outcomes(status: int, body: str, outcome: str, told: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body)

    async with asked(app_of(answer)) as target:
        record = await target.send(0)
    assert record.outcome == outcome
    assert told in record.error


async def test_a_server_that_hangs_up_or_is_silent_is_told_apart() -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"text_output": "a"}\n\n')
        assert request.transport
        request.transport.close()
        return response

    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.4)
        return web.Response()

    async with asked(app_of(hang_up)) as target:
        assert (await target.send(0)).outcome == "unreachable"
    async with asked(app_of(silent), timeout=0.1) as target:
        record = await target.send(0)
    assert (record.outcome, record.pieces) == ("timeout", [])


@pytest.mark.parametrize(
    ("given", "url", "openai"),
    [
        ("http://h:8000", "http://h:8000/v2/models/llm/generate_stream", False),
        ("http://h:8000/v2/models/x/generate_stream", "http://h:8000/v2/models/x/generate_stream", False),
        ("https://h/v1/", "https://h/v1/chat/completions", True),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions", True),
    ],
)
def test_addresses_are_told_apart(given: str, url: str, openai: bool) -> None:
    assert read_url(given, "llm") == (url, openai)


@pytest.mark.parametrize(
    "given", ["ftp://h", "h:8000", "http://", "http://h/v1/completions", "http://[::1/v1", "http://h:x"]
)
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{given}: ")):
        read_url(given, "llm")


@pytest.mark.parametrize(
    ("listed", "asked_for"),
    [
        ({"data": [{"id": "llama"}]}, "llama"),
        ({"data": [{"id": "a"}, {"id": "llm"}]}, "llm"),
        ({"data": []}, "llm"),
        ({"error": "no such path"}, "llm"),
    ],
)
async def test_an_openai_server_s_own_model_is_asked(listed: object, asked_for: str) -> None:
    seen: list[str] = []

    async def models(request: web.Request) -> web.StreamResponse:
        return web.json_response(listed)

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((await request.json())["model"])
        return web.Response(text="data: [DONE]\n\n")

    app = app_of(answer, "/v1/chat/completions")
    app.router.add_get("/v1/models", models)
    async with asked(app, "/v1") as target:
        await target.choose_model()
        await target.send(0)
    assert seen == [asked_for]
