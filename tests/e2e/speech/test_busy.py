"""A slow recogniser: ENDs wait for it, and new streams are refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.metrics import total
from tests.e2e.speech.streams import (
    BUSY,
    MODELS,
    Stream,
    cut,
    empty,
    heard,
    over_grpc,
    refused,
    sentences,
    settled,
    spelled,
)
from trimodal.audio.values import SAMPLE_RATE
from trimodal.client import Client, Timeouts
from trimodal.errors import Unavailable
from trimodal.server.process import TritonServer

STREAMS = "trimodal_speech_streams_total"
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def busy(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(MODELS, BUSY)


@pytest.mark.slow
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
        lambda: total(busy, STREAMS, '"refused"') == before + 1,
        "the refusal to be counted",
    )


@pytest.mark.slow
async def test_refused_streams_that_never_end_leave_room_for_others(busy: TritonServer) -> None:
    """More of them than the 4,096 slots of Triton's sequence batcher, which kept one for each."""
    quiet = np.zeros(320, np.float32)
    async with Client(busy.grpc_url, timeouts=Timeouts(total=BOUND)) as client:
        inside = [client.listen() for _ in range(3)]
        for stream in inside:
            await stream.send(quiet)
        room = asyncio.Semaphore(64)

        async def start() -> None:
            async with room:
                with pytest.raises(Unavailable, match="3 streams are open"):
                    await client.listen().send(quiet)

        await asyncio.gather(*(start() for _ in range(4200)))
        for stream in inside:
            await stream.end()
        async with client.listen() as another:
            assert (await another.send(quiet)).received_s == 0.02


def test_while_the_recogniser_is_behind_new_streams_are_refused_and_old_ones_go_on(
    busy: TritonServer,
) -> None:
    samples, said = sentences(7, 12)
    with over_grpc(busy) as line:
        inside = Stream(line, policy="edge")
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
        assert re.search(r"heard \d\.\d s late.* refuse_lag_s \(1 s\)", refusal.message())
        updates.append(inside.send(np.zeros(320, np.float32)))
        updates.append(inside.send(None, end=True))
        assert spelled(heard(updates)) == spelled(said)
        assert not is_refused()


@pytest.mark.slow
def test_a_whole_recording_that_is_given_up_while_it_is_heard_is_forgotten(busy: TritonServer) -> None:
    """Its client's deadline passes; nothing more of it is heard."""
    samples, _ = sentences(8, 12)
    left = settled(busy, "speech_streams_total", '"left"')

    async def impatient() -> None:
        async with Client(busy.grpc_url, timeouts=Timeouts(total=0.5)) as client:
            with pytest.raises(Exception, match="deadline"):
                await client.listen().end(samples)

    asyncio.run(impatient())
    wait_until(lambda: total(busy, STREAMS, '"left"') == left + 1, "its end")
    wait_until(lambda: empty(busy), "an empty server")
