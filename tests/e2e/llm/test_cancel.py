"""Clients that leave at random moments, and an engine that is killed: what stays behind of them, and of whom.

The engine is the fake one, with the batch, the KV books and the chunked prefill of a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import own_processes, wait_until
from tests.e2e.metrics import listens, total
from trimodal.client import Client, Timeouts
from trimodal.errors import Unavailable
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

STEP_MS = 3
SETTINGS = {
    "engine": "fake",
    "fake_step_ms": str(STEP_MS),
    "fake_prefill_us": "50",
    "max_num_seqs": "16",
    "max_num_batched_tokens": "64",  # a prompt of 1,000 tokens takes some 20 steps
    "num_kv_blocks": "2048",
}
STATE = ("active_requests", "queued_requests", "kv_usage_ratio")
STAYING = [f"stays {index}" for index in range(8)]
REQUESTS = "trimodal_llm_requests_total"
HANGS = 30.0  # seconds


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    server = serve(("llm",), changes={"llm": SETTINGS})
    wait_until(lambda: listens(server), "the metrics page")
    return server


async def until(server: TritonServer, wanted: tuple[float, ...], names: tuple[str, ...] = STATE) -> float:
    """Seconds until the metrics page shows `wanted`."""
    began = time.perf_counter()
    while True:
        state = await asyncio.to_thread(
            lambda: tuple(total(server, f"trimodal_llm_{name}") for name in names)
        )
        waited = time.perf_counter() - began
        if state == wanted:
            return waited
        assert waited < HANGS, f"{dict(zip(names, state, strict=True))} instead of {wanted}"


@dataclass
class Leaver:
    """One client that leaves after `after` seconds, a patient one so long after its first text.

    `text` is what it had seen by then.
    """

    after: float
    prompt: str
    patient: bool
    text: str = ""

    async def over_grpc(self, client: Client) -> None:
        stream = client.generate(self.prompt, max_tokens=900)

        begun = asyncio.Event()

        async def read() -> None:
            async for _ in stream:
                begun.set()

        reading = asyncio.create_task(read())
        if self.patient:
            await begun.wait()
        await asyncio.sleep(self.after)
        stream.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        self.text = stream.text
        assert stream.finish_reason == "cancelled"

    async def over_http(self, server: TritonServer) -> None:
        """Hangs up; Triton sees it when it writes the next event."""
        host, _, port = server.http_url.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps({"text_input": self.prompt, "max_tokens": 900}).encode()
        head = (
            f"POST /v2/models/llm/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(reader.readuntil(b"data:"), None if self.patient else self.after)
            self.text = "data"
            await asyncio.sleep(self.after)
        writer.transport.abort()


@pytest.mark.slow
async def test_fifty_that_leave_harm_none_of_eight_that_stay(server: TritonServer) -> None:
    rng = random.Random(7)
    cancelled, before = total(server, REQUESTS, '"cancelled"'), total(server, REQUESTS)
    async with Client(server.grpc_url, timeouts=Timeouts(silence=30)) as client:
        solo = [(await client.complete(prompt, max_tokens=250)).text for prompt in STAYING]
        staying = [asyncio.create_task(client.complete(prompt, max_tokens=250)) for prompt in STAYING]
        leavers = [
            Leaver(rng.uniform(0, 0.6), f"leaves {index} " * rng.randint(1, 50), patient=index % 5 == 0)
            for index in range(50)
        ]
        leaving = [
            asyncio.create_task(leaver.over_http(server) if index % 4 == 3 else leaver.over_grpc(client))
            for index, leaver in enumerate(leavers)
        ]
        queued = 0.0
        while not all(task.done() for task in leaving):
            queued = max(queued, await asyncio.to_thread(total, server, "trimodal_llm_queued_requests"))
        await asyncio.gather(*leaving)
        assert queued > 0, "some must have left while they were queued"
        assert sum(bool(leaver.text) for leaver in leavers) > 5, (
            "some must have left while they were answered"
        )
        assert sum(not leaver.text for leaver in leavers) > 5, "some must have left before their first text"
        assert [(await task).text for task in staying] == solo
    await until(server, (0, 0, 0))

    def others() -> float:
        """Requests that came and ended otherwise than cancelled."""
        return total(server, REQUESTS) - before - (total(server, REQUESTS, '"cancelled"') - cancelled)

    wait_until(lambda: others() == 2 * len(STAYING), "the ends of those that stay", 10)
    # Who leaves while its request is being sent is not always seen by the server.
    assert 35 <= total(server, REQUESTS, '"cancelled"') - cancelled <= len(leavers)


def engines(server: TritonServer) -> set[int]:
    """Process ids of the engines of this server."""
    found = set()
    for pid in own_processes(re.escape("-m trimodal.llm.engine_core ")):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == server.pid:
                found.add(pid)
    return found


async def test_a_killed_engine_is_an_error_and_the_next_one_answers(
    own_server: Callable[..., TritonServer],
) -> None:
    server = own_server(("llm",), changes={"llm": SETTINGS | {"max_num_seqs": "4"}})
    (first,) = engines(server)
    async with Client(server.grpc_url, timeouts=Timeouts(silence=20)) as client:
        wanted = (await client.complete("again", max_tokens=40)).text
        running = [client.generate(f"runs {index}", max_tokens=900) for index in range(4)]
        for stream in running:
            await stream.__anext__()
        waiting = [asyncio.create_task(client.complete("again", max_tokens=40)) for _ in range(3)]
        await asyncio.to_thread(
            wait_until, lambda: total(server, "trimodal_llm_queued_requests") >= 3, "3 that wait"
        )
        os.kill(first, signal.SIGKILL)
        for stream in running:
            with pytest.raises(Unavailable, match="the engine that had this request died; retry after 2 s"):
                await stream.answer()
        assert [(await task).text for task in waiting] == [wanted] * 3, "what waited runs on the new engine"
        assert (await client.complete("again", max_tokens=40)).text == wanted
        assert await client.ready("llm")
    (second,) = engines(server)
    assert second != first
    await until(server, (0, 0, 0, 1), (*STATE, "engine_restarts_total"))


async def test_an_engine_that_keeps_dying_is_given_up(own_server: Callable[..., TritonServer]) -> None:
    server = own_server(("llm",), changes={"llm": SETTINGS | {"fake_crash_after": "3"}})
    async with Client(server.grpc_url, timeouts=Timeouts(silence=20)) as client:
        ends = []
        while not ends or "the operator must look at it" not in str(ends[-1]):
            assert len(ends) < 500, ends[-1]
            with pytest.raises(Unavailable) as caught:
                await client.complete("x", max_tokens=900)
            ends.append(caught.value)
            await asyncio.sleep(0.02)
    assert sum("the engine that had this request died" in str(end) for end in ends) == 4
    assert not engines(server)
