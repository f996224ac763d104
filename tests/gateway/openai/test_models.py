"""GET /v1/models, and models by other names."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.gateway.conftest import ANSWER, CHAT, LIMIT_S, Serve, assistant, fake_triton
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import labelled, llm_outputs
from trimodal.errors import SettingsError
from trimodal.gateway.keys import Key, add_key
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
    listed = {one.id: one for one in client.models.list()}
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
    listed = {one.id: one.root for one in client.models.list()}
    assert {alias: listed[alias] for alias in names} == names
    assert client.models.retrieve("gpt-4o/audio").root == "assistant"
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
