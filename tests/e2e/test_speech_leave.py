"""Streams whose client leaves, comes late or asks too much: what stays behind, and who is refused."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from trimodal.client import Client, Timeouts
from trimodal.server.process import TritonServer
from trimodal.speech.service import LISTENERS
from trimodal.speech.values import SAMPLE_RATE, Samples

from .conftest import BOUND, own_processes, wait_until
from .speech_hour import memory
from .speech_streams import (
    BUSY,
    MODELS,
    Stream,
    changes,
    cut,
    heard,
    metric,
    over_grpc,
    sentences,
    settled,
    spelled,
)

pytestmark = pytest.mark.e2e

IDLE_S = 3.0
ABANDONED = 1000


def soon_idle(name: str, config: Any) -> None:
    """Streams are dropped after IDLE_S instead of a minute."""
    if name == "speech":
        config.sequence_batching.max_sequence_idle_microseconds = round(IDLE_S * 1e6)


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(MODELS, changes(max_streams=2000), edit=soon_idle)


@pytest.fixture(scope="module")
def busy(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(MODELS, BUSY)


def threads(server: TritonServer) -> int:
    """Threads of the process that keeps the streams."""
    (pid,) = (
        pid
        for pid in own_processes(r"python_backend_stub \S*/speech/1/model\.py")
        if os.getpgid(pid) == server.pid
    )
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"Threads:\s+(\d+)", status)[1])  # type: ignore[index]


def empty(server: TritonServer) -> bool:
    """Nothing is open, nothing owed, nothing at the recogniser."""
    gauges = ("active_streams", "active_requests", "windows_in_flight")
    return not any(metric(server, f"speech_{name}") for name in gauges)


def one_more(server: TritonServer, seed: int = 77) -> None:
    """A stream gets all its words."""
    samples, said = sentences(seed, 8)
    with over_grpc(server) as line:
        assert spelled(heard(Stream(line).say(list(cut(samples, seed))))) == spelled(said)


def refused(stream: Stream, samples: Samples | None, **flags: bool) -> tuple[str, str]:
    """Status and sentence of a chunk that is refused."""
    with pytest.raises(InferenceServerException) as caught:
        stream.send(samples, **flags)
    return caught.value.status(), caught.value.message()


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
        lambda: metric(server, "speech_streams_total", '"idle"') == idle + ABANDONED, "all to be dropped"
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
from tests.e2e.speech_streams import sentences

async def main():
    samples, _ = sentences(5, 200)
    async with Client(sys.argv[1]) as client, client.listen() as stream:
        for at in range(0, len(samples), 1600):
            update = await stream.send(samples[at : at + 1600])
            print(update.received_s, flush=True)
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


def test_a_client_killed_in_the_middle_of_a_word_leaves_nothing_behind(server: TritonServer) -> None:
    wait_until(lambda: empty(server), "an empty server")
    idle = settled(server, "speech_streams_total", '"idle"')
    client = subprocess.Popen([sys.executable, "-c", TALKER, server.grpc_url], stdout=subprocess.PIPE)
    assert client.stdout
    try:
        for _ in range(25):
            assert client.stdout.readline(), "the client speaks"
        assert metric(server, "speech_active_streams") == 1
    finally:
        client.send_signal(signal.SIGKILL)
        client.stdout.close()
        client.wait(BOUND)
    wait_until(
        lambda: metric(server, "speech_streams_total", '"idle"') == idle + 1, "the stream to be dropped"
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
            lambda: metric(server, "speech_streams_total", '"idle"') > idle, "the stream to be dropped"
        )
        status, told = refused(stream, samples)
        assert status == "StatusCode.INVALID_ARGUMENT"
        assert "START" in told
        again = [stream.send(samples, start=True), stream.send(None, end=True)]
        assert spelled(heard(again)) == spelled(said)


def test_started_anew_a_stream_has_nothing_of_the_old_one(server: TritonServer) -> None:
    first, _ = sentences(3, 12)
    second, said = sentences(4, 6)
    with over_grpc(server) as line:
        stream = Stream(line)
        stream.send(first)
        update = stream.send(second, start=True)
        assert update.received_s == len(second) / SAMPLE_RATE
        updates = [update, stream.send(None, end=True)]
    assert spelled(heard(updates)) == spelled(said)
    assert heard(updates)[0].start == pytest.approx(said[0].start, abs=0.02)


@pytest.mark.parametrize("end", [False, True], ids=["a chunk", "an END"])
@pytest.mark.parametrize("ended", [False, True], ids=["never started", "ended"])
def test_what_belongs_to_no_stream_is_refused(server: TritonServer, ended: bool, end: bool) -> None:
    samples, _ = sentences(5, 3)
    with over_grpc(server) as line:
        stream = Stream(line)
        if ended:
            assert stream.send(samples, end=True).final
        status, told = refused(stream, samples, start=False, end=end)
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert str(stream.id) in told
    assert "START" in told
    one_more(server)


def test_an_end_waits_for_a_slow_recogniser_and_has_every_word(busy: TritonServer) -> None:
    samples, said = sentences(6, 10)
    with over_grpc(busy) as line:
        stream = Stream(line, policy="vad")
        updates = [stream.send(chunk) for chunk in cut(samples, 6, 0.5, 0.5) if len(chunk) >= 320]
        early = heard(updates)
        updates.append(stream.send(None, end=True))
    assert len(early) < len(said) == len(heard(updates))
    assert spelled(heard(updates)) == spelled(said)
    assert updates[-1].final


def test_more_streams_than_max_streams_are_refused_until_one_ends(busy: TritonServer) -> None:
    quiet = np.zeros(SAMPLE_RATE, np.float32)
    with over_grpc(busy) as line:
        inside = [Stream(line) for _ in range(3)]
        for stream in inside:
            stream.send(quiet)
        before = settled(busy, "speech_streams_total", '"refused"')
        late = Stream(line)
        told = "speech: 3 streams are open, as many as max_streams allows; try again later"
        assert refused(late, quiet) == ("StatusCode.UNAVAILABLE", told)
        assert [stream.send(quiet).received_s for stream in inside] == [2.0] * 3
        assert inside[0].send(None, end=True).final
        assert late.send(quiet, start=True).received_s == 1.0
        for stream in (*inside[1:], late):
            assert stream.send(None, end=True).final
    wait_until(
        lambda: metric(busy, "speech_streams_total", '"refused"') == before + 1, "the refusal to be counted"
    )


def test_while_the_recogniser_is_behind_new_streams_are_refused_and_old_ones_go_on(
    busy: TritonServer,
) -> None:
    samples, said = sentences(7, 12)
    with over_grpc(busy) as line:
        inside = Stream(line, policy="live")
        updates = [inside.send(samples)]  # its first window takes 1.5 s

        answers: list[InferenceServerException | None] = []

        def is_refused() -> bool:
            answers.append(None)
            try:
                Stream(line).send(np.zeros(320, np.float32), end=True)
            except InferenceServerException as error:
                answers[-1] = error
            return answers[-1] is not None

        wait_until(is_refused, "a refusal", 10)
        refusal = answers[-1]
        assert refusal
        assert refusal.status() == "StatusCode.UNAVAILABLE"
        assert re.search(r"windows wait \d\.\d s .* refuse_lag_s \(1 s\)", refusal.message())
        updates.append(inside.send(np.zeros(320, np.float32)))
        updates.append(inside.send(None, end=True))
        assert spelled(heard(updates)) == spelled(said)
        assert not is_refused()


def test_a_whole_recording_that_is_given_up_while_it_is_heard_is_forgotten(busy: TritonServer) -> None:
    """Its client's deadline passes; the words have nobody to go to."""
    samples, _ = sentences(8, 12)
    finished = settled(busy, "speech_streams_total", '"finished"')

    async def impatient() -> None:
        async with Client(busy.grpc_url, timeouts=Timeouts(total=0.5)) as client:
            with pytest.raises(Exception, match="deadline"):
                await client.listen().end(samples)

    asyncio.run(impatient())
    wait_until(lambda: metric(busy, "speech_streams_total", '"finished"') == finished + 1, "its end")
    wait_until(lambda: empty(busy), "an empty server")
