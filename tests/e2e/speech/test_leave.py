"""Streams whose client leaves or comes too late leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import BOUND, own_processes, wait_until
from tests.e2e.metrics import total
from tests.e2e.speech.streams import (
    MODELS,
    Stream,
    changes,
    cut,
    empty,
    heard,
    memory,
    over_grpc,
    refused,
    sentences,
    settled,
    spelled,
)
from trimodal.audio.values import SAMPLE_RATE
from trimodal.client import Client, Timeouts
from trimodal.server.process import TritonServer
from trimodal.speech.live.service import LISTENERS

STREAMS = "trimodal_speech_streams_total"
pytestmark = pytest.mark.e2e

IDLE_S = 3.0
ABANDONED = 1000


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(MODELS, changes(max_streams=2000, idle_s=IDLE_S))


def threads(server: TritonServer) -> int:
    """Threads of the process that keeps the streams."""
    (pid,) = (
        pid
        for pid in own_processes(r"python_backend_stub \S*/speech/1/model\.py")
        if os.getpgid(pid) == server.pid
    )
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"Threads:\s+(\d+)", status)[1])  # type: ignore[index]


def one_more(server: TritonServer, seed: int = 77) -> None:
    """A stream gets all its words."""
    samples, said = sentences(seed, 8)
    with over_grpc(server) as line:
        assert spelled(heard(Stream(line).say(list(cut(samples, seed))))) == spelled(said)


@pytest.mark.slow
async def test_a_thousand_abandoned_streams_leave_nothing_behind(server: TritonServer) -> None:
    samples, _ = sentences(1, 8)
    clip = samples[: 3 * SAMPLE_RATE]

    async def abandon(count: int) -> None:
        async with Client(server.grpc_url, timeouts=Timeouts(total=BOUND)) as client:
            room = asyncio.Semaphore(16)

            async def one() -> None:
                async with room:
                    await client.listen().send(clip)  # never ended, never closed

            await asyncio.gather(*(one() for _ in range(count)))

    idle = settled(server, "speech_streams_total", '"idle"')
    one_more(server)
    before, running = memory(server)["speech"], threads(server)
    await abandon(ABANDONED)
    wait_until(
        lambda: total(server, STREAMS, '"idle"') == idle + ABANDONED,
        "all to be dropped",
    )
    wait_until(lambda: empty(server), "an empty server")
    held = ABANDONED * len(clip) * 4 / 2**20
    assert held > 150, "MiB of audio that was sent"
    assert memory(server)["speech"] < before + held / 8
    assert threads(server) <= running + LISTENERS - 1  # they begin when they are needed
    one_more(server)


TALKER = """
import asyncio, sys
import numpy as np
from trimodal.client import Client
from tests.e2e.speech.streams import sentences

async def main():
    samples, _ = sentences(5, 200)
    async with Client(sys.argv[1]) as client, client.listen() as stream:
        for at in range(0, len(samples), 1600):
            update = await stream.send(samples[at : at + 1600])
            print(update.received_s, flush=True)
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_client_killed_in_the_middle_of_a_word_leaves_nothing_behind(server: TritonServer) -> None:
    wait_until(lambda: empty(server), "an empty server")
    idle = settled(server, "speech_streams_total", '"idle"')
    client = subprocess.Popen([sys.executable, "-c", TALKER, server.grpc_url], stdout=subprocess.PIPE)
    assert client.stdout
    try:
        for _ in range(25):
            assert client.stdout.readline(), "the client speaks"
        assert total(server, "trimodal_speech_active_streams") == 1
    finally:
        client.send_signal(signal.SIGKILL)
        client.stdout.close()
        client.wait(BOUND)
    wait_until(
        lambda: total(server, STREAMS, '"idle"') == idle + 1,
        "the stream to be dropped",
    )
    wait_until(lambda: empty(server), "an empty server")
    one_more(server)


def test_an_idle_stream_is_gone_and_its_client_is_told(server: TritonServer) -> None:
    samples, said = sentences(2, 5)
    idle = settled(server, "speech_streams_total", '"idle"')
    with over_grpc(server) as line:
        stream = Stream(line)
        stream.send(samples)
        wait_until(
            lambda: total(server, STREAMS, '"idle"') > idle,
            "the stream to be dropped",
        )
        status, told = refused(stream, samples)
        assert status == "StatusCode.INVALID_ARGUMENT"
        assert "START" in told
        again = [stream.send(samples, start=True), stream.send(None, end=True)]
        assert spelled(heard(again)) == spelled(said)
