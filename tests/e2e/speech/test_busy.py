"""A slow recogniser: ENDs wait for it, and new streams are refused."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import BOUND, MODEL_REPOSITORY, wait_until
from tests.e2e.metrics import total
from tests.e2e.speech.streams import (
    BUSY,
    MODELS,
    Stream,
    changes,
    empty,
    over_grpc,
    refused,
    sentences,
    settled,
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


@pytest.mark.slow
async def test_a_full_queue_of_the_recogniser_delays_words_and_loses_none(
    own_server: Callable[..., TritonServer], tmp_path: Path
) -> None:
    """It refuses windows for longer than a recogniser that fails is asked again."""
    for name in MODELS:
        shutil.copytree(
            MODEL_REPOSITORY / name,
            tmp_path / name,
            ignore=lambda folder, names: [
                one for one in names if (Path(folder) / one / "manifest.json").exists()
            ],
        )
    file = tmp_path / "speech_recognize" / "configs" / "cpu.pbtxt"
    queue = "dynamic_batching { default_queue_policy { max_queue_size: 1 }"
    file.write_text(
        file.read_text().replace("dynamic_batching {", queue).replace("batch_size: 8", "batch_size: 1")
    )
    server = own_server(MODELS, changes(batch_ms=1500), repository=tmp_path)
    spoken = [sentences(seed, 4) for seed in range(6)]
    async with Client(server.grpc_url, timeouts=Timeouts(total=BOUND)) as client:
        heard = await asyncio.gather(*(client.transcribe(samples) for samples, _ in spoken))
    for one, (_, words) in zip(heard, spoken, strict=True):
        assert one.text.split() == [word.text.strip() for word in words]
    assert total(server, "trimodal_speech_window_retries_total") > 0
