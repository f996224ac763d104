"""Headers, every error of the package that the gateway can cause, retries, and clients that leave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import openai
import pytest

from tests.e2e.conftest import wait_until
from tests.e2e.gateway.calls.starter import GREECE, HANDBOOK, JAPAN, Starter, counted, opened, said, user
from trimodal.gateway.keys import Key, add_key, revoke_key

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

PATH = "/v1/chat/completions"
# Thousands of tokens: a client that leaves is what ends them.
LONG = {"model": "llm", "messages": JAPAN, "n": 16, "temperature": 2, "seed": 1, "max_tokens": 900}


def test_headers_of_a_whole_answer(starter: Starter) -> None:
    create = starter.client.chat.completions.with_raw_response.create
    raw = create(model="llm", messages=JAPAN, extra_headers={"x-request-id": "mine-1"})
    assert raw.headers["x-request-id"] == raw.request_id == "mine-1"
    assert [part.partition(";")[0] for part in raw.headers["server-timing"].split(", ")] == [
        "queue", "ttft", "total",
    ]  # fmt: skip
    assert raw.headers["x-trimodal-cache"] == "miss"
    assert "Tokyo" in said(raw.parse())


def test_a_request_id_is_made(starter: Starter) -> None:
    create = starter.client.chat.completions.create
    answers = [create(model="llm", messages=JAPAN, max_tokens=2) for _ in range(2)]
    identities = {answer._request_id for answer in answers}
    assert len(identities) == 2
    assert all(identity.startswith("req_") for identity in identities)


def test_headers_before_a_streams_end(starter: Starter) -> None:
    create = starter.client.chat.completions.with_streaming_response.create
    with create(model="llm", messages=JAPAN, stream=True) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"].startswith("req_")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer.parse())
    assert "Tokyo" in text


def test_how_a_stream_came_about(starter: Starter) -> None:
    *_, last = starter.client.chat.completions.create(model="llm", messages=JAPAN, stream=True)
    note = last.trimodal
    assert 0 < note["ttft_ms"] < note["total_ms"]


def test_the_cache_answers_again(starter: Starter) -> None:
    def source() -> str:
        create = starter.client.chat.completions.with_raw_response.create
        raw = create(model="llm", messages=user(GREECE), extra_headers={"cache-control": ""})
        return raw.headers["x-trimodal-cache"]

    assert source() == "miss"
    wait_until(lambda: source() == "exact", "the answer to be stored")


def test_what_a_key_has_left(starter: Starter) -> None:
    with starter.known("metered") as client:
        create = client.chat.completions.with_raw_response.create
        # A thousand tokens, which take more than half a second to come back.
        chat = [{"role": "system", "content": HANDBOOK * 3}, *JAPAN]
        first, second = (create(model="llm", messages=chat, max_tokens=9).headers for _ in range(2))
    assert first["x-ratelimit-limit-requests"] == "6000"
    left = [int(one["x-ratelimit-remaining-requests"]) for one in (first, second)]
    # Full before each: 100 a second come back, so the one that was taken may be there again when it is told.
    assert set(left) <= {5999, 6000}
    assert int(second["x-ratelimit-remaining-tokens"]) < int(first["x-ratelimit-remaining-tokens"])


def test_bad_request(starter: Starter) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        starter.client.chat.completions.create(model="llm", messages=JAPAN, temperature=3)
    error = caught.value
    assert (error.status_code, error.param, error.type) == (400, "temperature", "invalid_request_error")
    assert error.request_id.startswith("req_")


def test_bad_request_of_a_stream(starter: Starter) -> None:
    with pytest.raises(openai.BadRequestError, match="max_tokens is 1000000") as caught:
        starter.client.chat.completions.create(model="llm", messages=JAPAN, max_tokens=1_000_000, stream=True)
    assert caught.value.param == "max_tokens"


def test_bad_request_with_a_field_that_cannot_be_honoured(starter: Starter) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        starter.client.chat.completions.create(model="llm", messages=JAPAN, modalities=["text", "audio"])
    assert (caught.value.param, caught.value.code) == ("modalities", "unsupported_parameter")


def test_a_prompt_that_is_too_long(starter: Starter) -> None:
    with pytest.raises(openai.BadRequestError, match="tokens"):
        starter.client.chat.completions.create(model="llm", messages=user("a lion " * 20_000))


def test_authentication(starter: Starter) -> None:
    with opened(starter.keyed, api_key="tm-unknown") as client:
        for ask in (client.models.list, lambda: client.embeddings.create(model="embedding", input="a")):
            with pytest.raises(openai.AuthenticationError) as caught:
                ask()
    assert (caught.value.code, caught.value.type) == ("invalid_api_key", "authentication_error")


def test_authentication_of_a_revoked_key(starter: Starter) -> None:
    key = add_key(starter.file, Key(name="leaving"))
    with opened(starter.keyed, api_key=key) as client:

        def known() -> bool:
            try:
                client.models.list()
            except openai.AuthenticationError:
                return False
            return True

        wait_until(known, "the new key")
        revoke_key(starter.file, "leaving")
        wait_until(lambda: not known(), "its end")


def test_permission(starter: Starter) -> None:
    with starter.known("narrow") as client:
        assert [model.id for model in client.models.list()] == ["vision"]
        with pytest.raises(openai.PermissionDeniedError) as caught:
            client.chat.completions.create(model="llm", messages=JAPAN)
    assert caught.value.code == "model_not_allowed"


def test_no_such_model(starter: Starter) -> None:
    with pytest.raises(openai.NotFoundError):
        starter.client.models.retrieve("gpt-9")
    with pytest.raises(openai.NotFoundError) as caught:
        starter.client.chat.completions.create(model="gpt-9", messages=JAPAN)
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_no_such_endpoint(starter: Starter) -> None:
    with pytest.raises(openai.NotFoundError):
        starter.client.images.generate(model="vision", prompt="a seven")


def test_a_body_that_is_too_large(starter: Starter) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        starter.client.embeddings.create(model="embedding", input="a" * (33 << 20))
    assert (caught.value.status_code, caught.value.code) == (413, "body_too_large")


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


def test_unavailable(starter: Starter) -> None:
    with (
        counted(starter.down, max_retries=1) as (client, sent),
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.chat.completions.create(model="llm", messages=JAPAN)
    assert caught.value.status_code == 503
    assert int(caught.value.response.headers["retry-after-ms"]) > 0
    assert sent == [PATH] * 2


def test_a_deadline_that_cannot_be_met(starter: Starter) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        starter.client.chat.completions.create(
            model="llm",
            messages=user("What is a lion? " * 150),
            extra_headers={"x-slo-ttft-ms": "1"},
        )
    assert (caught.value.status_code, caught.value.code) == (503, "overloaded")


def test_a_time_limit_of_the_clients(starter: Starter) -> None:
    limits = counted(starter.url, max_retries=1, timeout=0.02)
    with limits as (client, sent), pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**LONG)
    assert sent == [PATH] * 2


def test_nobody_listens(starter: Starter) -> None:
    with socket.socket() as unused:  # bound and not listening: refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with (
            counted(url, max_retries=2) as (client, sent),
            pytest.raises(openai.APIConnectionError) as caught,
        ):
            client.models.list()
    assert not isinstance(caught.value, openai.APITimeoutError)
    assert sent == ["/v1/models"] * 3


def test_a_bad_request_is_not_sent_again(starter: Starter) -> None:
    with counted(starter.url, max_retries=2) as (client, sent), pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="llm", messages=JAPAN, temperature=3)
    assert sent == [PATH]


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


def test_a_response_that_is_closed(starter: Starter) -> None:
    before = left(starter)
    create = starter.client.chat.completions.with_streaming_response.create
    with create(**LONG, stream=True) as answer:
        next(answer.iter_lines())
    gone(starter, before)
