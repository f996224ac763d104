"""Streamed text over gRPC and HTTP from the real server with the fake engine, whose answer is foreseeable."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import run_python, wait_until
from tests.e2e.fakes import LLM, MODELS, SCRIPT
from tests.e2e.metrics import total
from trimodal.client import Client, ConnectError, ConnectionLost, ModelNotFound, Timeout, Timeouts
from trimodal.errors import RequestError

pytestmark = pytest.mark.e2e

CLIENTS = Path(__file__).parents[3] / "clients"


@pytest.fixture(scope="module")
def server(fakes):
    return fakes


@pytest.fixture
async def client(server):
    async with Client(server.grpc_url, timeouts=Timeouts(silence=20)) as client:
        yield client


def idle(server):
    return not any(total(server, f"trimodal_llm_{name}_requests") for name in ("active", "queued"))


def settled(server):
    """How many requests have ended, once none runs; the server refreshes its figures twice a second."""
    seen = [-1.0]

    def stands() -> bool:
        seen.append(total(server, "trimodal_llm_requests_total"))
        if idle(server) and seen[-1] == seen[-2]:
            return True
        time.sleep(0.7)
        return False

    wait_until(stands, "an idle server")
    return seen[-1]


def belongs_to_script(text):
    """Whether a text is a piece of the script said over and over; its edges may cut a character."""
    return text.strip("\ufffd") in SCRIPT * (len(text) // len(SCRIPT) + 2)


def events(server, body):
    """Status and events of generate_stream."""
    connection = http.client.HTTPConnection(server.http_url, timeout=20)
    try:
        connection.request("POST", "/v2/models/llm/generate_stream", json.dumps(body))
        response = connection.getresponse()
        lines = [line.decode().removeprefix("data:").strip() for line in response]
        return response.status, [json.loads(line) for line in lines if line]
    finally:
        connection.close()


async def test_deltas_over_grpc(client):
    stream = client.generate("hello", max_tokens=300)
    deltas = [delta async for delta in stream]
    assert "".join(delta.text for delta in deltas) == stream.text
    assert belongs_to_script(stream.text)
    assert "\ufffd" not in "".join(delta.text for delta in deltas[1:-1])
    assert [delta.finish_reason for delta in deltas[-2:]] == ["", "length"]
    assert sum(delta.tokens for delta in deltas) == stream.usage.completion == 300
    assert stream.usage.prompt > 0
    assert 0 < stream.timing.ttft < stream.timing.latency


async def test_http_gives_the_same_answer(server, client):
    answer = await client.complete("hello", max_tokens=120)
    status, parts = events(server, {"text_input": "hello", "max_tokens": 120})
    assert status == 200
    assert "".join(part["text_output"] for part in parts) == answer.text
    assert parts[-1]["finish_reason"] == "length"
    assert {part["finish_reason"] for part in parts[:-1]} == {""}
    assert parts[-1]["completion_tokens"] == 120
    assert parts[-1]["prompt_tokens"] == answer.usage.prompt


@pytest.mark.parametrize("end", ["generate", "generate_stream"])
def test_the_quickstart_of_the_vllm_backend(server, end):
    """Its body, to both endpoints: one response."""
    url = f"http://{server.http_url}/v2/models/llm/{end}"
    sent = {"stream": False, "temperature": 0, "max_tokens": 40, "exclude_input_in_output": True}
    body = {"text_input": "What is Triton Inference Server?", "parameters": sent}
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=20) as response:
        text = response.read().decode()
    answer = json.loads(text.removeprefix("data:"))
    assert (answer["completion_tokens"], answer["finish_reason"]) == (40, "length")
    assert belongs_to_script(answer["text_output"])
    body["parameters"] = {"stream": False, "max_tokens": -1}
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(url, json.dumps(body).encode(), timeout=20)
    assert (told.value.code, b"max_tokens is -1" in told.value.read()) == (400, True)


async def test_the_client_of_the_vllm_backend_asks_for_no_stream_by_a_tensor(server):
    import tritonclient.grpc.aio as triton

    inputs = [triton.InferInput("text_input", [1], "BYTES"), triton.InferInput("stream", [1], "BOOL")]
    inputs[0].set_data_from_numpy(np.array([b"hello"], object))
    inputs[1].set_data_from_numpy(np.array([False]))

    async def asked():
        yield {"model_name": "llm", "inputs": inputs, "parameters": {"max_tokens": 9}}

    async with triton.InferenceServerClient(server.grpc_url) as client:
        answers = [result async for result, error in client.stream_infer(asked()) if not error]
    (answer,) = answers
    assert answer.as_numpy("completion_tokens").tolist() == [9]


async def test_a_chat_and_a_cached_prefix(client):
    messages = [{"role": "system", "content": "be brief " * 40}, {"role": "user", "content": "hé"}]
    cold = await client.complete(messages=messages, max_tokens=4)
    warm = await client.complete(messages=messages, max_tokens=4)
    assert cold.text == warm.text
    assert cold.usage.prompt == warm.usage.prompt > 300
    assert warm.usage.cached > cold.usage.cached


@pytest.mark.parametrize("how", ["break", "cancel", "task", "deadline"])
async def test_leaving_early_frees_the_slot(server, client, how):
    """More requests than slots: some run, some wait; all of them go."""
    before = settled(server)

    async def one():
        stream = client.generate("x", max_tokens=1000, timeout=0.4 if how == "deadline" else None)
        async for _ in stream:
            if how == "break":
                break
            if how == "cancel":
                stream.cancel()

    if how in ("break", "cancel"):
        await asyncio.gather(*(one() for _ in range(8)))
    elif how == "task":
        tasks = [asyncio.create_task(one()) for _ in range(8)]
        await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        assert {type(end) for end in await asyncio.gather(*tasks, return_exceptions=True)} == {
            asyncio.CancelledError
        }
    else:
        ends = await asyncio.gather(*(one() for _ in range(8)), return_exceptions=True)
        assert {type(end) for end in ends} == {Timeout}
    wait_until(lambda: total(server, "trimodal_llm_requests_total") == before + 8, "8 outcomes", 10)
    wait_until(lambda: idle(server), "an idle server", 10)
    assert (await client.complete("x", max_tokens=3)).usage.completion == 3


async def test_a_server_that_dies_is_an_error_and_not_a_hang(own_server):
    server = own_server(("llm",), changes={"llm": LLM})
    async with Client(server.grpc_url, timeouts=Timeouts(silence=20)) as client:
        stream = client.generate("x", max_tokens=1000)
        await stream.__anext__()
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises((ConnectionLost, RequestError)):
            await stream.answer()
        with pytest.raises((ConnectError, ConnectionLost)):  # as the second connection has noticed or not
            await client.complete("x")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_the_copyable_programs(server, client, protocol):
    program = CLIENTS / f"chat_{protocol}.py"
    url = server.grpc_url if protocol == "grpc" else server.http_url
    wanted = await client.complete("hello 日", max_tokens=90)
    done = run_python(program, "hello 日", "--max-tokens", 90, "--url", url)
    assert (done.returncode, done.stdout) == (0, wanted.text), done.stderr
    assert "[length" in done.stderr
    refused = run_python(program, "x", "--max-tokens", 0, "--url", url)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "max_tokens is 0" in refused.stderr
    assert "Traceback" not in refused.stderr
    nobody = run_python(program, "x", "--url", "127.0.0.1:1")
    assert nobody.returncode == 1
    assert "Traceback" not in nobody.stderr


@pytest.mark.parametrize("program", ["clients/chat_grpc.py", "clients/chat_http.py", "trimodal chat"])
def test_ctrl_c_ends_the_answer_on_the_server(server, program):
    if program == "trimodal chat":
        command = ["-m", "trimodal.cli.app", "chat"]
    else:
        command = [str(CLIENTS.parent / program)]
    url = server.http_url if "http" in program else server.grpc_url
    process = subprocess.Popen(
        [sys.executable, *command, "x", "--max-tokens", "1000", "--url", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout.read(1), process.communicate(timeout=20)[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    wait_until(lambda: idle(server), "an idle server", 10)


async def test_ready_and_models(server, client):
    with pytest.raises(ModelNotFound, match="the server has no model 'nope'"):
        await client.complete("x", model="nope")
    assert await client.ready()
    assert await client.ready("llm")
    assert not await client.ready("nope")
    assert {model.name for model in await client.models()} == set(MODELS)
