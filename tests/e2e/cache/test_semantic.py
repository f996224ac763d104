"""Paraphrases through the real server, embedded by MiniLM: who gets a stored answer, and who never does.

The judge is a fake that counts words in common, but for the slow tests of the trained one. How often that is
right is measured by `build/judge/measure.py`, not here.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import BOUND, built, own_processes, wait_until
from tests.e2e.metrics import total
from trimodal.client import Answer, Client, Note
from trimodal.server.admin import await_unloaded
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]

SETTINGS = {
    "engine": "fake",
    "fake_step_ms": "1",
    "fake_answer": "One answer. ",
    "cache": "semantic",
    "cache_budget_ms": "5000",  # what is slow here is this machine: no test is about being slow
    "cache_embedding_budget_ms": "5000",
    "cache_judge_budget_ms": "5000",
}
MODELS = ("llm", "embedding", "judge")
STORED = "How do I reset my password?"


@pytest.fixture(scope="module")
def server(
    serve: Callable[..., TritonServer], minilm: Path, tmp_path_factory: pytest.TempPathFactory
) -> TritonServer:
    store = str(tmp_path_factory.mktemp("semantic") / "answers.sqlite")
    server = serve(MODELS, changes=changes_of(store, minilm, {"engine": "fake"}))
    wait_until(lambda: ask(server, STORED).note.cache == "exact", "the first answer")
    return server


@pytest.fixture(scope="module")
def judged(
    serve: Callable[..., TritonServer], minilm: Path, tmp_path_factory: pytest.TempPathFactory
) -> TritonServer:
    """With the trained judge."""
    store = str(tmp_path_factory.mktemp("judged") / "answers.sqlite")
    trained = {"artefact": str(built("judge", "onnx-int8"))}
    return serve(MODELS, changes=changes_of(store, minilm, trained))


def changes_of(store: str, minilm: Path, judge: dict[str, str], **settings: str) -> dict[str, dict[str, str]]:
    llm = {**SETTINGS, "cache_store": store, **settings}
    return {"llm": llm, "embedding": {"artefact": str(minilm)}, "judge": judge}


def ask(server: TritonServer, prompt: str | None, **options: Any) -> Answer:
    async def asking() -> Answer:
        async with Client(server.grpc_url) as client:
            settings = {"max_tokens": 24, "stop": ".", "timeout": BOUND, **options}
            return await client.complete(prompt, **settings)

    return asyncio.run(asking())


def paraphrased(server: TritonServer, prompt: str, **options: Any) -> Note:
    """How a question is answered that is not kept."""
    return ask(server, prompt, cache_control="no-store", **options).note


@pytest.mark.parametrize(
    "question",
    ["HOW DO I RESET MY PASSWORD?", "how do i reset my password", "How do I reset my own password?"],
)
def test_a_paraphrase_gets_the_stored_answer(server: TritonServer, question: str) -> None:
    stored = ask(server, STORED)
    answer = ask(server, question, cache_control="no-store")
    assert answer.note.cache == "semantic"
    assert 0.5 < answer.note.similarity <= 1.0
    assert (answer.text, answer.finish_reason) == (stored.text, "stop")
    assert answer.usage.completion == stored.usage.completion


@pytest.mark.parametrize(
    "asked",
    ["How do I reset my username?", "How do I destroy my password?", "How do I reset your password now?"],
)
def test_one_that_the_judge_refuses_does_not(server: TritonServer, asked: str) -> None:
    assert paraphrased(server, asked).cache == ""


@pytest.mark.slow
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
    judged: TritonServer, stored: str, asked: str
) -> None:
    wait_until(lambda: ask(judged, stored).note.cache == "exact", "the stored answer")
    assert paraphrased(judged, asked).cache == ""
    assert paraphrased(judged, stored.upper()).cache == "semantic"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["embedding", "judge"])
def test_a_model_that_hangs_holds_nobody_up(
    own_server: Callable[..., TritonServer], minilm: Path, tmp_path: Path, model: str
) -> None:
    stubs = f"python_backend_stub.*/{model}/1/model.py"
    before = set(own_processes(stubs))
    store, budget = str(tmp_path / "answers.sqlite"), {f"cache_{model}_budget_ms": "100"}
    server = own_server(MODELS, changes_of(store, minilm, {"engine": "fake"}, **budget))
    wait_until(lambda: ask(server, STORED).note.cache == "exact", "the first answer")
    (stub,) = set(own_processes(stubs)) - before
    reworded = "How do I reset my own password?"
    os.kill(stub, signal.SIGSTOP)
    try:
        # As long as the cache tries it. Triton 2.51 itself ends ("boost::interprocess::lock_exception")
        # when a stub with requests stands still for a second or more.
        for number in range(3):
            asked = f"How do I reset my password, {number}?"
            assert ask(server, asked, cache_control="no-store").finish_reason == "stop"
        assert paraphrased(server, reworded).cache == ""
        assert paraphrased(server, STORED).cache == "exact"
    finally:
        os.kill(stub, signal.SIGCONT)
    wait_until(lambda: total(server, "trimodal_cache_bypassed_total", 'reason="timeout"') >= 3, "the counter")
    wait_until(lambda: paraphrased(server, reworded).cache == "semantic", "the semantic layer")


def test_the_threshold_is_of_the_judge_that_is_loaded(
    own_server: Callable[..., TritonServer], minilm: Path, tmp_path: Path
) -> None:
    """A cache that was loaded again beside an old judge took the threshold of the new one."""
    artefact = tmp_path / "judge"
    shutil.copytree(built("judge", "onnx-int8"), artefact)
    changes = changes_of(str(tmp_path / "answers.sqlite"), minilm, {"artefact": str(artefact)})
    server = own_server(MODELS, changes)
    reworded = "How do I go about resetting my password?"
    wait_until(lambda: ask(server, STORED).note.cache == "exact", "the first answer")
    assert paraphrased(server, reworded).cache == "semantic"
    for name, key in (("manifest.json", "source_sha256"), ("calibration.json", "checkpoint_sha256")):
        told = json.loads((artefact / name).read_bytes())
        (artefact / name).write_text(json.dumps(told | {key: "f" * 64}))

    def load(model: str) -> None:
        server.api.unload(model)
        await_unloaded(server.api, [model], BOUND)
        assert server.api.load(model) == ""

    load("llm")
    wait_until(lambda: ask(server, STORED).note.cache == "exact", "the first answer")
    told = "the cache's judge fails (error: judge: checkpoint_sha256: another checkpoint"

    def is_told() -> bool:
        assert paraphrased(server, reworded).cache == ""
        return told in server.log_path.read_text()

    wait_until(is_told, "the log")
    load("judge")
    wait_until(lambda: paraphrased(server, reworded).cache == "semantic", "the judge that it knows")


@pytest.mark.slow
def test_hits_are_audited_when_the_server_is_idle(
    own_server: Callable[..., TritonServer], minilm: Path, tmp_path: Path
) -> None:
    changes = changes_of(str(tmp_path / "answers.sqlite"), minilm, {"engine": "fake"}, cache_audit="0.5")
    server = own_server(MODELS, changes)
    wait_until(lambda: ask(server, STORED).note.cache == "exact", "the first answer")
    for _ in range(24):
        assert ask(server, "How do I reset my own password?").note.cache == "semantic"
    wait_until(lambda: total(server, "trimodal_cache_audit_answers_total") > 1, "audited hits", 30)
    for bound in ("lower", "upper"):
        assert 0 <= total(server, "trimodal_cache_audit_false_hit_ratio", f'bound="{bound}"') <= 1
    assert total(server, "trimodal_cache_audit_tokens_total") > 0
