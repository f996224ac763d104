"""GET /v1/models, and models by other names."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.conftest import ANSWER, CHAT, LIMIT_S, Serve, assistant, fails, fake_triton
from trimodal.client.errors import Timeout
from trimodal.client.transports.base import Request, Tensors, Timeouts
from trimodal.client.transports.fake import FakeTransport, labelled, llm_outputs
from trimodal.client.values import Model
from trimodal.errors import InvalidArgument, ModelNotFound, SettingsError, Unavailable
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.openai.models import operate
from trimodal.gateway.settings import GatewaySettings

TOLD = {"max_model_len": 8192, "created": 1_700_000_000}


async def llm(request: Request) -> AsyncIterator[Tensors]:
    """Tells of itself when it is probed, and answers else."""
    probed = request.parameters.get("probe")
    yield llm_outputs(json.dumps(TOLD) if probed else ANSWER, "ready" if probed else "stop")


def test_what_can_be_asked_is_listed_with_its_length_and_age(serve: Serve) -> None:
    inner = {name: labelled(("a", 1.0)) for name in ("judge", "speech_recognize", "vision_classify")}
    before = int(time.time())
    client = serve(fake_triton(llm=llm, **inner)).openai()
    listed: dict[str, Any] = {one.id: one for one in client.models.list()}
    assert list(listed) == ["assistant", "embedding", "llm", "speech", "vision"]
    assert (listed["llm"].created, listed["llm"].max_model_len) == (TOLD["created"], TOLD["max_model_len"])
    assert before <= listed["vision"].created <= time.time()
    assert client.models.retrieve("vision").created == listed["vision"].created
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("judge")


def test_a_model_that_tells_nothing_of_itself_is_listed(serve: Serve) -> None:
    (entry,) = [one for one in serve().openai().models.list() if one.id == "llm"]
    assert entry.created > 0
    assert not hasattr(entry, "max_model_len")


def test_other_names_at_every_endpoint(serve: Serve) -> None:
    names = {
        "gpt-4o-mini": "llm",
        "text-embedding-3-small": "embedding",
        "whisper-1": "speech",
        "eye": "vision",
        "gpt-4o/audio": "assistant",
    }
    triton = fake_triton(llm=llm, assistant=assistant)
    served = serve(triton, model_aliases=[f"{alias}={model}" for alias, model in names.items()])
    client = served.openai()
    models: list[Any] = list(client.models.list())
    listed = {one.id: one.root for one in models}
    assert {alias: listed[alias] for alias in names} == names
    alias: Any = client.models.retrieve("gpt-4o/audio")
    assert alias.root == "assistant"
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=CHAT)  # type: ignore[arg-type]
    assert (answer.choices[0].message.content, answer.model) == (ANSWER, "llm")
    assert client.completions.create(model="gpt-4o-mini", prompt="a").choices[0].text == ANSWER
    assert client.responses.create(model="gpt-4o-mini", input="a").output_text == ANSWER
    assert client.embeddings.create(model="text-embedding-3-small", input="a").data
    picture = {"model": "eye", "input": "data:image/png;base64,AAAA"}
    labels = httpx.post(f"{served.url}/v1/images/classifications", json=picture, timeout=LIMIT_S)
    assert labels.json()["data"][0]["labels"]
    form = {"data": {"model": "whisper-1"}, "files": {"file": b"RIFF"}}
    refused = httpx.post(f"{served.url}/v1/audio/transcriptions", timeout=LIMIT_S, **form)  # type: ignore[arg-type]
    assert refused.json()["error"]["param"] == "file", "the model is known"


def test_a_key_has_names_of_its_own(serve: Serve, file: Path) -> None:
    named = add_key(file, Key(name="a", models=("llm",), model_aliases=("gpt-4o=llm", "clip=vision")))
    other = add_key(file, Key(name="b"))
    served = serve(fake_triton(llm=llm), keys=file)
    assert [one.id for one in served.openai(named).models.list()] == ["llm", "gpt-4o"]
    chat = served.openai(named).chat.completions
    assert chat.create(model="gpt-4o", messages=CHAT).choices[0].message.content == ANSWER  # type: ignore[arg-type]
    with pytest.raises(openai.PermissionDeniedError, match="does not hold for the model 'vision'"):
        chat.create(model="clip", messages=CHAT)  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError):
        served.openai(other).chat.completions.create(model="gpt-4o", messages=CHAT)  # type: ignore[arg-type]


@pytest.mark.parametrize("alias", ["gpt-4o", "=llm", "a=", "a=b=c", "a b=llm"])
def test_an_alias_that_is_none_is_refused(alias: str) -> None:
    with pytest.raises((SettingsError, ValueError), match="model_aliases"):
        GatewaySettings.model_validate({"model_aliases": [alias]})


def loading() -> Any:
    """An llm with an operator's key that loads adapters, and says with which one it answers."""
    adapters: dict[str, int] = {}

    async def model(request: Request) -> AsyncIterator[Tensors]:
        given = request.parameters
        if given.get("probe"):
            yield llm_outputs(json.dumps(TOLD | {"adapters": adapters}), "ready")
        elif "operate" in given:
            if given["operator_key"] != "secret":
                raise InvalidArgument("operator_key is not the operator's")
            if given["operate"] == "load_lora_adapter":
                adapters[str(given["lora_name"])] = 1_800_000_000
            elif given["operate"] == "unload_lora_adapter":
                del adapters[str(given["lora_name"])]
            yield llm_outputs("{}", "done")
        else:
            name = request.inputs.get("lora_name", [b"none"])[0].decode()
            yield llm_outputs(f"as {name}", "stop")

    return model


def test_adapters_are_models_that_the_operator_loads_and_unloads(serve: Serve, file: Path) -> None:
    operator = add_key(file, Key(name="operator", operator=True))
    user = add_key(file, Key(name="user"))
    limited = add_key(file, Key(name="limited", models=("llm",)))
    served = serve(fake_triton(llm=loading(), assistant=assistant), keys=file, operator_key="secret")

    def post(path: str, key: str = operator, **body: object) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(f"{served.url}{path}", json=body, headers=headers, timeout=LIMIT_S)

    name = {"lora_name": "pirate", "lora_path": "/adapters/pirate"}
    assert post("/v1/load_lora_adapter", user, **name).json()["error"]["code"] == "not_an_operator"
    assert post("/v1/load_lora_adapter", **name).json() == {
        "done": "load_lora_adapter",
        "lora_name": "pirate",
    }
    client = served.openai(user)
    listed: dict[str, Any] = {one.id: one for one in client.models.list()}
    entry = listed["pirate"]
    assert (entry.parent, entry.root, entry.max_model_len) == ("llm", "llm", TOLD["max_model_len"])
    assert (entry.created, "parent" in listed["llm"].model_dump()) == (1_800_000_000, False)
    assert "pirate" not in {one.id for one in served.openai(limited).models.list()}
    answer = client.chat.completions.create(model="pirate", messages=CHAT)  # type: ignore[arg-type]
    assert (answer.model, answer.choices[0].message.content) == ("pirate", "as pirate")
    assert client.completions.create(model="pirate", prompt="hi").choices[0].text == "as pirate"
    assert client.responses.create(model="pirate", input="hi").output_text == "as pirate"
    assert client.completions.create(model="llm", prompt="hi").choices[0].text == "as none"
    with pytest.raises(openai.PermissionDeniedError):
        served.openai(limited).completions.create(model="pirate", prompt="hi")
    assert post("/sleep?level=2").json() == {"done": "sleep", "level": 2}
    assert post("/wake_up").json() == {"done": "wake_up"}
    assert post("/v1/unload_lora_adapter", lora_name="pirate").is_success
    with pytest.raises(openai.APIStatusError, match="the server has no model 'pirate'"):
        client.completions.create(model="pirate", prompt="hi")


def test_an_adapter_that_is_being_loaded_is_a_model_that_is_not_ready(serve: Serve) -> None:
    async def model(request: Request) -> AsyncIterator[Tensors]:
        if request.parameters.get("probe"):
            yield llm_outputs(json.dumps(TOLD | {"loading": ["pirate"]}), "ready")
        else:
            name = request.inputs["lora_name"][0].decode()
            raise Unavailable(f"lora_name is '{name}', which is being loaded")

    client = serve(fake_triton(llm=model, assistant=assistant)).openai()
    assert "pirate" not in {one.id for one in client.models.list()}
    with pytest.raises(openai.InternalServerError, match="'pirate', which is being loaded") as refused:
        client.completions.create(model="pirate", prompt="hi")
    assert refused.value.status_code == 503


async def test_an_operator_reaches_every_version_of_every_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route shares requests out among them: an adapter that one lacks would be refused to some tenants."""
    one, two = fake_triton(llm=loading()), fake_triton(llm=loading())

    async def versions(timeouts: object) -> list[Model]:
        return [Model("llm", "1", 0), Model("llm", "2", 0), Model("vision", "1", 0)]

    monkeypatch.setattr(one, "models", versions)
    await operate([one, two], "secret", "load_lora_adapter", lora_name="pirate")
    assert [request.model for request in one.requests] == ["llm@1", "llm@2"]
    assert [request.model for request in two.requests] == ["llm@1"]
    two.functions["llm"] = fails(Unavailable("the model 'llm' has no available versions"))
    with pytest.raises(Unavailable, match="no available versions"):
        await operate([one, two], "secret", "load_lora_adapter", lora_name="pirate")


async def test_an_operator_waits_for_what_the_llm_does_and_for_no_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that hung was waited for as long as one that loads an adapter from a slow disk."""

    async def hangs(timeouts: Timeouts) -> list[Model]:
        raise Timeout(f"no answer within {timeouts.total} s")

    triton = fake_triton(llm=loading())
    monkeypatch.setattr(triton, "models", hangs)
    with pytest.raises(Timeout, match=r"within 5\.0 s"):
        await operate([triton], "secret", "load_lora_adapter", lora_name="pirate")


async def test_an_operator_needs_no_llm_on_servers_for_other_models() -> None:
    """The adapter was loaded on the one that has it, and the operator told 404."""
    one, two = fake_triton(llm=loading()), FakeTransport(vision=labelled(("a", 1.0)))
    await operate([one, two], "secret", "load_lora_adapter", lora_name="pirate")
    assert [request.model for request in one.requests] == ["llm@1"]
    with pytest.raises(ModelNotFound, match="no model 'llm'"):
        await operate([two, two], "secret", "load_lora_adapter", lora_name="pirate")


def test_without_the_servers_key_nothing_is_operated(serve: Serve, file: Path) -> None:
    headers = {"authorization": f"Bearer {add_key(file, Key(name='operator', operator=True))}"}
    served = serve(fake_triton(llm=loading()), keys=file)
    refused = httpx.post(f"{served.url}/sleep", headers=headers, timeout=LIMIT_S)
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        501,
        "the gateway has no operator's key of the servers: --operator-key-file has it",
    )


@pytest.mark.parametrize("path", ["/sleep", "/wake_up", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"])
def test_who_needs_no_key_operates_nothing(serve: Serve, path: str) -> None:
    triton = fake_triton(llm=loading())
    served = serve(triton, operator_key="secret")
    body = {"json": {"lora_name": "pirate"}} if "lora" in path else {}
    refused = httpx.post(f"{served.url}{path}", timeout=LIMIT_S, **body)  # type: ignore[arg-type]
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "no_keys")
    assert not [one for one in triton.requests if "operate" in one.parameters]
