"""Processes of models that die in a real server: who is told, what comes back, who notices nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import fakes
from tests.e2e.conftest import BOUND, wait_until
from trimodal.client import Client, ConnectionLost
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.server.process import TritonServer
from trimodal.server.supervision.stubs import children, model_of
from trimodal.speech.engines.fake import speak

pytestmark = pytest.mark.e2e
# Long steps: the process is mostly at rest, and not in Triton's locks, when it is killed.
LONG = {**fakes.LLM, "fake_answer": "word " * 400, "fake_step_ms": "200"}


def kill(server: TritonServer, model: str) -> None:
    (stub,) = [pid for pid in children(server.pid) if model_of(pid) == model]
    os.kill(stub, signal.SIGKILL)
    skip_if_locked(server, 0.5)


def skip_if_locked(server: TritonServer, seconds: float) -> None:
    """Ends a test where the whole server dies within a time, of a lock that the killed process held."""
    if server.wait(seconds) is not None and "lock_exception" in server.log_path.read_text():
        pytest.skip("Triton 2.51 died of a lock that the process held: see docs/limitations.md")


def page(server: TritonServer) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{server.health_url}/health", timeout=BOUND) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def lost(server: TritonServer, model: str) -> bool:
    return bool(page(server)["models"][model]["lost"])


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> fakes.Changes:
    made = {**fakes.changes(tmp_path_factory.mktemp("artefacts")), "llm": LONG}
    return made | {"vision": {**made["vision"], "fake_delay_ms": "100"}}


@pytest.fixture
def served(serve: Callable[..., TritonServer], changes: fakes.Changes) -> TritonServer:
    """One for all tests, which has loaded again what the one before has killed."""
    server = serve(("llm", "vision", "speech"), changes)
    wait_until(lambda: page(server)["ready"], "all models")
    return server


async def test_streams_of_a_process_that_dies_are_told(served: TritonServer) -> None:
    """Twice as many as fit the engine: those that wait are told like those that write."""
    async with Client(served.url) as client:
        first = client.stream("hi", max_tokens=400)
        await anext(aiter(first))
        streams = [asyncio.ensure_future(client.complete("hi", max_tokens=400)) for _ in range(8)]
        await asyncio.sleep(0.2)  # sent
        await asyncio.to_thread(kill, served, "llm")
        told = await asyncio.wait_for(asyncio.gather(*streams, return_exceptions=True), BOUND)
        assert {type(one) for one in told} == {Unavailable}
        assert {str(one) for one in told} == {"llm: the process that had this request died; retry after 2 s"}
        assert told[0].retry_after_s == 2.0  # type: ignore[union-attr]
        with pytest.raises(Unavailable, match="the process that had this request died"):
            async for _ in first:
                pass
        # The others went on meanwhile, and it is back, with gauges that speak of the living.
        assert await client.classify([fakes.png(1)])
        await asyncio.to_thread(wait_until, lambda: page(served)["ready"], "the model")
        assert (await client.complete("hi", max_tokens=3)).text
        await asyncio.to_thread(wait_until, lambda: served.api.in_flight()["llm"] == 0, "the gauges")


STREAMS = r"""
import http.client, json, os, sys, threading
def ask(number):
    connection = http.client.HTTPConnection(sys.argv[1], timeout=20)
    body = json.dumps({"text_input": f"hi {number}", "max_tokens": 400})
    connection.request("POST", "/v2/models/llm/generate_stream", body)
    try:
        answer = connection.getresponse()
        os.write(1, answer.readline()[:6] + b"\n")  # whole lines: print's come in pieces, of all threads
        answer.read()
    except (ConnectionError, http.client.HTTPException):
        pass
    os.write(1, b"ended\n")
for number in range(8):
    threading.Thread(target=ask, args=(number,)).start()
"""


@pytest.mark.parametrize("deaths", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_http_clients_of_triton_are_told_at_every_death(served: TritonServer, deaths: int) -> None:
    """Triton itself never tells them, and the next process held their connections open."""
    for _ in range(deaths):
        with subprocess.Popen(
            [sys.executable, "-c", STREAMS, served.http_url], stdout=subprocess.PIPE, text=True
        ) as clients:
            assert clients.stdout
            assert clients.stdout.readline() == "data: \n"
            wait_until(lambda: sum(served.api.in_flight().values()) == 8, "all requests")
            kill(served, "llm")
            assert clients.stdout.read().count("ended") == 8
        assert clients.returncode == 0, "a client gave up"
        wait_until(lambda: page(served)["ready"], "the model")
    (stub,) = [pid for pid in children(served.pid) if model_of(pid) == "llm"]
    table = Path(f"/proc/{served.pid}/net/tcp").read_text().split()
    for descriptor in Path(f"/proc/{stub}/fd").iterdir():
        assert descriptor.readlink().name.removeprefix("socket:[").rstrip("]") not in table


async def test_pictures_in_a_process_that_dies_are_told(served: TritonServer) -> None:
    async with Client(served.url) as client:
        asked = [asyncio.ensure_future(client.classify([fakes.png(1)])) for _ in range(1000)]
        await asked[0]
        await asyncio.to_thread(kill, served, "vision")
        told = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), BOUND)
        wrong = [one for one in told if not isinstance(one, list)]
        assert wrong
        assert {type(one) for one in wrong} == {Unavailable}
        await asyncio.to_thread(wait_until, lambda: lost(served, "vision"), "the loss")
        await asyncio.to_thread(wait_until, lambda: page(served)["ready"], "the model")
        assert await client.classify([fakes.png(1)])


async def test_pictures_in_an_engine_that_hangs_are_told(
    own_server: Callable[..., TritonServer], tmp_path: Path
) -> None:
    slow = fakes.vision(tmp_path, fake_delay_ms="10000", warm_up_batch_sizes="", stall_timeout_s="1")
    server = own_server(("vision",), slow)
    async with Client(server.url) as client:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(client.classify([fakes.png(1)]), BOUND)
        await asyncio.to_thread(skip_if_locked, server, 0.5)
        await asyncio.to_thread(wait_until, lambda: lost(server, "vision"), "the loss")
        await asyncio.to_thread(wait_until, lambda: page(server)["ready"], "the model")
    assert " in execute" in server.log_path.read_text(), "where its threads stood"


async def test_live_speech_outlives_its_recogniser(served: TritonServer) -> None:
    said = "the lambda list string class while for function statement explain"
    samples, _ = speak(said.split())
    async with Client(served.url) as client, client.listen(policy="vad") as stream:
        await stream.send(samples[: len(samples) // 2])
        await asyncio.to_thread(kill, served, "speech_recognize")
        await asyncio.to_thread(wait_until, lambda: lost(served, "speech_recognize"), "the loss")
        await stream.send(samples[len(samples) // 2 :])
        await asyncio.wait_for(stream.end(), BOUND)
        assert stream.text == said


async def test_live_speech_in_a_process_that_dies_is_told(served: TritonServer) -> None:
    async with Client(served.url) as client:
        stream = client.listen()
        await stream.send(speak(["lambda"])[0])
        await asyncio.to_thread(kill, served, "speech")

        async def go_on() -> None:
            for _ in range(1000):
                await stream.send(speak(["a"])[0])

        with pytest.raises((Unavailable, ConnectionLost)) as told:
            await go_on()
        if told.type is ConnectionLost:  # Triton may meet the lock with the next request only
            await asyncio.to_thread(skip_if_locked, served, 5.0)
        assert told.type is Unavailable
        await asyncio.to_thread(wait_until, lambda: page(served)["ready"], "the model")
        async with client.listen() as another:
            await another.end(speak(["lambda"])[0])


@pytest.mark.slow
async def test_refused_streams_keep_no_model_from_unloading(own_server: Callable[..., TritonServer]) -> None:
    """Triton 2.51 kept a request for good whose call was cancelled after its error."""
    server = own_server(("llm",), {"llm": fakes.LLM})
    async with Client(server.url) as client:
        for _ in range(100):
            with pytest.raises(InvalidArgument):
                await client.complete("hi", max_tokens=-1)
        (old,) = [pid for pid in children(server.pid) if model_of(pid) == "llm"]
        await asyncio.to_thread(server.api.unload, "llm")
        await asyncio.to_thread(wait_until, lambda: not model_of(old), "the end of its process", 10.0)
