"""Concurrent streams do not change a stream's words: eight together give what eight alone gave.

Each stream has its own connection and its own chunk sizes, others in each run. Steps do not widen here
(max_step_s is step_s): which windows are recognised then depends on the audio alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.e2e.conftest import BOUND
from tests.e2e.speech.streams import MODELS, POLICIES, TINY_EN, batches, changes, cut, sentences, spelled
from trimodal.audio.files import read_blocks
from trimodal.audio.values import PolicyName, Samples, Word
from trimodal.client import Client, Timeouts
from trimodal.paths import data_directory
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

STREAMS = 8
TRIES = 5  # where other tests keep the cores busy, the windows of a few short clips may all come alone
FRAME_S = 0.02
SAMPLES = data_directory() / "samples" / "speech"


async def play(url: str, samples: Samples, policy: PolicyName, seed: int) -> list[Word]:
    """The words of one stream, in the order in which they were committed."""
    async with (
        Client(url, timeouts=Timeouts(total=BOUND), connections=1) as client,
        client.listen(policy=policy) as stream,
    ):
        for chunk in cut(samples, seed, 0.02, 1.5):
            await stream.send(chunk)
        await stream.end()
        return list(stream.words)


async def alone_and_together(
    server: TritonServer, clips: Sequence[Samples], policy: PolicyName
) -> tuple[list[list[Word]], list[list[Word]]]:
    alone = [await play(server.grpc_url, clip, policy, seed) for seed, clip in enumerate(clips)]
    for _ in range(TRIES):
        runs, windows = batches(server)
        together = await asyncio.gather(
            *(play(server.grpc_url, clip, policy, 100 + seed) for seed, clip in enumerate(clips))
        )
        runs_now, windows_now = batches(server)
        if shared := windows_now - windows > runs_now - runs:
            break
    assert shared, "streams that share no batch show nothing"
    return alone, together


def same(alone: Sequence[Word], together: Sequence[Word]) -> None:
    assert spelled(together) == spelled(alone)
    for word, other in zip(alone, together, strict=True):
        assert abs(word.start - other.start) < FRAME_S
        assert abs(word.end - other.end) < FRAME_S


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    ["edge", *(pytest.param(policy, marks=pytest.mark.slow) for policy in POLICIES if policy != "edge")],
)
async def test_eight_streams_get_the_words_of_eight_solo_runs(
    serve: Callable[..., TritonServer], policy: PolicyName
) -> None:
    server = serve(MODELS, changes(batch_ms=10, step_s=0.5, max_step_s=0.5))
    said = [sentences(seed, 24) for seed in range(STREAMS)]
    alone, together = await alone_and_together(server, [samples for samples, _ in said], policy)
    for one, other, (_, words) in zip(alone, together, said, strict=True):
        same(one, other)
        assert spelled(one) == spelled(words)


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize("policy", ["edge", pytest.param("vad", marks=pytest.mark.slow)])
async def test_so_do_eight_streams_of_speech_on_a_real_whisper(
    serve: Callable[..., TritonServer], policy: PolicyName
) -> None:
    server = serve(MODELS, TINY_EN)
    files = sorted(path for path in SAMPLES.iterdir() if path.suffix in (".wav", ".flac"))[:STREAMS]
    clips = [next(read_blocks(path, 30.0)) for path in files]
    alone, together = await alone_and_together(server, clips, policy)
    assert sum(map(len, alone)) > 20
    for one, other in zip(alone, together, strict=True):
        same(one, other)
