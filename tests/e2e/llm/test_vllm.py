"""vLLM for CPUs behind the real tritonserver and gateway, on SmolLM2: scripts/ci/vllm makes what it needs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.doubles.waiting import wait_until
from tests.e2e.gateway.test_openai import gateway
from trimodal.server.process import TritonServer

PYTHON, CHECKPOINT = (os.environ.get(f"TRIMODAL_VLLM_{name}", "") for name in ("PYTHON", "CHECKPOINT"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="TRIMODAL_VLLM_PYTHON names no environment with vLLM"),
]
SECONDS = 400.0
# What transformers tells of a prompt's tokens but the first.
REFERENCE = """
import json, sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
ids = torch.tensor([json.loads(sys.argv[2])])
with torch.no_grad():
    told = model(ids).logits[0].log_softmax(-1)
print(json.dumps([float(told[place, id]) for place, id in enumerate(ids[0, 1:])]))
"""
QUESTION: Any = [{"role": "user", "content": "What is the capital of Japan?"}]


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    settings = {
        "engine": "vllm",
        "python": PYTHON,
        "artefact": CHECKPOINT,
        "threads": "1",
        "enforce_eager": "true",
        "max_model_len": "2048",
    }
    return serve(("llm",), {"llm": settings}, ready_timeout=SECONDS)


@pytest.fixture(scope="module")
def url(server: TritonServer) -> Iterator[str]:
    with gateway(server.grpc_url) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as client:
        yield client


def test_it_answers_openais_package(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="llm", messages=QUESTION, temperature=0)
    assert "Tokyo" in str(whole.choices[0].message.content)
    assert whole.choices[0].finish_reason == "stop"
    chunks: Any = client.chat.completions.create(model="llm", messages=QUESTION, temperature=0, stream=True)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == whole.choices[0].message.content
    assert len([text for text in texts if text]) > 1


def test_a_form_and_log_probabilities(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    answer = client.chat.completions.create(
        model="llm",
        messages=QUESTION,
        response_format=form,
        logprobs=True,
        top_logprobs=5,
        max_tokens=60,
    )
    assert json.loads(str(answer.choices[0].message.content))["city"] in ("Paris", "Rome")
    assert answer.choices[0].logprobs
    told = [one.logprob for token in answer.choices[0].logprobs.content or () for one in token.top_logprobs]
    assert min(told) > -100, "a token that the form forbids is no alternative"


def test_a_prompts_log_probabilities_are_those_of_transformers(client: openai.OpenAI) -> None:
    """As lm-evaluation-harness asks for them."""
    ids = [504, 3575, 282, 4649, 314, 7042, 30, 504, 3575, 282, 5391, 314]
    command = [PYTHON, "-c", REFERENCE, CHECKPOINT, json.dumps(ids)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    right = json.loads(ran.stdout.splitlines()[-1])
    asked: Any = {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    choice = client.completions.create(model="llm", **asked).choices[0]
    assert choice.logprobs
    told = choice.logprobs.token_logprobs or []
    assert told[0] is None
    assert told[1 : len(ids)] == pytest.approx(right, abs=0.1)  # 16 bits beside 32


def test_a_request_that_it_refuses_is_the_clients_fault(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        client.chat.completions.create(model="llm", messages=QUESTION, logit_bias={"70000": 1})


def test_a_killed_core_is_told_and_nothing_defunct_stays(
    client: openai.OpenAI, url: str, server: TritonServer
) -> None:
    asked: Any = [{"role": "user", "content": "Write a long story about a lighthouse."}]
    chunks = client.chat.completions.create(
        model="llm",
        messages=asked,
        stream=True,
        max_tokens=1500,
        extra_body={"ignore_eos": True},
    )
    next(iter(chunks))
    os.kill(vllm_process("EngineCore"), signal.SIGKILL)
    with pytest.raises(openai.APIError, match="died"):
        list(chunks)
    wait_until(lambda: httpx.get(f"{url}/ready").status_code == 503, bound=SECONDS)
    wait_until(lambda: httpx.get(f"{url}/ready").status_code == 200, bound=SECONDS)
    assert "Tokyo" in str(
        client.chat.completions.create(model="llm", messages=QUESTION, temperature=0)
        .choices[0]
        .message.content
    )
    wait_until(lambda: not defunct(server), bound=SECONDS)


def processes() -> Iterator[tuple[int, list[str]]]:
    """Number and fields of proc(5) from the state on, of each process that can be read."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue


def vllm_process(title: str) -> int:
    """Of the server that these tests started: the mark of the tests is in its parent's environment."""
    mark = f"TRIMODAL_VLLM_PYTHON={PYTHON}".encode()
    for pid, (_, parent, *_) in processes():
        try:
            titled = title.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            if titled and mark in Path(f"/proc/{parent}/environ").read_bytes():
                return pid
        except OSError:
            continue
    pytest.fail(f"no process of vLLM is called {title}")


def defunct(server: TritonServer) -> list[int]:
    """Processes that ended and that the server's guard, or one below it, did not reap."""
    table = dict(processes())
    found = []
    for pid, (state, *_) in table.items():
        one = pid
        while one in table and one != os.getpid():
            one = int(table[one][1])
        if state == "Z" and one == os.getpid():
            found.append(pid)
    return found
