"""Measures a ResNet-50: in torch, in ONNX Runtime, as a TensorRT plan, and served."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from trimodal.bench.gpu_check.networks import BUILD, network, open_torch
from trimodal.bench.gpu_check.steps import Run, Skipped, Step, require_served
from trimodal.bench.gpu_check.timing import timed
from trimodal.errors import ServerError

BATCHES = (1, 2, 4, 8, 16, 32, 64)
SMALL = (1, 4)


def batches(run: Run) -> tuple[int, ...]:
    return BATCHES if run.full else SMALL


def torch_steps(run: Run) -> Mapping[str, Any]:
    """torch in FP16, channels-last (rehearsal: FP32), with and without CUDA graphs."""
    import torch

    torch.backends.cudnn.benchmark = True
    model, side = network(run)
    dtype = torch.float16 if run.full else torch.float32
    model = model.to(device=run.device, dtype=dtype, memory_format=torch.channels_last)
    found: dict[str, Any] = {}
    with torch.inference_mode():
        for batch in batches(run):
            for graph in (False, True) if run.full else (False,):
                call = open_torch(run, batch, model, side, graph=graph)
                name = f"{'graph' if graph else 'eager'}_{batch}"
                found[name] = timed(call, items=batch, seconds=run.seconds, rounds=run.rounds)
    return found


def artefact(run: Run, name: str = "vision") -> Path:
    from trimodal.bench.gpu_check.artefacts import artefacts, provide

    return provide(artefacts(run.device, run.whisper, run.given)[name], run.engines)


def require_onnxruntime(run: Run) -> None:
    """Raises: Skipped: ONNX Runtime is built without CUDA."""
    import onnxruntime

    if run.full and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise Skipped(f"onnxruntime {onnxruntime.__version__} here is built without CUDA")


def onnxruntime_steps(run: Run) -> Mapping[str, Any]:
    """Our engine on ONNX Runtime in this process, its answers compared with the processor's first."""
    require_onnxruntime(run)
    import numpy as np

    from trimodal.bench.gpu_check import answers
    from trimodal.vision.artefact import read_classifier
    from trimodal.vision.engines.protocol import open_engine
    from trimodal.vision.settings import VisionSettings

    directory = artefact(run)
    found: dict[str, Any] = {"answers": answers.vision(directory, run.device)}
    read = read_classifier(directory)
    given = {"artefact": str(directory), "device": run.device, "warm_up_batch_sizes": batches(run)}
    engine = open_engine(read, VisionSettings.model_validate(given))
    for batch in batches(run):
        shape = (batch, 3, read.input.height, read.input.width)
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        timings = timed(
            lambda pixels=pixels: engine.classify(pixels),  # type: ignore[misc]
            items=batch,
            seconds=run.seconds,
            rounds=run.rounds,
        )
        found[f"engine_{batch}"] = timings
    return found


def options(run: Run) -> Mapping[str, Any]:
    """ONNX Runtime with each of its options for convolutions on CUDA."""
    require_onnxruntime(run)
    from rich.console import Console

    from trimodal.bench.vision.session_options import measure

    sizes = (1, 16, 64) if run.full else (1,)
    return asyncio.run(measure(artefact(run), run.device, Console(), sizes, run.rounds, run.seconds))


def tensorrt_steps(run: Run) -> Mapping[str, Any]:
    """A TensorRT plan, built here from the ONNX graph in FP16 and run in torch's memory."""
    import numpy as np

    directory = artefact(run, "vision-plan")
    sys.path.insert(0, str(BUILD))
    from steps.tensorrt.run import PlanRunner

    from trimodal.manifest import read_manifest

    manifest = read_manifest(directory, task="vision", runtime="tensorrt")
    runner = PlanRunner(directory / "model.plan")
    name, shapes = next(iter(manifest.profiles[0].items()))
    found: dict[str, Any] = {}
    for batch in batches(run):
        pixels = np.random.default_rng(0).integers(0, 256, (batch, *shapes.opt[1:]), dtype=np.uint8)
        timings = timed(
            lambda pixels=pixels: runner.run({name: pixels}),  # type: ignore[misc]
            items=batch,
            seconds=run.seconds,
            rounds=run.rounds,
        )
        found[f"plan_{batch}"] = timings
    return found


def alternating(run: Run) -> Mapping[str, Any]:
    """Pictures in turn through Triton's own TensorRT backend, at each size that has a CUDA graph.

    Each answer must be the picture's own: with two buffers to a graph set of three, the backend gave those of
    the batch two before. So five pictures take turns; of two, the batch two before is the same picture.
    """
    import numpy as np

    from trimodal.client.transports.base import Request, Timeouts
    from trimodal.client.transports.grpc import GrpcTransport
    from trimodal.server.installation import find_triton
    from trimodal.server.options import ServerOptions
    from trimodal.server.process import TritonServer

    try:
        triton = find_triton()
    except ServerError as error:
        raise Skipped(str(error)) from None
    if not (triton.root / "backends" / "tensorrt").is_dir():
        raise Skipped(f"the Triton in {triton.root} has no TensorRT backend")
    artefact(run, "vision-plan")
    colours = np.random.default_rng(0).integers(0, 256, (5, 3, 1, 1), dtype=np.uint8)
    pictures = np.broadcast_to(colours, (5, 3, 224, 224)) // 2
    pictures = pictures + np.random.default_rng(1).integers(0, 128, pictures.shape, dtype=np.uint8)

    async def ask(url: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        transport = GrpcTransport(url, Timeouts())
        async with AsyncExitStack() as stack:
            stack.push_async_callback(transport.aclose)

            async def logits(index: int, size: int) -> Any:
                pixels = np.repeat(pictures[index : index + 1], size, axis=0)
                request = Request("vision_classify", {"pixels": pixels})
                return (await transport.infer(request, Timeouts(total=60.0)))["logits"]

            for size in (1, 2, 4, 8, 16):
                # The sixth answer to the same picture is its own, whichever buffers are used.
                own = np.stack([[(await logits(index, size))[0] for _ in range(6)][-1] for index in range(5)])
                wrong = 0
                for number in range(30):
                    rows = await logits(number % 5, size)
                    nearest = np.abs(rows[:, None] - own[None]).sum(2).argmin(1)
                    wrong += bool((nearest != number % 5).any())
                found[f"wrong_of_30_at_{size}"] = wrong
        return found

    options = ServerOptions.on_free_ports(
        "vision_classify", profile="tensorrt", engines=run.engines.resolve()
    )
    with TritonServer(options) as server:
        found = asyncio.run(ask(server.grpc_url))
    if any(found.values()):
        raise ServerError(f"answers to other pictures than were sent: {found}")
    return found


def served(run: Run) -> Mapping[str, Any]:
    """Image files through Triton, beside ONNX Runtime and torch."""
    require_served(run)
    require_onnxruntime(run)
    from rich.console import Console

    from trimodal.bench.vision.bench import measure
    from trimodal.bench.vision.tables import Plan

    folder = str(artefact(run))
    changes = {"vision": {"artefact": folder, "engine": "onnxruntime", "device": run.device}}
    plan = Plan(
        concurrency=(1, 8, 32, 64) if run.full else (1, 4),
        batches=(8, 16, 32, 64) if run.full else (4,),
        rounds=run.rounds,
        seconds=run.seconds,
        bare=True,
        width=224,
        height=224,
        changes=changes,
        profile="cuda",
        torch=True,
        max_batch=64 if run.full else 4,
    )
    return asyncio.run(measure(plan, Console()))


BUILT = ("torch", "onnxruntime", "onnx", "onnxscript", "safetensors", "pydantic", "rich", "typer", "PIL")
"""What building the ONNX graph and opening it need."""

STEPS = (
    Step("torch", torch_steps, ("torch",)),
    Step("onnxruntime", onnxruntime_steps, BUILT),
    Step("tensorrt", tensorrt_steps, (*BUILT, "tensorrt"), gpu=True),
    Step("alternating", alternating, (*BUILT, "tensorrt", "tritonclient"), gpu=True),
    Step("options", options, (*BUILT, "tritonclient")),
    Step("served", served, BUILT),
)
