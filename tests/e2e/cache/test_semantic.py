"""Paraphrases through the real server, embedded by MiniLM: who gets a stored answer, and who never does.

How often the guard is right is measured by `trimodal bench cache`, not here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import BOUND, own_processes, wait_until
from trimodal.client import Answer, Client, Note
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]

SETTINGS = {
    "engine": "fake",
    "fake_step_ms": "1",
    "fake_answer": "One answer. ",
    "cache": "semantic",
    "cache_budget_ms": "5000",  # what is slow here is this machine: no test is about being slow
    "cache_embedding_budget_ms": "5000",
}
EMBEDDING_STUB = "python_backend_stub.*/embedding/1/model.py"
STORED = "How do I reset my password?"


@pytest.fixture(scope="module")
def server(
    serve: Callable[..., TritonServer], minilm: Path, tmp_path_factory: pytest.TempPathFactory
) -> TritonServer:
    store = str(tmp_path_factory.mktemp("semantic") / "answers.sqlite")
    changes = {"llm": {**SETTINGS, "cache_store": store}, "embedding": {"artefact": str(minilm)}}
    server = serve(("llm", "embedding"), changes=changes)
    wait_until(lambda: ask(server, STORED).note.cache == "exact", "the first answer")
    return server


def ask(server: TritonServer, prompt: str | None, **options: Any) -> Answer:
    async def asking() -> Answer:
        async with Client(server.grpc_url) as client:
            settings = {"max_tokens": 24, "stop": ".", "timeout": BOUND, **options}
            return await client.complete(prompt, **settings)

    return asyncio.run(asking())


def paraphrased(server: TritonServer, prompt: str, **options: Any) -> Note:
    """How a question is answered that is not kept."""
    return ask(server, prompt, cache_control="no-store", **options).note


def metric(server: TritonServer, series: str) -> float:
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series))


@pytest.mark.parametrize(
    "question",
    ["HOW DO I RESET MY PASSWORD?", "how do i reset my password", "How can I reset my password?"],
)
def test_a_paraphrase_gets_the_stored_answer(server: TritonServer, question: str) -> None:
    stored = ask(server, STORED)
    answer = ask(server, question, cache_control="no-store")
    assert answer.note.cache == "semantic"
    assert 0.5 < answer.note.similarity <= 1.0
    assert (answer.text, answer.finish_reason) == (stored.text, "stop")
    assert answer.usage.completion == stored.usage.completion


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        (STORED, "How do I not reset my password?"),
        (STORED, "How do I reset my username?"),
        ("How do I enable dark mode?", "How do I disable dark mode?"),
        ("Which train goes from Paris to London?", "Which train goes from London to Paris?"),
        ("What is 15 percent of 80?", "What is 15 percent of 90?"),
        ("How long do I boil an egg of 60 g?", "How long do I boil an egg of 60 oz?"),
        ("Is the shop open on 3 May?", "Is the shop open on 4 May?"),
        ("How tall is Anna Berger?", "How tall is Hanna Berger?"),
    ],
)
def test_a_near_question_with_another_answer_never_does(
    server: TritonServer, stored: str, asked: str
) -> None:
    wait_until(lambda: ask(server, stored).note.cache == "exact", "the stored answer")
    assert paraphrased(server, asked).cache == ""


@pytest.mark.parametrize(
    "change",
    [{"tenant": "another"}, {"cache_namespace": "faq"}, {"stop": "w"}],
    ids=lambda one: next(iter(one)),
)
def test_a_paraphrase_from_elsewhere_does_not(server: TritonServer, change: dict[str, str]) -> None:
    assert paraphrased(server, "HOW DO I RESET MY PASSWORD?", **change).cache == ""


def test_lookups_and_refusals_are_on_the_metrics_page(server: TritonServer) -> None:
    wait_until(lambda: ask(server, "How do I enable dark mode?").note.cache == "exact", "the stored answer")
    before = metric(server, "trimodal_cache_refused_total{")
    hits = metric(server, 'trimodal_cache_lookups_total{layer="semantic",model="llm",outcome="hit"}')
    paraphrased(server, "How do I disable dark mode?")
    paraphrased(server, "HOW DO I ENABLE DARK MODE?")
    wait_until(lambda: metric(server, "trimodal_cache_refused_total{") > before, "a refusal")
    series = 'trimodal_cache_lookups_total{layer="semantic",model="llm",outcome="hit"}'
    wait_until(lambda: metric(server, series) == hits + 1, "the hit")
    assert metric(server, "trimodal_cache_entries{") >= 0


@pytest.mark.slow
def test_an_embedding_model_that_hangs_holds_nobody_up(
    own_server: Callable[..., TritonServer], minilm: Path, tmp_path: Path
) -> None:
    before = set(own_processes(EMBEDDING_STUB))
    llm = {**SETTINGS, "cache_embedding_budget_ms": "100", "cache_store": str(tmp_path / "answers.sqlite")}
    server = own_server(("llm", "embedding"), {"llm": llm, "embedding": {"artefact": str(minilm)}})
    wait_until(lambda: ask(server, STORED).note.cache == "exact", "the first answer")
    (stub,) = set(own_processes(EMBEDDING_STUB)) - before
    os.kill(stub, signal.SIGSTOP)
    try:
        # As long as the cache tries it. Triton 2.51 itself ends ("boost::interprocess::lock_exception")
        # when a stub with requests stands still for a second or more.
        for number in range(3):
            assert ask(server, f"{number} bottles of what?").finish_reason == "stop"
        assert paraphrased(server, "HOW DO I RESET MY PASSWORD?").cache == ""
        assert paraphrased(server, STORED).cache == "exact"
    finally:
        os.kill(stub, signal.SIGCONT)
    timeouts = 'trimodal_cache_bypassed_total{model="llm",reason="timeout"}'
    wait_until(lambda: metric(server, timeouts) >= 3, "the counter")
    wait_until(
        lambda: paraphrased(server, "HOW DO I RESET MY PASSWORD?").cache == "semantic", "the semantic layer"
    )
