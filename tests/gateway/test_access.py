"""Who is let in, on a gateway with keys."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import openai
import pytest

from tests.gateway.conftest import CHAT, Serve, fake_triton
from trimodal.client.transports.fake import llm_outputs
from trimodal.errors import SettingsError
from trimodal.gateway.keys import Key, add_key, revoke_key
from trimodal.gateway.settings import GatewaySettings


def test_the_key_sets_tenant_and_tier(serve: Serve, file: Path) -> None:
    secret = add_key(file, Key(name="a", tenant="team", tier="premium"))
    served = serve(keys=file)
    served.chat(key=secret)
    (request,) = served.triton.requests
    assert (request.inputs["tenant"].tolist(), request.inputs["tier"].tolist()) == ([b"team"], [b"premium"])


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
    posts = ("chat/completions", "completions", "embeddings", "images/classifications")
    bodies: dict[str, object] = {"model": "llm", "messages": CHAT, "prompt": "a", "input": "a"}
    wanted = {
        "chat/completions": ("model", "messages"), "completions": ("model", "prompt"),
        "embeddings": ("model", "input"), "images/classifications": ("model", "input"),
    }  # fmt: skip
    answers = [httpx.get(f"{served.url}/v1/models", headers=headers)]
    for path in posts:
        body = {name: bodies[name] for name in wanted[path]}
        answers.append(httpx.post(f"{served.url}/v1/{path}", json=body, headers=headers))
    form = {"data": {"model": "speech"}, "files": {"file": b"RIFF"}}
    answers.append(httpx.post(f"{served.url}/v1/audio/transcriptions", headers=headers, **form))  # type: ignore[arg-type]
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
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 30


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


@pytest.mark.parametrize(("given", "kept"), [("my-id:1.a", True), ("a b", False), ("x" * 200, False)])
def test_a_request_id_is_kept_if_it_can_be_one(serve: Serve, given: str, kept: bool) -> None:
    told = httpx.get(f"{serve().url}/v1/models/llm2", headers={"x-request-id": given}).headers["x-request-id"]
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
