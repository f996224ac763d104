"""An hour of audio through one live stream, faster than real time: are words lost, does the clock drift,
does memory grow?

    python -m tests.e2e.speech.hour --policy live               the demo model, on its recordings
    python -m tests.e2e.speech.hour --policy live --fake        the serving path alone, on tones
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.e2e.conftest import options, processes
from tests.e2e.speech.streams import MODELS, POLICIES, changes, sentences
from trimodal.audio.values import SAMPLE_RATE, PolicyName, Samples, Word
from trimodal.audio.word_errors import normalise, word_error_rate
from trimodal.bench.common.samples import read_utterances
from trimodal.bench.common.samples import speak as say_recordings
from trimodal.client import Client, Timeouts
from trimodal.server.process import TritonServer

RECORDINGS = Path(__file__).parents[3] / "build" / "demo" / "speech" / "samples"
CHUNK_S = 10
# Blocks are multiples of it, 4 s: frames of the detector (512 samples) and steps (0.5 s) then fall alike
# in the hour and in a block that is a stream of its own.
GRID = 64_000
Block = tuple[Samples, list[Word]]  # audio, and its words on the block's own clock


@dataclass
class Hour:
    """What was said and heard, and the memory in MiB of each process after each minute of audio."""

    said: list[Word] = field(default_factory=list)
    heard: list[Word] = field(default_factory=list)
    memory: list[dict[str, float]] = field(default_factory=list)
    audio_s: float = 0.0
    wall_s: float = 0.0

    def offsets(self, count: int) -> tuple[list[float], list[float]]:
        """Heard minus true start, in seconds, of the first and the last `count` words that are the same."""
        said = [normalise(word.text) for word in self.said]
        heard = [normalise(word.text) for word in self.heard]
        found = []
        for part in (slice(None, 4 * count), slice(-4 * count, None)):
            true, told = self.said[part], self.heard[part]
            match = difflib.SequenceMatcher(None, said[part], heard[part], autojunk=False)
            pairs = [
                told[block.b + n].start - true[block.a + n].start
                for block in match.get_matching_blocks()
                for n in range(block.size)
            ]
            found.append(pairs[:count] if part.start is None else pairs[-count:])
        return found[0], found[1]

    @property
    def drift_s(self) -> float:
        """By how much the median offset of the last 200 words differs from that of the first 200."""
        first, last = self.offsets(200)
        return float(np.median(last) - np.median(first))

    def growth(self, since: int) -> dict[str, float]:
        """Process → MiB by which it ever was larger, after minute `since`, than at that minute."""
        first, *later = self.memory[since:]
        return {name: max(now[name] for now in later) - mib for name, mib in first.items()}


def tones(minutes: float) -> Iterator[Block]:
    """Blocks of some 40 s of random words for the fake recogniser, none like the other."""
    seed, at = 0, 0.0
    while at < minutes * 60:
        block = sentences(seed, 60)
        seed, at = seed + 1, at + len(block[0]) / SAMPLE_RATE
        yield block


def recordings(minutes: float) -> Iterator[Block]:
    """The demo's clean recordings with pauses, in another order each time: blocks of a minute."""
    utterances = [one for one in read_utterances(RECORDINGS) if len(one.samples) < 20 * SAMPLE_RATE]
    seed, at = 0, 0.0
    while at < minutes * 60:
        spoken = say_recordings(utterances, 60.0, seed)
        samples = np.pad(spoken.samples, (0, -len(spoken.samples) % GRID))
        seed, at = seed + 1, at + len(samples) / SAMPLE_RATE
        yield samples, list(spoken.words)


def memory(server: TritonServer) -> dict[str, float]:
    """Resident MiB of tritonserver and of each model's stub."""
    found = {}
    for pid, line, _ in processes():
        stub = re.search(r"python_backend_stub \S*/(\w+)/\d+/model\.py", line)
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == server.pid and (stub or pid == server.pid):
                # Shared memory is counted once, as tritonserver's.
                pages = Path(f"/proc/{pid}/statm").read_text().split()
                own = int(pages[1]) - (int(pages[2]) if stub else 0)
                found[stub[1] if stub else "tritonserver"] = own * os.sysconf("SC_PAGE_SIZE") / 2**20
    return found


async def alone(server: TritonServer, blocks: Iterator[Block], policy: PolicyName) -> list[Word]:
    """The words of all blocks, each of them a stream of its own: what no border of the hour can spoil."""
    found: list[Word] = []
    async with Client(server.grpc_url, timeouts=Timeouts(total=120.0)) as client:
        for samples, _ in blocks:
            found += (await client.transcribe(samples, policy=policy)).words
    return found


async def listen(server: TritonServer, blocks: Iterator[Block], policy: PolicyName) -> Hour:
    """Sends all blocks through one stream as fast as it is answered."""
    hour, minute, began = Hour(), 1, time.monotonic()
    async with (
        Client(server.grpc_url, timeouts=Timeouts(total=120.0)) as client,
        client.listen(policy=policy) as stream,
    ):
        for samples, words in blocks:
            hour.said += [word.shifted(hour.audio_s) for word in words]
            for at in range(0, len(samples), CHUNK_S * SAMPLE_RATE):
                await stream.send(samples[at : at + CHUNK_S * SAMPLE_RATE])
            hour.audio_s += len(samples) / SAMPLE_RATE
            if hour.audio_s >= 60 * minute:
                hour.memory.append(memory(server))
                minute += 1
        await stream.end()
        hour.heard = list(stream.words)
    hour.wall_s = time.monotonic() - began
    return hour


def texts(words: Sequence[Word]) -> str:
    return " ".join(normalise(word.text) for word in words)


def report(hour: Hour) -> str:
    """The figures as text."""
    said, heard = texts(hour.said), texts(hour.heard)
    first, last = (np.median(part) * 1000 for part in hour.offsets(200))
    speed = hour.audio_s / hour.wall_s
    lines = [
        f"audio {hour.audio_s / 60:.1f} min in {hour.wall_s:.0f} s ({speed:.1f} × real time)",
        f"words: {len(hour.said)} said, {len(hour.heard)} committed, "
        f"WER {word_error_rate([said], [heard]):.2%}",
        f"starts of words, heard minus said, median: first 200 {first:+.1f} ms, last 200 {last:+.1f} ms; "
        f"drift {hour.drift_s * 1000:+.1f} ms",
        "resident MiB:  minute " + "  ".join(hour.memory[0]),
    ]
    marks = sorted({0, 1, 4, *range(9, len(hour.memory), 10), len(hour.memory) - 1})
    for mark in marks:
        lines.append(
            f"{mark + 1:21d} " + "  ".join(f"{mib:{len(n)}.1f}" for n, mib in hour.memory[mark].items())
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", choices=POLICIES, default="live")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--fake", action="store_true", help="tones and the fake recogniser")
    arguments = parser.parse_args()
    blocks = tones if arguments.fake else recordings
    with TritonServer(options(MODELS, changes() if arguments.fake else {})) as server:
        hour = asyncio.run(listen(server, blocks(arguments.minutes), arguments.policy))
        print(report(hour))
        apart = asyncio.run(alone(server, blocks(arguments.minutes), arguments.policy))
        rate = word_error_rate([texts(apart)], [texts(hour.heard)])
        print(f"the same blocks as streams of their own: {len(apart)} words; the hour differs in {rate:.2%}")


if __name__ == "__main__":
    main()
