"""`trimodal bench vision`: measures images a second and latency of vision, its bare engine and torch.

It starts its own server on free ports from this repository. Every round measures all cases of
both sides one after the other, so that each ratio is of neighbours in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import BareProcess, run_clients, some
from trimodal.bench.common.serving import Statistics, bench_options, between, serving
from trimodal.bench.peers.checkpoint import Checkpoint, find_checkpoint
from trimodal.bench.peers.client import Peer
from trimodal.bench.peers.process import check_libraries, running_peer
from trimodal.bench.vision.sides import (
    classifier_directory,
    jpegs,
    larger_batches,
    open_bare,
    random_pixels,
    vision_settings,
)
from trimodal.bench.vision.tables import Measured, Plan, report
from trimodal.bench.vision.torch_baseline import open_torch
from trimodal.client import Client
from trimodal.client.transports.base import Request, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import SettingsError
from trimodal.repository import select_models
from trimodal.vision.artefact import read_classifier
from trimodal.vision.engines.protocol import Pixels
from trimodal.vision.settings import VisionSettings

CLASSIFIER = "vision_classify"  # of the pipeline
RANDOM = "none"  # `source_sha256` of an artefact with random weights: there is no checkpoint


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data."""
    files = jpegs(plan.width, plan.height)
    edit = partial(larger_batches, plan.max_batch) if plan.max_batch else None
    measured = Measured()
    if plan.peer:
        check_libraries("vision")
    async with AsyncExitStack() as stack:
        options = stack.enter_context(bench_options(("vision",), plan.profile, plan.changes, edit))
        models = select_models(options.repository, options.models, plan.profile)
        vision = models["vision"]
        measured_models = vision.steps or (vision.name,)
        settings, directory = vision_settings(models), classifier_directory(models)
        _check_sides(plan, settings)
        checkpoint = peer_checkpoint(directory, plan.peer_checkpoint) if plan.peer else None
        ready = random_pixels(directory) if plan.pixels or plan.torch else None
        bare: dict[str, BareProcess] = {}
        if settings:
            bare = _open_bare(plan, stack, settings, vision.version_directory, files, ready)
        server, client = await stack.enter_async_context(serving(options))
        classifier = GrpcTransport(server.grpc_url, Timeouts())
        stack.push_async_callback(classifier.aclose)
        statistics = stack.enter_context(closing(Statistics(server.grpc_url, measured_models)))
        peer = None
        if plan.peer:
            peer = await stack.enter_async_context(_running_peer(directory, checkpoint))
            if checkpoint and not checkpoint.same:
                console.print(
                    f"the artefact was not built from the peer's checkpoint, {checkpoint.directory}"
                )
        for index in range(plan.rounds + 1):
            # Round 0 warms all sides up and is not counted.
            seconds = plan.seconds if index else min(1.0, plan.seconds)
            for clients, batch in plan.cases:
                loop = partial(run_clients, clients=clients, items=batch, seconds=seconds)
                before = statistics.read()
                one = await loop(partial(_classify, client, files, batch))
                if index:
                    measured.served[clients, batch].append(one)
                    measured.steps[clients, batch] = between(before, statistics.read(), batch)
                if plan.pixels and ready is not None:
                    one = await loop(partial(_infer, classifier, ready, batch))
                    if index:
                        measured.pixels[clients, batch].append(one)
                if peer and batch == 1:
                    one = await loop(partial(_ask_peer, peer, files))
                    if index:
                        measured.peer[clients, batch].append(one)
            for size in plan.sizes:
                for kind, process in bare.items():
                    one = await process.run(kind, batch=size, seconds=seconds)
                    if index:
                        measured.bare[kind, size].append(one)
    engine = settings.engine if settings else models[CLASSIFIER].engine
    title = f"{engine} {directory.name}, JPEG {plan.width}x{plan.height}"
    figures = report(plan, measured, title, console)
    if plan.peer:
        # None: the artefact has random weights, and so has the peer, others.
        figures["peer_checkpoint"] = str(checkpoint.directory) if checkpoint else None
    return figures


def _classify(client: Client, files: Sequence[bytes], batch: int, number: int) -> Awaitable[object]:
    return client.classify(some(files, number, batch), timeout=60.0)


def _ask_peer(peer: Peer, files: Sequence[bytes], number: int) -> Awaitable[object]:
    return peer.post("/classify", files[number % len(files)])


def _infer(classifier: GrpcTransport, pixels: Pixels, batch: int, number: int) -> Awaitable[object]:
    """Asks the pipeline's classifier alone: pixels that lie ready in, logits out; nothing is decoded."""
    rows = some(range(len(pixels)), number, batch)
    return classifier.infer(Request(CLASSIFIER, {"pixels": pixels[rows]}), Timeouts(total=60.0))


def peer_checkpoint(directory: Path, given: Path | None) -> Checkpoint | None:
    """Finds the weights for the peer; None: the classifier in `directory` was built from random ones.

    Raises:
        OperatorError: they are not on this machine.
    """
    manifest = read_classifier(directory).manifest
    if manifest.source_sha256 == RANDOM and not given:
        return None
    return find_checkpoint(manifest, directory, given)


def _running_peer(directory: Path, checkpoint: Checkpoint | None) -> AbstractAsyncContextManager[Peer]:
    weights = str(checkpoint.directory) if checkpoint else None
    options = {"artefact": str(directory), "checkpoint": weights}
    return running_peer("peer", "trimodal.bench.peers.vision", options)


def _check_sides(plan: Plan, settings: VisionSettings | None) -> None:
    """Raises: SettingsError: a side that the profile's vision has not."""
    if settings is None and (plan.bare or plan.torch):
        raise SettingsError(
            f"profile {plan.profile}: only Triton runs this classifier, so nothing is there to compare with: "
            "leave --bare and --torch out"
        )
    if settings is not None and plan.pixels:
        raise SettingsError(
            f"profile {plan.profile}: vision is one model, which takes image files alone: leave --pixels out"
        )


def _open_bare(
    plan: Plan,
    stack: AsyncExitStack,
    settings: VisionSettings,
    version: Path,
    files: Sequence[bytes],
    pixels: Pixels | None,
) -> dict[str, BareProcess]:
    """Kind of work → the process that does it; it opens what it needs when it is first asked."""
    bare: dict[str, BareProcess] = {}
    if plan.bare:
        process = stack.enter_context(BareProcess(open_bare, version, settings, files))
        bare |= {"engine": process, "pipeline": process}
    if plan.torch:
        directory = (version / settings.artefact).resolve()
        opening = open_torch, directory, settings.device, settings.threads, pixels
        bare["torch"] = stack.enter_context(BareProcess(*opening))
    return bare
