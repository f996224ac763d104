"""Defines the plan of a speech bench, and measures one row of its table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trimodal.audio.values import PolicyName
from trimodal.bench.common.serving import metrics_page
from trimodal.bench.speech.figures import LiveFigures, parse_page, summarise_live, work_between
from trimodal.bench.speech.streams import run_streams
from trimodal.bench.speech.utterances import Spoken
from trimodal.client import Client
from trimodal.server.options import Profile
from trimodal.server.process import TritonServer

MODELS = ("speech", "speech_recognize")
SETTLE_S = 0.3  # metrics are carried to the page every 50 ms


@dataclass(frozen=True)
class Plan:
    """What to measure: each policy with each number of streams, `seconds` long.

    If `capacity`, `direct` or `versus` (other built recognisers) is set, only those parts run. `window_s`,
    `rounds` and `loop_s` (seconds a case) apply to them, `batch` to `direct` and `versus`.
    """

    streams: tuple[int, ...] = (1, 2, 4, 8)
    policies: tuple[PolicyName, ...] = ("live", "agreement", "vad", "window")
    seconds: float = 30.0
    chunk_s: float = 0.1
    samples: Path = Path("build/demo/speech/samples")
    capacity: bool = False
    direct: bool = False
    versus: tuple[Path, ...] = ()
    window_s: tuple[float, ...] = (5.0, 30.0)
    batch: int = 8
    rounds: int = 3
    loop_s: float = 4.0
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    profile: Profile = "cpu"


async def run_row(
    plan: Plan,
    client: Client,
    server: TritonServer,
    policy: PolicyName | None,
    spoken: Sequence[Spoken],
    offline: Sequence[str] | None,
    delays: Sequence[float] | None = None,
) -> LiveFigures:
    """All of `spoken` as live streams, begun together or after `delays`; the figures."""
    before, began = parse_page(metrics_page(server.metrics_url)), time.monotonic()
    runs = await run_streams(client, spoken, policy=policy, chunk_s=plan.chunk_s, delays=delays)
    seconds = time.monotonic() - began
    await asyncio.sleep(SETTLE_S)
    work = work_between(before, parse_page(metrics_page(server.metrics_url)))
    return summarise_live(runs, spoken, offline, work, seconds)
