"""Adapters that an operator loads and unloads under load, and an engine that sleeps, on a real Triton."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import httpx
import openai
import pytest

from tests.e2e.fakes import LLM
from tests.e2e.gateway.test_openai import gateway, opened
from trimodal.gateway.keys import Key, add_key
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e]

CHAT = [{"role": "user", "content": "Who are you?"}]
NAMES = ("pirate", "poet")


class Served(NamedTuple):
    """A gateway, and the key of its operator."""

    url: str
    key: str


@pytest.fixture(scope="module")
def served(serve: Callable[..., TritonServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("lora")
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "adapter_config.json").write_text("{}")
    server = serve(models=("llm",), changes={"llm": {**LLM, "lora_directory": str(folder)}})
    file = folder / "keys.toml"
    key = add_key(file, Key(name="operator", operator=True))
    with gateway(server.grpc_url, keys=file, operator_key=server.operator_key) as url:
        yield Served(url, key)


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with opened(served.url) as client:
        yield client.with_options(api_key=served.key)


def operate(served: Served, path: str, name: str = "") -> httpx.Response:
    body = {"json": {"lora_name": name}} if name else {}
    headers = {"authorization": f"Bearer {served.key}"}
    return httpx.post(f"{served.url}/{path}", headers=headers, timeout=30, **body)  # type: ignore[arg-type]


def test_adapters_come_and_go_under_load(served: Served, client: openai.OpenAI) -> None:
    ended = threading.Event()
    answers: list[str | None] = []

    def ask(model: str) -> str | None:
        answer = client.chat.completions.create(model=model, messages=CHAT, max_tokens=24)  # type: ignore[arg-type]
        return answer.choices[0].message.content

    def load() -> None:
        while not ended.is_set():
            answers.append(ask("llm"))

    running = threading.Thread(target=load)
    running.start()
    with contextlib.ExitStack() as stack:
        stack.callback(running.join)
        stack.callback(ended.set)
        for _ in range(2):
            for name in NAMES:
                assert operate(served, "v1/load_lora_adapter", name).is_success
            parents = {one.id: getattr(one, "parent", None) for one in client.models.list()}
            assert parents == {"llm": None, "pirate": "llm", "poet": "llm"}
            texts = {name: ask(name) for name in (*NAMES, "llm")}
            assert len(set(texts.values())) == 3
            assert texts == {name: ask(name) for name in (*NAMES, "llm")}
            for name in NAMES:
                assert operate(served, "v1/unload_lora_adapter", name).is_success
            with pytest.raises(openai.NotFoundError):
                ask("poet")
    assert answers
    assert set(answers) == {texts["llm"]}


def test_a_wrong_call_says_what_is_wrong(served: Served) -> None:
    wrong = operate(served, "v1/load_lora_adapter", "sailor")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "lora_name")


def test_a_sleeping_engine_is_not_ready_and_wakes_up(served: Served, client: openai.OpenAI) -> None:
    assert operate(served, "sleep?level=1").is_success
    with pytest.raises(openai.APIStatusError, match="the engine sleeps") as told:
        client.with_options(max_retries=0).chat.completions.create(model="llm", messages=CHAT)  # type: ignore[arg-type]
    assert told.value.status_code == 503
    assert operate(served, "wake_up").is_success
    assert client.chat.completions.create(model="llm", messages=CHAT, max_tokens=4).choices  # type: ignore[arg-type]
