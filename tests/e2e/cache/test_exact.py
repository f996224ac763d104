"""Stored answers through the real server: who is answered from the store, for how long, and who never is.

The engine is the fake one; the store is a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.e2e.conftest import BOUND, wait_until
from trimodal.cli.app import app
from trimodal.client import Answer, Client
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

SETTINGS = {
    "engine": "fake",
    "fake_step_ms": "1",
    "fake_answer": "One answer. ",
    "cache": "exact",
    "cache_ttl_s": "default=900 moment=1",
    "cache_budget_ms": "5000",  # what is slow here is this machine: no test is about being slow
}
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a lambda?"}]


@dataclass
class Asking:
    """A server with a store in a file, and one client's questions to it."""

    server: TritonServer
    store: Path

    def __call__(self, *prompts: str | None, **options: Any) -> list[Answer]:
        """The answers, asked one after the other, each from a connection of the same client."""

        async def ask() -> list[Answer]:
            async with Client(self.server.grpc_url) as client:
                settings = {"max_tokens": 24, "stop": ".", "timeout": BOUND, **options}
                return [await client.complete(prompt, **settings) for prompt in prompts]

        return asyncio.run(ask())

    def until_kept(self, prompt: str | None, **options: Any) -> Answer:
        """Asks until the answer comes from the store: it is put there behind the request's back."""
        answers: list[Answer] = []

        def hit() -> str:
            answers.extend(self(prompt, **options))
            return answers[-1].note.cache

        wait_until(hit, "an answer from the store")
        return answers[-1]


@pytest.fixture(scope="module")
def asking(serve: Callable[..., TritonServer], tmp_path_factory: pytest.TempPathFactory) -> Asking:
    store = tmp_path_factory.mktemp("store") / "answers.sqlite"
    return Asking(serve(("llm",), changes={"llm": {**SETTINGS, "cache_store": str(store)}}), store)


def test_a_hit_is_told_like_an_answer_that_was_generated(asking: Asking) -> None:
    (first,) = asking("what is told")
    asking.until_kept("what is told")
    (again,) = asking("  what is told\r\n")
    assert (first.note.cache, first.note.similarity) == ("", 0.0)
    assert (again.note.cache, again.note.similarity) == ("exact", 1.0)
    assert again.text == first.text != ""
    assert again.finish_reason == first.finish_reason == "stop"
    assert again.usage.completion == first.usage.completion > 0
    assert again.usage.prompt > 0


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "another"},
        {"cache_namespace": "moment"},
        {"cache_control": "no-cache"},
        {"messages": [CHAT[0], {"role": "user", "content": "What is a lаmbda?"}]},  # a Cyrillic а
    ],
    ids=lambda change: next(iter(change)),
)
def test_whoever_asks_anything_else_gets_an_answer_of_their_own(
    asking: Asking, change: dict[str, Any]
) -> None:
    asking.until_kept(None, messages=CHAT)
    (other,) = asking(None, **{"messages": CHAT, **change})
    assert other.note.cache == ""


def test_the_command_clears_beside_the_server(asking: Asking) -> None:
    for tenant in ("cleared", "kept"):
        asking.until_kept("what is cleared", tenant=tenant)
    arguments = ["cache", "clear", "--store", str(asking.store), "--tenant", "cleared"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.endswith(": 1 answers cleared\n")
    no_store = {"cache_control": "no-store"}
    assert asking("what is cleared", tenant="cleared", **no_store)[0].note.cache == ""
    assert asking("what is cleared", tenant="kept", **no_store)[0].note.cache == "exact"


@pytest.mark.slow
def test_a_restart_keeps_the_store(own_server: Callable[..., TritonServer], tmp_path: Path) -> None:
    store = tmp_path / "answers.sqlite"
    changes = {"llm": {**SETTINGS, "cache_store": str(store)}}
    first = own_server(("llm",), changes)
    answer = Asking(first, store).until_kept("what lasts")
    first.stop(0)
    (again,) = Asking(own_server(("llm",), changes), store)("what lasts")
    assert (again.note.cache, again.text) == ("exact", answer.text)


def test_another_engine_has_another_cache(own_server: Callable[..., TritonServer], asking: Asking) -> None:
    asking.until_kept("whose answer is it")
    changes = {"llm": {**SETTINGS, "fake_answer": "Two answers. ", "cache_store": str(asking.store)}}
    (other,) = Asking(own_server(("llm",), changes), asking.store)("whose answer is it")
    assert other.note.cache == ""
