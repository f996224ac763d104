"""`trimodal bench speech --capacity`: measures how many streams one recogniser carries, batched and not.

Two servers, which take turns: one batches windows as configured, the other has
max_batch_windows = 1. S clients that each send the next window when the last is answered
are S streams that are behind: the rate they get is the most that S streams can have.
Real-time factor: seconds of the recogniser for the audio that S streams speak in a
second; above 1 they are not kept up with. Then live streams join one after the other on
a third server until it refuses them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from statistics import mean, median
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import LoopRound, median_rate, rate_ratio, some
from trimodal.bench.common.serving import serving
from trimodal.bench.speech.figures import MODELS, Plan, print_live, run_row
from trimodal.bench.speech.sides import Recogniser, cut_windows
from trimodal.bench.speech.utterances import Spoken
from trimodal.client.transports.base import Timeouts
from trimodal.report.console import make_table
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer

# What is heard is not judged here, the weights may be random: each window costs one run.
ONE_RUN = {"fallback_temperature": "0"}
WINDOWS = 16
Case = tuple[float, int, str]  # length of windows, streams, side
JOINING_STREAMS, JOINING_EVERY_S = 16, 2.0
# A stream is silent between END and its last words: here that lasts as long as all are behind.
PATIENCE = Timeouts(silence=300.0)


async def measure(plan: Plan, spoken: Sequence[Spoken], console: Console) -> dict[str, Any]:
    """Closed loops on windows of each length, then streams that join; prints tables, gives the figures."""
    rounds: dict[Case, list[LoopRound]] = defaultdict(list)
    formed: dict[Case, float] = {}
    last: dict[Case, LoopRound] = {}
    async with AsyncExitStack() as stack:
        sides = {}
        for name, more in (("batched", {}), ("unbatched", {"max_batch_windows": "1"})):
            server = stack.enter_context(TritonServer(_options(plan, "speech_recognize", **more)))
            sides[name] = await stack.enter_async_context(Recogniser(server.grpc_url))
        for length in plan.window_s:
            windows = cut_windows([one.samples for one in spoken], length, WINDOWS)
            for index, streams in itertools.product(range(plan.rounds + 1), plan.streams):
                for name, side in sides.items():
                    case = length, streams, name
                    one, batches = await side.loop(
                        windows, clients=streams, seconds=plan.loop_s, before=last.get(case)
                    )
                    last[case], formed[case] = one, mean(batches)
                    if index:  # round 0 warms up
                        rounds[case].append(one)
    figures = report(plan, rounds, formed, console)
    figures["joining"] = await _joining(plan, spoken, console)
    return figures


def report(
    plan: Plan,
    rounds: Mapping[Case, list[LoopRound]],
    formed: Mapping[Case, float],
    console: Console,
) -> dict[str, Any]:
    """Prints the table of the closed loops, and how many streams the best rate would carry."""
    figures: dict[str, Any] = {}
    title = "capacity: real-time factor of S streams, all of them behind"
    table = make_table(title, "window|streams|batched|mean batch|unbatched|ratio|p50 batched")
    for length in plan.window_s:
        carried = {}
        for streams in plan.streams:
            both = {name: rounds[length, streams, name] for name in ("batched", "unbatched")}
            factors = {
                name: streams / (length * median_rate(all_rounds)) for name, all_rounds in both.items()
            }
            ratio = rate_ratio(both["batched"], both["unbatched"])
            latency = median(one.p50 for one in both["batched"])
            batch = formed[length, streams, "batched"]
            figures[f"{length:g}s_{streams}"] = {**factors, "ratio": ratio, "p50": latency, "batch": batch}
            carried[streams] = {name: streams / factor for name, factor in factors.items()}
            shown = f"{factors['batched']:.3f}", f"{batch:.1f}", f"{factors['unbatched']:.3f}"
            table.add_row(f"{length:g} s", str(streams), *shown, f"{ratio:.2f}", f"{latency:.2f} s")
        figures[f"{length:g}s_carried"] = carried[max(carried)]
    console.print(table)
    console.print("ratio: windows a second, batched over unbatched, median of neighbouring rounds")
    for length in plan.window_s:
        most = figures[f"{length:g}s_carried"]
        console.print(
            f"windows of {length:g} s end to end: at the rate of {max(plan.streams)} streams, "
            f"{most['batched']:.1f} streams are kept up with, unbatched {most['unbatched']:.1f}"
        )
    return figures


async def _joining(plan: Plan, spoken: Sequence[Spoken], console: Console) -> dict[str, Any]:
    """Streams that join every few seconds, more than can be carried: who is refused, and what lag is left."""
    many = some(spoken, 0, JOINING_STREAMS)
    policy = plan.policies[0]
    delays = [index * JOINING_EVERY_S for index in range(len(many))]
    async with serving(_options(plan, *MODELS), timeouts=PATIENCE) as (server, client):
        row = await run_row(plan, client, server, policy, many, None, delays)
    title = f"{len(many)} streams of {plan.seconds:g} s, a new one every {JOINING_EVERY_S:g} s"
    print_live(title, [(policy, row)], console)
    if row.why:
        console.print(f"the first that was not taken, or ended early: {row.why}")
    return asdict(row)


def _options(plan: Plan, *models: str, **more: str) -> ServerOptions:
    recognise = {**plan.changes.get("speech_recognize", {}), **ONE_RUN, **more}
    changes = {**plan.changes, "speech_recognize": recognise}
    return ServerOptions.on_free_ports(*models, changes=changes, profile=plan.profile)
