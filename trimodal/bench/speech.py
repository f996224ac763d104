"""`trimodal bench speech`: live streams at the pace of speech, for each policy and number of streams.

It starts its own server on free ports. Stream i says the same in every row: utterances
of a directory, joined with pauses by seed i. The offline text that rows are compared with
comes from the same recogniser on the same audio, each utterance whole in one window
(cut in the middle of the pauses around it), sent to `speech_recognize` directly: the
best that is known without streaming. `--capacity` and `--direct` are other measurements,
see speech_capacity and speech_direct; `--versus` is speech_engines.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.speech_counters import read_page, work_between
from trimodal.bench.speech_figures import LiveFigures, summarise_live
from trimodal.bench.speech_sides import Recognizer
from trimodal.bench.speech_streams import run_streams
from trimodal.bench.speech_tables import LiveTables
from trimodal.bench.speech_truth import Spoken, read_utterances, speak
from trimodal.client import Client
from trimodal.server.options import Profile, ServerOptions
from trimodal.server.process import TritonServer
from trimodal.speech.settings import PolicyName

SETTLE_S = 0.3  # metrics are carried to the page every 50 ms


@dataclass(frozen=True)
class Plan:
    """What to measure: each policy with each number of streams, `seconds` long.

    `capacity`, `direct` and `versus` (other built recognisers) are measured instead of that,
    where they are wished for: with windows of `window_s`, in `rounds` of `loop_s` seconds a
    case; `batch` is that of the last two. All of it is served from `profile`.
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


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data.

    Raises:
        OperatorError: the recordings cannot be read, a setting is wrong, or a side does not start.
    """
    from trimodal.bench import speech_capacity, speech_direct

    utterances = await asyncio.to_thread(read_utterances, plan.samples)
    spoken = [speak(utterances, plan.seconds, seed) for seed in range(max(plan.streams))]
    figures: dict[str, Any] = {"machine": platform.platform(), "plan": asdict(plan)}
    if plan.capacity:
        figures["capacity"] = await speech_capacity.measure(plan, spoken, console)
    if plan.direct:
        figures["direct"] = await speech_direct.measure(plan, spoken, console)
    if plan.versus:
        figures["versus"] = await asyncio.to_thread(_measure_versus, plan, spoken, console)
    if not (plan.capacity or plan.direct or plan.versus):
        figures["live"] = await measure_live(plan, spoken, console)
    return figures


def _measure_versus(plan: Plan, spoken: Sequence[Spoken], console: Console) -> list[dict[str, Any]]:
    """The configured engine and the others in turn, in one process."""
    from trimodal.bench import speech_engines
    from trimodal.bench.speech_direct import recognizer

    settings, directory = recognizer(plan.changes.get("speech_recognize", {}), plan.profile)
    engines = speech_engines.open_artefacts(
        [directory, *plan.versus], device=settings.device, threads=settings.threads, batch=plan.batch
    )
    try:
        found = speech_engines.compare(
            engines,
            [one.samples for one in spoken],
            windows_s=plan.window_s,
            batches=sorted({1, plan.batch}),
            rounds=plan.rounds,
        )
    finally:
        for engine in engines.values():
            engine.close()
    speech_engines.show(found, console)
    return [asdict(one) for one in found]


async def measure_live(plan: Plan, spoken: Sequence[Spoken], console: Console) -> dict[str, Any]:
    """Every policy with every number of streams, one row after the other."""
    async with AsyncExitStack() as stack:
        models = ("speech", "speech_recognize")
        server = stack.enter_context(TritonServer(options(models, plan.changes, plan.profile)))
        client = await stack.enter_async_context(Client(server.grpc_url))
        recognizer = await stack.enter_async_context(Recognizer(server.grpc_url))
        offline = [await _offline(recognizer, one) for one in spoken]
        await client.transcribe(spoken[0].samples)  # opens what a first stream opens
        tables = LiveTables(f"live streams of {plan.seconds:g} s, chunks of {plan.chunk_s * 1e3:g} ms")
        rows = {}
        for policy in plan.policies:
            for streams in plan.streams:
                row = await run_row(plan, client, server, policy, spoken[:streams], offline)
                rows[f"{policy}_{streams}"] = asdict(row)
                tables.add(policy, row)
                if row.why:
                    console.print(f"{policy}, {streams} streams: {row.why}")
    tables.print(console)
    return rows


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
    before, began = read_page(server.metrics_url), time.monotonic()
    runs = await run_streams(client, spoken, policy=policy, chunk_s=plan.chunk_s, delays=delays)
    seconds = time.monotonic() - began
    await asyncio.sleep(SETTLE_S)
    work = work_between(before, read_page(server.metrics_url))
    return summarise_live(runs, spoken, offline, work, seconds)


async def _offline(recognizer: Recognizer, spoken: Spoken) -> str:
    texts = await recognizer.texts([spoken.samples[begin:end] for begin, end in spoken.windows])
    return " ".join(texts)


def options(
    models: tuple[str, ...], changes: Mapping[str, Mapping[str, str]], profile: Profile
) -> ServerOptions:
    """A server on free ports with some parameters changed."""
    return ServerOptions(
        models=models, profile=profile, http_port=0, grpc_port=0, metrics_port=0, changes=changes
    )
