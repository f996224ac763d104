"""Runs the peer of the llm bench: FastAPI + transformers, on the checkpoint of the served artefact."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

from trimodal.bench.common.closed_loop import paired_ratio
from trimodal.bench.llm.sides import Round, run_wave, summarise
from trimodal.bench.load.records import Record
from trimodal.bench.peers.checkpoint import CONFIG, Checkpoint, find_checkpoint
from trimodal.bench.peers.client import Peer
from trimodal.bench.peers.process import check_libraries, running_peer
from trimodal.errors import OperatorError
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import read_manifest

Dtype = Literal["bfloat16", "float32"]


def peer_checkpoint(settings: LlmSettings, given: Path | None) -> Checkpoint:
    """Finds what the peer opens, before anything is started.

    Raises:
        OperatorError: a library that the peer needs, or the checkpoint, is not there.
    """
    check_libraries("llm")
    if settings.engine != "fake":
        directory = settings.artefact_directory
        return find_checkpoint(read_manifest(directory, task="llm", runtime=None), directory, given)
    if not given or not (given / CONFIG).is_file():
        raise OperatorError(
            "--peer fastapi: the fake engine has no checkpoint: name one, --peer-checkpoint DIR"
        )
    return Checkpoint(given.resolve(), same=False)


@asynccontextmanager
async def running_peers(checkpoint: Path, dtypes: Sequence[Dtype]) -> AsyncIterator[dict[str, Peer]]:
    """Side → its peer, a process for each dtype. Raises: ServerError: one does not start."""
    async with AsyncExitStack() as stack:
        peers = {}
        for dtype in dict.fromkeys(dtypes):
            options = {"checkpoint": str(checkpoint), "dtype": dtype}
            running = running_peer(f"peer in {dtype}", "trimodal.bench.peers.llm", options)
            peers[f"peer {dtype}"] = await stack.enter_async_context(running)
        yield peers


async def run_peer(peer: Peer, prompts: Sequence[list[int]], tokens: Sequence[int]) -> Round:
    """All prompts at once; each answer has as many tokens as `tokens` says."""
    return await run_wave(lambda number: ask_peer(peer, prompts[number], tokens[number]), len(prompts))


async def ask_peer(peer: Peer, prompt: list[int], tokens: int) -> Record:
    """One answer of exactly `tokens` tokens. Raises: ServerError: the peer does not answer."""
    sent = asyncio.get_running_loop().time()
    timing = await peer.generate(prompt, tokens)
    gaps = () if timing.ttft is None else (timing.ttft, *timing.itl)
    pieces = tuple(sent + at for at in itertools.accumulate(gaps))
    return Record(
        number=0,
        due=sent,
        sent=sent,
        pieces=pieces,
        ended=max(sent + timing.latency, *pieces[-1:]) if pieces else sent + timing.latency,
        input_tokens=len(prompt),
        output_tokens=tokens,
    )


def served_over(served: Sequence[Round], theirs: Sequence[Round]) -> dict[str, float]:
    """Ratios of ours over theirs, each the median of neighbouring rounds."""
    return {
        "tokens_per_second": paired_ratio(served, theirs, lambda one: one.tokens_per_second),
        "ttft_p50": paired_ratio(served, theirs, lambda one: summarise([one]).ttft_p50),
        "itl_p50": paired_ratio(served, theirs, lambda one: summarise([one]).itl_p50),
    }
