"""What only a real engine or the package itself shows of refusals, retries and clients that leave.

Every status and header is in tests/gateway, by the same package.
"""

from __future__ import annotations

import asyncio
import threading
import time

import openai
import pytest

from tests.e2e.conftest import wait_until
from tests.e2e.gateway.calls.starter import GREECE, JAPAN, Starter, counted, said, user

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

PATH = "/v1/chat/completions"
# Thousands of tokens: a client that leaves is what ends them.
LONG = {"model": "llm", "messages": JAPAN, "n": 16, "temperature": 2, "seed": 1, "max_tokens": 900}


def test_headers_before_a_streams_end(starter: Starter) -> None:
    create = starter.client.chat.completions.with_streaming_response.create
    with create(model="llm", messages=JAPAN, stream=True) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"].startswith("req_")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer.parse())
    assert "Tokyo" in text


def test_the_cache_answers_again(starter: Starter) -> None:
    def source() -> str:
        create = starter.client.chat.completions.with_raw_response.create
        raw = create(model="llm", messages=user(GREECE), extra_headers={"cache-control": ""})
        return raw.headers["x-trimodal-cache"]

    assert source() == "miss"
    wait_until(lambda: source() == "exact", "the answer to be stored")


def test_no_such_endpoint(starter: Starter) -> None:
    with pytest.raises(openai.NotFoundError):
        starter.client.images.generate(model="vision", prompt="a seven")


def test_rate_limit_of_tokens(starter: Starter) -> None:
    with starter.known("poor") as client:
        assert "Tokyo" in said(client.chat.completions.create(model="llm", messages=JAPAN))
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="llm", messages=JAPAN)
    assert caught.value.code == "rate_limit_exceeded"
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 120


def test_rate_limit_that_a_retry_outlives(starter: Starter) -> None:
    """The key has one stream: the second request waits as long as it is told, and finds the first gone."""
    with (
        starter.known("single") as client,
        counted(starter.keyed, api_key=starter.keys["single"], max_retries=2) as (patient, sent),
    ):
        held = client.chat.completions.create(**LONG, stream=True)
        next(held)
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="llm", messages=JAPAN)
        wait_s = int(caught.value.response.headers["retry-after-ms"]) / 1e3
        threading.Timer(0.3, held.close).start()
        began = time.monotonic()
        raw = patient.chat.completions.with_raw_response.create(model="llm", messages=JAPAN)
        assert time.monotonic() - began >= wait_s > 0.5
    assert "Tokyo" in said(raw.parse())
    assert (raw.retries_taken, sent) == (1, [PATH] * 2)


def test_a_deadline_that_cannot_be_met(starter: Starter) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        starter.client.chat.completions.create(
            model="llm",
            messages=user("What is a lion? " * 150),
            extra_headers={"x-slo-ttft-ms": "1"},
        )
    assert (caught.value.status_code, caught.value.code) == (503, "overloaded")


def left(starter: Starter) -> float:
    """How many clients left before their answer's end, counted while none is there."""
    wait_until(lambda: starter.metric("in_flight") == 1, "no request but that for /metrics")
    return starter.metric("requests_total", model="llm", status="499")


def gone(starter: Starter, before: float) -> None:
    """Waits until one more client has left, and nothing is answered any more."""
    wait_until(lambda: left(starter) == before + 1, "the client to be missed")


def test_a_stream_that_is_closed(starter: Starter) -> None:
    before = left(starter)
    with starter.client.chat.completions.create(**LONG, stream=True) as stream:
        next(stream)
    gone(starter, before)


async def test_a_task_that_is_cancelled(starter: Starter) -> None:
    before = await asyncio.to_thread(left, starter)
    async with starter.asynchronous() as client:
        task = asyncio.ensure_future(client.chat.completions.create(**LONG))
        # It and the request for /metrics; the task goes on while a thread asks.
        await asyncio.to_thread(
            wait_until, lambda: starter.metric("in_flight") == 2, "the request to be there"
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.to_thread(gone, starter, before)
