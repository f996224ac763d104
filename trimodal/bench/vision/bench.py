"""`trimodal bench vision`: measures images a second and latency of the ensemble, its bare engine and torch.

It starts its own server on free ports from this repository. Every round measures all cases of
both sides one after the other, so that each ratio is of neighbours in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import BareProcess, run_clients, some
from trimodal.bench.common.serving import Statistics, bench_options, between, serving
from trimodal.bench.vision.sides import STEPS, jpegs, larger_batches, open_bare, random_pixels, step_settings
from trimodal.bench.vision.tables import Measured, Plan, report
from trimodal.bench.vision.torch_baseline import open_torch
from trimodal.client import Client
from trimodal.client.transports.base import Request, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import SettingsError
from trimodal.repository import select_models
from trimodal.settings import Settings
from trimodal.vision.engines.protocol import Pixels
from trimodal.vision.settings import ClassifySettings


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data."""
    files = jpegs(plan.width, plan.height)
    edit = partial(larger_batches, plan.max_batch) if plan.max_batch else None
    measured = Measured()
    async with AsyncExitStack() as stack:
        options = stack.enter_context(bench_options(("vision",), plan.profile, plan.changes, edit))
        models = select_models(options.repository, options.models, plan.profile)
        settings = step_settings(models)
        preprocess = models["vision_preprocess"]
        directory = (preprocess.version_directory / preprocess.parameters["classifier"]).resolve()
        ready = random_pixels(directory) if plan.pixels or plan.torch else None
        bare = _open_bare(plan, stack, options.repository, settings, files, ready)
        server, client = await stack.enter_async_context(serving(options))
        classifier = GrpcTransport(server.grpc_url, Timeouts())
        stack.push_async_callback(classifier.aclose)
        statistics = stack.enter_context(closing(Statistics(server.grpc_url, list(STEPS))))
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
            for size in plan.sizes:
                for kind, process in bare.items():
                    one = await process.run(kind, batch=size, seconds=seconds)
                    if index:
                        measured.bare[kind, size].append(one)
    model = models["vision_classify"]
    title = f"{model.engine} {model.artefact.rpartition('/')[2]}, JPEG {plan.width}x{plan.height}"
    return report(plan, measured, title, console)


def _classify(client: Client, files: Sequence[bytes], batch: int, number: int) -> Awaitable[object]:
    return client.classify(some(files, number, batch), timeout=60.0)


def _infer(classifier: GrpcTransport, pixels: Pixels, batch: int, number: int) -> Awaitable[object]:
    """Asks `vision_classify` alone: pixels that lie ready in, logits out; nothing is decoded."""
    rows = some(range(len(pixels)), number, batch)
    return classifier.infer(Request("vision_classify", {"pixels": pixels[rows]}), Timeouts(total=60.0))


def _open_bare(
    plan: Plan,
    stack: AsyncExitStack,
    repository: Path,
    settings: Mapping[str, Settings],
    files: Sequence[bytes],
    pixels: Pixels | None,
) -> dict[str, BareProcess]:
    """Kind of work → the process that does it; it opens what it needs when it is first asked."""
    bare: dict[str, BareProcess] = {}
    classify = settings.get("vision_classify")
    if (plan.bare or plan.torch) and not isinstance(classify, ClassifySettings):
        raise SettingsError(
            f"profile {plan.profile}: only Triton runs this classifier, so nothing is there to compare with: "
            "leave --bare and --torch out"
        )
    if plan.bare:
        process = stack.enter_context(BareProcess(open_bare, repository, settings, files))
        bare |= {"engine": process, "pipeline": process}
    if plan.torch and isinstance(classify, ClassifySettings):
        directory = (repository / "vision_classify" / "1" / classify.artefact).resolve()
        opening = open_torch, directory, classify.device, classify.threads, pixels
        bare["torch"] = stack.enter_context(BareProcess(*opening))
    return bare
