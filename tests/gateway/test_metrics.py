"""What GET /metrics tells of requests, and whom."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import CHAT, LIMIT_S, Running, Serve, fails, fake_triton
from trimodal.client.transports.fake import scripted
from trimodal.errors import Unavailable
from trimodal.gateway.keys import Key, add_key
from trimodal.logs import RecordFormatter

ENDPOINT = "/v1/chat/completions"


def read(url: str, key: str = "none") -> dict[tuple[str, ...], float]:
    """(name, label values in the order of the labels' names) → value, without the gateway's prefix."""
    answer = httpx.get(f"{url}/metrics", headers={"authorization": f"Bearer {key}"}, timeout=LIMIT_S)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name.removeprefix("trimodal_gateway_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def until(served: Running, wanted: tuple[str, ...], value: float) -> dict[tuple[str, ...], float]:
    """What it tells once this value is there: an answer is counted when its last byte is sent."""
    wait_until(lambda: read(served.url).get(wanted) == value, f"{wanted} is {value}")
    return read(served.url)


def test_a_stream_and_a_whole_answer(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted("a few words of text", step=0.01)))
    client = served.openai()
    client.chat.completions.create(model="llm", messages=CHAT)
    list(client.chat.completions.create(model="llm", messages=CHAT, stream=True))
    found = until(served, ("requests_total", ENDPOINT, "llm", "200", ""), 2)
    assert found["request_seconds_count", ENDPOINT, "llm"] == 2
    assert found["ttft_seconds_count", ENDPOINT, "llm"] == 1, "of streams only"
    assert found["itl_seconds_count", ENDPOINT, "llm"] == 1
    assert 0.01 <= found["itl_seconds_sum", ENDPOINT, "llm"] <= found["request_seconds_sum", ENDPOINT, "llm"]
    assert found["tokens_total", ""] == 2 * (8 + 5)
    assert found["in_flight",] == 1, "the one that asks"


def test_refusals_by_cause_and_names_that_nobody_knows(serve: Serve) -> None:
    served = serve(fake_triton(llm=fails(Unavailable("the queue is full", 2.0))))
    client = served.openai()
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="llm", messages=CHAT, stream=stream)
    for number in range(3):
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model=f"no-such-{number}", messages=CHAT)
    httpx.get(f"{served.url}/no/such/path")
    found = until(served, ("refusals_total", "invalid_request_error", "other"), 1)
    assert found["refusals_total", "overloaded", ENDPOINT] == 2
    assert found["refusals_total", "model_not_found", ENDPOINT] == 3
    assert found["requests_total", ENDPOINT, "other", "404", ""] == 3, "a made-up name is no label"
    assert ("ttft_seconds_count", ENDPOINT, "other") not in found


def test_an_error_in_the_middle_of_a_stream(serve: Serve) -> None:
    served = serve(fake_triton(llm=fails(Unavailable("the server is shutting down"), "one")))
    with pytest.raises(openai.APIError, match="shutting down"):
        list(served.chat(stream=True))
    found = until(served, ("refusals_total", "overloaded", ENDPOINT), 1)
    assert found["requests_total", ENDPOINT, "llm", "200", ""] == 1, "its head was sent"


def test_what_no_server_answers_is_told_in_the_log_and_counted(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trimodal")
    triton = fake_triton()
    triton.reachable = False
    served = serve(triton)
    for path in ("/v1/models", "/v1/models/llm"):
        answer = httpx.get(f"{served.url}{path}", headers={"x-request-id": "mine"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (503, "mine")
    assert httpx.get(f"{served.url}/ready").status_code == 503
    found = until(served, ("refusals_total", "not_ready", "/ready"), 1)
    assert found["requests_total", "/v1/models", "", "503", ""] == 1
    assert found["refusals_total", "overloaded", "/v1/models"] == 1
    assert found["upstream_ready", "", "127.0.0.1:8001", ""] == 0
    told = [(record.request_id, record.fields["error"]) for record in lines(caplog)]
    assert told[:2] == [("mine", "overloaded")] * 2
    assert not [record for record in caplog.records if record.exc_info]
    assert httpx.head(f"{served.url}/ready?any=1").status_code == 503


def test_the_line_of_a_probe_that_fails_names_the_model(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trimodal")
    triton = fake_triton()

    async def ready(model: str, timeouts: object) -> bool:
        return not model.startswith("embedding")

    triton.ready = ready  # type: ignore[method-assign]
    url = f"{serve(triton).url}/ready"
    assert httpx.get(url).status_code == 503
    wait_until(lambda: lines(caplog), "the line")
    assert (lines(caplog)[0].fields["down"], lines(caplog)[0].fields["error"]) == ("embedding", "not_ready")
    any_model = httpx.get(url, params={"any": 1})
    assert (any_model.status_code, any_model.json()["ready"]) == (200, False)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/llm", "/health", "/ready", "/metrics", "/"])
def test_every_answer_has_the_requests_id(
    serve: Serve, file: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level("INFO", "trimodal")
    key = add_key(file, Key(name="app", tenant="team", operator=True))
    served, bearer = serve(keys=file), {"authorization": f"Bearer {key}"}
    given = httpx.get(f"{served.url}{path}", headers={**bearer, "x-request-id": "mine"})
    assert (given.status_code, given.headers.get_list("x-request-id")) == (200, ["mine"])
    own = httpx.get(f"{served.url}{path}", headers=bearer).headers["x-request-id"]
    assert own.startswith("req_")
    if path.startswith("/v1/"):
        wait_until(lambda: len(lines(caplog)) == 2, "the lines")
        assert [record.request_id for record in lines(caplog)] == ["mine", own]
        assert {record.fields["tenant"] for record in lines(caplog)} == {"team"}


async def test_clients_that_leave(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted("word " * 500, step=0.01)))
    body = {"model": "llm", "messages": CHAT}
    async with httpx.AsyncClient() as client:
        for stream in (True, False):
            post = client.post(f"{served.url}{ENDPOINT}", json={**body, "stream": stream})
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(post, 0.2)
    left = ("requests_total", ENDPOINT, "llm", "499", "")
    found = await asyncio.to_thread(until, served, left, 2)
    assert found["in_flight",] == 1


def test_with_keys_an_operators_is_needed(serve: Serve, file: Path) -> None:
    user = add_key(file, Key(name="app", tenant="team"))
    operator = add_key(file, Key(name="prometheus", operator=True))
    served = serve(keys=file)
    served.openai(user).chat.completions.create(model="llm", messages=CHAT)
    assert httpx.get(f"{served.url}/metrics").status_code == 401
    refused = httpx.get(f"{served.url}/metrics", headers={"authorization": f"Bearer {user}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_an_operator")
    assert read(served.url, operator)["tokens_total", "team"] > 0


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the log has of requests."""
    return [record for record in caplog.records if hasattr(record, "fields")]


def test_every_request_has_a_line_in_the_log(
    serve: Serve, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trimodal")
    key = add_key(file, Key(name="app", tenant="team"))
    served = serve(fake_triton(llm=scripted("a few words of text")), keys=file)
    assert served.chat(key, stream=True).response.is_success
    served.chat(key)
    httpx.post(
        f"{served.url}/v1/nothing%0A%1B status=200",
        headers={"authorization": f"Bearer {key}", "x-request-id": "1"},
    )
    httpx.get(f"{served.url}/v1/models")
    for probe in ("health", "ready"):
        assert httpx.get(f"{served.url}/{probe}").is_success
    wait_until(lambda: len(lines(caplog)) == 4, "the lines")
    streamed, whole, unknown, keyless = lines(caplog)
    assert streamed.getMessage() == whole.getMessage() == "POST /v1/chat/completions"
    for record in (streamed, whole):
        told = record.fields
        assert (told["status"], told["model"], told["tenant"]) == (200, "llm", "team")
        assert told["completion_tokens"] > 1
        assert "upstream" in told
        assert told["total_ms"] > 0
        assert record.request_id.startswith("req_")
    assert streamed.fields["ttft_ms"] <= streamed.fields["total_ms"]
    assert unknown.getMessage() == "POST /v1/nothing%0A%1B%20status%3D200"
    assert (unknown.request_id, unknown.fields["status"]) == ("1", 404)
    assert keyless.fields["error"] == "no_api_key"
    assert not any("hi" in str(record.fields.values()) for record in lines(caplog)), (
        "nothing of what was said"
    )


def test_no_name_of_a_client_makes_lines_or_fields_of_its_own(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trimodal")
    name = "x status=200\n2026-11-26T00:00:00.000Z ERROR llm the engine is lost \x1b[31m\u2028"
    httpx.post(f"{serve().url}{ENDPOINT}", json={"model": name, "messages": CHAT})
    wait_until(lambda: lines(caplog), "the line")
    told = RecordFormatter("", as_json=False).format(lines(caplog)[0])
    assert told.isprintable()
    assert f" model={json.dumps(name)} " in told


def test_fewer_lines_on_request(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trimodal")
    for share, expected in ((0.0, 0), (1e-9, 1)):
        caplog.clear()
        served = serve(log_requests=share)
        for _ in range(5):
            httpx.get(f"{served.url}/v1/models")
        assert httpx.get(f"{served.url}/v1/nothing").status_code == 404
        wait_until(lambda expected=expected: len(lines(caplog)) >= expected, "the failure")
        assert len(lines(caplog)) == expected
