"""`trimodal bench speech --direct` and `--peer`: compares the served recogniser with others.

Those are its bare engine and faster-whisper, each in one process (`--direct`), and the peer: FastAPI with one
call of faster-whisper's `transcribe` a request, on the same model.

All sides stay loaded, each in processes of its own, and take turns; windows, context,
beam, threads and word times are the same. faster-whisper runs on artefacts of CTranslate2
alone; those of other runtimes have no such side. Served, twice as many clients as windows in a
batch send single windows: while one batch is recognised the next gathers. As many ask the peer.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.common.closed_loop import (
    BareProcess,
    LoopRound,
    added_ms,
    rate_ratio,
    run_clients,
    summarise_loops,
)
from trimodal.bench.common.serving import built, settings_of
from trimodal.bench.peers.client import Peer
from trimodal.bench.peers.process import check_libraries, running_peer
from trimodal.bench.speech.figures import Plan
from trimodal.bench.speech.sides import (
    Recogniser,
    cut_windows,
    long_enough,
    name,
    open_bare,
    open_faster_whisper,
)
from trimodal.bench.speech.utterances import Spoken
from trimodal.errors import OperatorError
from trimodal.paths import default_repository
from trimodal.report.console import NARROW, make_table
from trimodal.repository import select_models
from trimodal.server.options import Profile, ServerOptions
from trimodal.server.process import TritonServer
from trimodal.speech.settings import RecogniseSettings

WINDOWS = 32

# Length of windows, windows of a batch, side → its rounds.
Rounds = Mapping[tuple[float, int, str], list[LoopRound]]


async def measure(plan: Plan, spoken: Sequence[Spoken], console: Console) -> dict[str, Any]:
    """Runs all sides in turn, prints the table, gives the figures."""
    # Not one side decodes a doubted window again.
    equal = {"max_batch_windows": str(plan.batch), "fallback_temperature": "0"}
    changes = {**equal, **plan.changes.get("speech_recognize", {})}
    settings, directory = served_recogniser(changes, plan.profile)
    model = peer_model(plan, settings, directory) if plan.peer else None
    recordings = [one.samples for one in spoken]
    audio = {length: cut_windows(recordings, length, WINDOWS) for length in plan.window_s}
    contexts = {length: context(directory, settings.engine, length) for length in audio}
    rounds: dict[tuple[float, int, str], list[LoopRound]] = defaultdict(list)
    formed: dict[tuple[float, int], float] = {}
    last: dict[tuple[float, int, str], LoopRound] = {}
    async with AsyncExitStack() as stack:
        options = ServerOptions.on_free_ports(
            "speech_recognize",
            changes={"speech_recognize": changes},
            profile=plan.profile,
            edit=lambda model, config: setattr(config, "max_batch_size", plan.batch),
        )
        url = stack.enter_context(TritonServer(options)).grpc_url
        served = await stack.enter_async_context(Recogniser(url))
        # Side → the process that does it, and what follows the window's length in the work's name.
        others: dict[str, tuple[BareProcess, str]] = {}
        if plan.direct:
            bare = stack.enter_context(BareProcess(open_bare, directory, settings, audio))
            others["bare engine"] = bare, ""
        if plan.direct and settings.engine == "ctranslate2":
            theirs = BareProcess(open_faster_whisper, directory, settings, audio, contexts)
            whisper = stack.enter_context(theirs)
            others |= {f"faster-whisper {kind}": (whisper, f" {kind}") for kind in ("forward", "public")}
        peer = None
        if model:
            what = {"directory": str(model), "device": settings.device, "beam_size": settings.beam_size}
            running = running_peer("peer", "trimodal.bench.peers.speech", what)
            peer = await stack.enter_async_context(running)
        for index in range(plan.rounds + 1):
            for length, batch in itertools.product(audio, sorted({1, plan.batch})):
                clients = clients_of(batch)
                ours, batches = await served.loop(
                    audio[length],
                    clients=clients,
                    seconds=plan.loop_s,
                    before=last.get((length, batch, "served")),
                )
                formed[length, batch] = mean(batches)
                found = {"served": ours}
                for side, (process, kind) in others.items():
                    found[side] = await process.run(f"{name(length)}{kind}", batch=batch, seconds=plan.loop_s)
                if peer:
                    found["peer"] = await loop_peer(
                        peer, audio[length], clients, plan.loop_s, last.get((length, batch, "peer"))
                    )
                for side, one in found.items():
                    last[length, batch, side] = one
                    if index:  # round 0 warms up
                        rounds[length, batch, side].append(one)
    return report(plan, rounds, formed, contexts, f"{settings.engine} {directory.name}", console)


def peer_model(plan: Plan, settings: RecogniseSettings, directory: Path) -> Path:
    """Returns the model that the peer opens. Raises: OperatorError: it has none, or lacks a library."""
    from trimodal.manifest import read_manifest

    check_libraries("speech")
    if settings.engine != "ctranslate2" and not plan.peer_checkpoint:
        raise OperatorError(
            f"--peer fastapi: faster-whisper opens CTranslate2 models, {directory} is for {settings.engine}: "
            "name one with --peer-checkpoint DIR"
        )
    found = (plan.peer_checkpoint or directory).resolve()
    read_manifest(found, task="speech", runtime="ctranslate2")
    return found


def clients_of(batch: int) -> int:
    """How many send single windows, so that batches of this size can form."""
    return 1 if batch == 1 else 2 * batch


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


async def loop_peer(
    peer: Peer, windows: Sequence[Samples], clients: int, seconds: float, before: LoopRound | None
) -> LoopRound:
    """As Recogniser.loop, of the peer."""

    async def ask(number: int) -> None:
        await peer.post("/transcribe", windows[number % len(windows)].tobytes())

    seconds = long_enough(seconds, before)
    return await run_clients(ask, clients=clients, items=1, seconds=seconds)


def report(
    plan: Plan,
    rounds: Rounds,
    formed: Mapping[tuple[float, int], float],
    contexts: Mapping[float, float],
    title: str,
    console: Console,
) -> dict[str, Any]:
    """Prints the table; `ratio` is the served side's windows a second over the other side's."""
    figures: dict[str, Any] = {}
    columns = "window|context|batch|side|win/s|RTF|p50 ms|ratio"
    table = make_table(f"recogniser: {title}", columns, **NARROW)
    sides = list(dict.fromkeys(side for _, _, side in rounds))
    for length, batch in formed:
        batches = {side: str(batch) for side in sides}
        batches |= {"served": f"{formed[length, batch]:.1f}", "peer": _clients(clients_of(batch))}
        for side in sides:
            some = rounds[length, batch, side]
            summary = summarise_loops(some)
            ratio = rate_ratio(rounds[length, batch, "served"], some)
            figures[f"{length:g}s_{batch}_{side}"] = {**asdict(summary), "ratio": ratio}
            table.add_row(
                name(length),
                "30 s" if side == "peer" or side.endswith("public") else name(contexts[length]),
                batches[side],
                side,
                f"{summary.rate:.2f}",
                f"{1 / (summary.rate * length):.4f}",
                f"{summary.p50:.0f}",
                "" if side == "served" else f"{ratio:.3f}",
            )
        if batch == 1:
            served = rounds[length, 1, "served"]
            added = {side: added_ms(served, rounds[length, 1, side]) for side in sides[1:]}
            figures[f"{length:g}s_added_ms"] = added
    console.print(table)
    if "peer" in sides:
        console.print("peer: FastAPI, and one call of faster-whisper's transcribe a request, padded to 30 s")
    console.print(
        "batch: served, the mean that was formed; RTF: seconds a second of audio\n"
        "ratio: windows a second, served over that side's, median of neighbouring rounds"
    )
    for length in plan.window_s:
        told = ", ".join(f"{side}: {ms:+.1f} ms" for side, ms in figures[f"{length:g}s_added_ms"].items())
        console.print(f"one window of {length:g} s, p50 served less p50 of {told}")
    return figures


def served_recogniser(changes: Mapping[str, str], profile: Profile = "cpu") -> tuple[RecogniseSettings, Path]:
    """Returns the settings that the served recogniser will have, and its artefact's directory."""
    repository = default_repository().resolve()
    model = select_models(repository, ("speech_recognize",), profile)["speech_recognize"]
    settings = settings_of(RecogniseSettings, model, changes)
    return settings, built(model, settings.artefact)


def context(directory: Path, runtime: str, seconds: float) -> float:
    """Returns the encoder length in seconds that our engine takes for a window.

    Raises:
        ArtefactError: the artefact is not one of that runtime.
    """
    from trimodal.manifest import read_manifest
    from trimodal.speech.whisper.artefact import read_shapes
    from trimodal.speech.whisper.features import smallest_context

    manifest = read_manifest(directory, task="speech", runtime=runtime)
    return smallest_context(read_shapes(directory, manifest).contexts_s, round(seconds * SAMPLE_RATE))
