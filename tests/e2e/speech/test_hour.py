"""An hour of audio through one stream on the real server: every word once, at its time, in flat memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.speech.streams import MODELS, changes, memory, sentences, spelled
from trimodal.audio.values import SAMPLE_RATE, PolicyName, Samples, Word
from trimodal.client import Client, Timeouts
from trimodal.server.process import TritonServer
from trimodal.speech.settings import SpeechSettings

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MINUTES, CHUNK_S = 60, 10
DRIFT_S = 0.02
# What a stream that is far behind may hold at one minute and not at another: max_pending_s and a chunk,
# in a buffer with room for twice as much, and the chunk again on its way in; float32. Allocators add some.
HELD_S = 2 * (SpeechSettings().max_pending_s + CHUNK_S) + 2 * CHUNK_S
GROWTH_MIB = HELD_S * SAMPLE_RATE * 4 / 2**20 + 6


def blocks() -> Iterator[tuple[Samples, list[Word]]]:
    """Blocks of some 40 s of random words, none like the other, and the words on the hour's clock."""
    seed, at = 0, 0.0
    while at < MINUTES * 60:
        samples, words = sentences(seed, 60)
        yield samples, [word.shifted(at) for word in words]
        seed, at = seed + 1, at + len(samples) / SAMPLE_RATE


@pytest.mark.parametrize("policy", ["edge", "vad"])
async def test_an_hour_through_one_stream(serve: Callable[..., TritonServer], policy: PolicyName) -> None:
    """As fast as it is answered."""
    server = serve(MODELS, changes())
    spoken: list[Word] = []
    held: list[dict[str, float]] = []  # MiB of each process after each minute of audio
    async with (
        Client(server.grpc_url, timeouts=Timeouts(total=120.0)) as client,
        client.listen(policy=policy) as stream,
    ):
        for samples, words in blocks():
            spoken += words
            for at in range(0, len(samples), CHUNK_S * SAMPLE_RATE):
                update = await stream.send(samples[at : at + CHUNK_S * SAMPLE_RATE])
            if update.received_s >= 60 * (len(held) + 1):
                held.append(memory(server))
        await stream.end()
        assert spelled(stream.words) == spelled(spoken)
        for heard, said in zip(stream.words, spoken, strict=True):
            assert abs(heard.start - said.start) < DRIFT_S
            assert abs(heard.end - said.end) < DRIFT_S
    kept = (MINUTES - 10) * 60 * SAMPLE_RATE * 4 / 2**20
    assert kept > 8 * GROWTH_MIB, "what would be seen if a stream kept its audio"
    first, *later = held[9:]
    assert len(later) > MINUTES - 15
    for name in MODELS:
        assert max(now[name] for now in later) - first[name] < GROWTH_MIB
