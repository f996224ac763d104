"""`trimodal bench speech`: measures live streams at the pace of speech, by policy and number of streams.

It starts its own server on free ports. Stream i says the same in every row: utterances
of a directory, joined with pauses by seed i. The offline text that rows are compared with
comes from the same recogniser on the same audio, each utterance whole in one window
(cut in the middle of the pauses around it), sent to `speech_recognize` directly: the
best that is known without streaming. `--capacity`, `--direct` with `--peer`, and `--versus` are other
measurements, in capacity.py, direct.py and engines.py.
"""

from __future__ import annotations

import asyncio
import itertools
import platform
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

from rich.console import Console

from trimodal.bench.common.serving import serving
from trimodal.bench.speech import capacity, direct, engines
from trimodal.bench.speech.figures import MODELS, Plan, print_live, run_row
from trimodal.bench.speech.sides import Recogniser
from trimodal.bench.speech.utterances import Spoken, read_utterances, speak
from trimodal.server.options import ServerOptions


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data.

    Raises:
        OperatorError: the recordings cannot be read, a setting is wrong, or a side does not start.
    """
    utterances = await asyncio.to_thread(read_utterances, plan.samples)
    spoken = [speak(utterances, plan.seconds, seed) for seed in range(max(plan.streams))]
    figures: dict[str, Any] = {"machine": platform.platform(), "plan": asdict(plan)}
    if plan.capacity:
        figures["capacity"] = await capacity.measure(plan, spoken, console)
    if plan.direct or plan.peer:
        figures["direct"] = await direct.measure(plan, spoken, console)
    if plan.versus:
        figures["versus"] = await asyncio.to_thread(_measure_versus, plan, spoken, console)
    if not (plan.capacity or plan.direct or plan.versus or plan.peer):
        figures["live"] = await measure_live(plan, spoken, console)
    return figures


def _measure_versus(plan: Plan, spoken: Sequence[Spoken], console: Console) -> list[dict[str, Any]]:
    """Measures the configured engine and the others in turn, in one process."""
    settings, directory = direct.served_recogniser(plan.changes.get("speech_recognize", {}), plan.profile)
    opened = engines.open_artefacts(
        [directory, *plan.versus], device=settings.device, threads=settings.threads, batch=plan.batch
    )
    try:
        audio, batches = [one.samples for one in spoken], sorted({1, plan.batch})
        found = engines.compare(opened, audio, windows_s=plan.window_s, batches=batches, rounds=plan.rounds)
    finally:
        for engine in opened.values():
            engine.close()
    engines.show(found, console)
    return [asdict(one) for one in found]


async def measure_live(plan: Plan, spoken: Sequence[Spoken], console: Console) -> dict[str, Any]:
    """Every policy with every number of streams, one row after the other."""
    async with AsyncExitStack() as stack:
        options = ServerOptions.on_free_ports(*MODELS, changes=plan.changes, profile=plan.profile)
        server, client = await stack.enter_async_context(serving(options))
        recogniser = await stack.enter_async_context(Recogniser(server.grpc_url))
        windows = [[one.samples[begin:end] for begin, end in one.windows] for one in spoken]
        offline = [" ".join(await recogniser.texts(one)) for one in windows]
        await client.transcribe(spoken[0].samples)  # opens what a first stream opens
        rows = []
        for policy, streams in itertools.product(plan.policies, plan.streams):
            row = await run_row(plan, client, server, policy, spoken[:streams], offline)
            rows.append((policy, row))
            if row.why:
                console.print(f"{policy}, {streams} streams: {row.why}")
    print_live(f"live streams of {plan.seconds:g} s, chunks of {plan.chunk_s * 1e3:g} ms", rows, console)
    return {f"{policy}_{row.streams}": asdict(row) for policy, row in rows}
