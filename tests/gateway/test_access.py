"""Who is let in, on a gateway with keys."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from starlette.requests import HTTPConnection

from tests.gateway.conftest import CHAT, Serve, fails, fake_triton
from tests.gateway.openai.test_audio import wav
from tests.gateway.openai.test_conversation import IMAGE, PICTURE, user
from trimodal import logs
from trimodal.client.transports.fake import llm_outputs
from trimodal.errors import SettingsError
from trimodal.gateway.access import Access
from trimodal.gateway.keys import Key, add_key, revoke_key
from trimodal.gateway.quota import Quota
from trimodal.gateway.settings import GatewaySettings

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "no_api_key"),
        ({"authorization": "Bearer"}, "no_api_key"),
        ({"authorization": "Basic dG06dG0="}, "no_api_key"),
        ({"authorization": "Bearer tm-wrong"}, "invalid_api_key"),
        ({"authorization": "Bearer \udc80".encode("utf-8", "surrogateescape")}, "invalid_api_key"),
    ],
    ids=["none", "empty", "basic", "unknown", "bytes"],
)
def test_nobody_else_is_let_in(serve: Serve, file: Path, headers: dict[str, str], code: str) -> None:
    add_key(file, Key(name="a"))
    served = serve(keys=file)
    posts = (
        "chat/completions",
        "completions",
        "embeddings",
        "images/classifications",
        "audio/transcriptions",
    )
    answers = [httpx.get(f"{served.url}/v1/models", headers=headers)]
    answers += [httpx.post(f"{served.url}/v1/{path}", json={}, headers=headers) for path in posts]
    assert [(one.status_code, one.json()["error"]["code"]) for one in answers] == [(401, code)] * 6
    assert served.triton.requests == []
    assert httpx.get(f"{served.url}/health").status_code == 200


def test_a_key_for_some_models(serve: Serve, file: Path) -> None:
    secret = add_key(file, Key(name="a", models=("llm",)))
    client = serve(keys=file).openai(secret)
    assert [model.id for model in client.models.list()] == ["llm"]
    with pytest.raises(openai.PermissionDeniedError, match="does not hold for the model 'embedding'"):
        client.embeddings.create(model="embedding", input="a")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("embedding")


def test_limits_are_told_and_kept(serve: Serve, file: Path) -> None:
    secret = add_key(file, Key(name="a", requests_per_minute=2, tokens_per_minute=1000))
    client = serve(keys=file).openai(secret)
    raw = client.chat.completions.with_raw_response.create(model="llm", messages=CHAT)
    assert raw.headers["x-ratelimit-limit-requests"] == "2"
    assert raw.headers["x-ratelimit-remaining-requests"] == "1"
    client.chat.completions.create(model="llm", messages=CHAT)
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="llm", messages=CHAT, stream=True)
    assert caught.value.code == "rate_limit_exceeded"
    refusal = caught.value.response.headers
    assert 0 < int(refusal["retry-after"]) <= 30
    assert refusal["x-ratelimit-remaining-requests"] == "0"
    assert (refusal["x-ratelimit-limit-requests"], refusal["x-ratelimit-limit-tokens"]) == ("2", "1000")


def test_wrong_requests_count_and_none_is_parsed_beyond_a_limit(serve: Serve, file: Path) -> None:
    """A key could send bodies that take long to refuse for ever: none of them was counted."""
    secret = add_key(file, Key(name="a", requests_per_minute=2))
    served = serve(keys=file)
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}

    def status(body: str) -> int:
        return httpx.post(f"{served.url}/v1/chat/completions", content=body, headers=headers).status_code

    assert [status(body) for body in ("{", '{"model": "llm", "messages": []}', "{")] == [400, 400, 429]
    assert served.openai(secret).models.list().data, "what costs nothing is not counted"


def test_refusals_for_limits_are_held_back(serve: Serve, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    monkeypatch.setattr(Quota, "refusal_wait_s", lambda quota, key: held.append(key.name) or 0.0)
    keys = [Key(name="a", requests_per_minute=1), Key(name="b", images_per_minute=1), Key(name="c")]
    secrets = [add_key(file, key) for key in keys]
    served = serve(keys=file)
    talk = {"model": "assistant", "messages": [user("what is it?", IMAGE)]}
    for secret, body in zip(secrets * 2, [{}, talk, {}, {}, talk, {}], strict=True):
        headers = {"authorization": f"Bearer {secret}"}
        httpx.post(f"{served.url}/v1/chat/completions", json=body, headers=headers, timeout=20)
    assert set(held) == {"a", "b"}, "before its body is read, and by the endpoint"


def test_a_key_that_is_revoked_ends_its_streams_(serve: Serve, file: Path) -> None:
    async def endless(request):  # type: ignore[no-untyped-def]
        while True:
            yield llm_outputs("word ")
            await asyncio.sleep(0.01)

    secret = add_key(file, Key(name="a"))
    served = serve(fake_triton(llm=endless), keys=file)
    stream = served.chat(key=secret, stream=True)
    next(iter(stream))
    revoke_key(file, "a")
    with pytest.raises(openai.APIError, match="revoked"):
        list(stream)
    assert len(served.triton.cancelled) == 1
    with pytest.raises(openai.AuthenticationError):
        served.openai(secret).models.list()


def test_a_key_that_is_revoked_ends_its_whole_answers(serve: Serve, file: Path) -> None:
    async def forever(request):  # type: ignore[no-untyped-def]
        revoke_key(file, "a")
        await asyncio.Event().wait()
        yield llm_outputs("never")

    secret = add_key(file, Key(name="a"))
    served = serve(fake_triton(llm=forever), keys=file)
    with pytest.raises(openai.AuthenticationError, match="revoked"):
        served.chat(key=secret)
    assert len(served.triton.cancelled) == 1


def test_the_key_sets_tenant_and_tier_and_two_people_share_none(serve: Serve, file: Path) -> None:
    secrets = [
        add_key(file, Key(name="a")),
        add_key(file, Key(name="b")),
        add_key(file, Key(name="c", tenant="b", tier="premium")),
    ]
    served = serve(keys=file)
    for secret in secrets:
        served.chat(key=secret)
    sent = [request.inputs for request in served.triton.requests]
    assert [inputs["tenant"].tolist() for inputs in sent] == [[b"a"], [b"b"], [b"b"]]
    assert [inputs["tier"].tolist() for inputs in sent if "tier" in inputs] == [[b"premium"]]


@pytest.mark.parametrize(
    ("given", "kept"), [("my-id:1.a", True), ("a b", False), ("é", False), ("x" * 200, False)]
)
def test_a_request_id_is_kept_if_it_can_be_one(serve: Serve, given: str, kept: bool) -> None:
    headers = {"x-request-id": given.encode("latin-1")}
    told = httpx.get(f"{serve().url}/v1/models/llm2", headers=headers).headers["x-request-id"]
    assert (told == given) is kept
    assert kept or told.startswith("req_")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_beyond_this_machine_a_key_is_needed(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can be reached from other machines"):
        GatewaySettings(host=host)
    assert GatewaySettings(host=host, without_keys=True).host == host
    assert GatewaySettings(host=host, keys=tmp_path / "keys.toml").host == host
    for near in ("127.0.0.1", "::1", "localhost", "127.8.0.1"):
        assert GatewaySettings(host=near).host == near


def test_every_request_to_triton_belongs_to_the_trace(serve: Serve) -> None:
    served = serve()
    headers = {"traceparent": GIVEN, "tracestate": "a=1"}
    chat = [{"role": "user", "content": "hi"}]
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("chat/completions", {"json": {"model": "llm", "messages": chat}}),
        ("chat/completions", {"json": {"model": "llm", "messages": chat, "stream": True}}),
        # What is seen in the earlier picture is asked for as well.
        ("chat/completions", {"json": {"model": "llm", "messages": [user("a", IMAGE), user("b", IMAGE)]}}),
        ("completions", {"json": {"model": "llm", "prompt": "hi"}}),
        ("responses", {"json": {"model": "llm", "input": "hi"}}),
        ("embeddings", {"json": {"model": "embedding", "input": "hi"}}),
        ("images/classifications", {"json": {"model": "vision", "input": PICTURE}}),
        ("audio/transcriptions", {"data": {"model": "speech"}, "files": {"file": wav(1)}}),
    ]
    for path, body in bodies:
        answer = httpx.post(f"{served.url}/v1/{path}", headers=headers, **body)
        assert answer.status_code == 200, answer.text
    models = {request.model for request in served.triton.requests}
    assert models == {"llm", "assistant", "embedding", "vision", "speech"}
    assert {tuple(request.metadata.items()) for request in served.triton.requests} == {tuple(headers.items())}


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"traceparent": GIVEN}, {"traceparent": GIVEN}),
        ({"traceparent": f"01{GIVEN[2:]}"}, {"traceparent": GIVEN}),
        ({"traceparent": f"cc{GIVEN[2:]}-what-comes-later"}, {"traceparent": GIVEN}),
        ({"traceparent": GIVEN, "tracestate": "\xe9=1"}, {"traceparent": GIVEN}),
        ({"traceparent": GIVEN, "tracestate": "a" * 513}, {"traceparent": GIVEN}),
        ({"tracestate": "a=1"}, {}),
        *(
            ({"traceparent": malformed, "tracestate": "a=1"}, {})
            for malformed in (
                "", "x", GIVEN.upper(), GIVEN[:-1], f"{GIVEN}0", f"ff-{TRACE}-{PARENT}-01",
                f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[1:]}-{PARENT}-01",
                f"00_{TRACE}-{PARENT}-01",
            )
        ),
    ],
)  # fmt: skip
def test_a_malformed_trace_is_ignored(headers: dict[str, str], told: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    connection = HTTPConnection({"type": "http", "headers": raw})
    assert Access(None).identify(connection).trace == told


def test_the_log_names_the_trace_beside_the_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(logs.FORMAT_VARIABLE, "json")
    logs.configure()
    served = serve(fake_triton(llm=fails(ValueError("a defect"))))
    for headers in ({"traceparent": GIVEN, "x-request-id": "one"}, {"x-request-id": "two"}):
        body = {"model": "llm", "prompt": "hi"}
        assert httpx.post(f"{served.url}/v1/completions", headers=headers, json=body).status_code == 500
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    told = [(one["request_id"], one.get("trace_id")) for one in records if "request_id" in one]
    assert set(told) == {("one", TRACE), ("two", None)}, "of the defect, and the request's own line"


def test_pictures_and_recordings_are_charged(serve: Serve, file: Path) -> None:
    key = add_key(file, Key(name="a", images_per_minute=2, audio_seconds_per_minute=2))
    client = serve(keys=file).openai(key)
    words = {"type": "text", "text": "What is this?"}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    spoken = {"data": base64.b64encode(wav(3).getvalue()).decode(), "format": "wav"}
    recording = {"type": "input_audio", "input_audio": spoken}

    def ask(*parts: object) -> None:
        client.chat.completions.create(model="llm", messages=[{"role": "user", "content": parts}])  # type: ignore[list-item, misc]

    ask(words, picture)
    ask(picture, recording)
    with pytest.raises(openai.RateLimitError, match="2 images a minute"):
        ask(words, picture)
    with pytest.raises(openai.RateLimitError, match="2 audio seconds a minute"):
        ask(recording)
    with pytest.raises(openai.RateLimitError, match="2 audio seconds a minute"):
        client.audio.transcriptions.create(model="speech", file=wav(3))
