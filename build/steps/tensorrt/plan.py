"""Builds a TensorRT plan from an ONNX graph: strongly typed, with profiles.

One way for TensorRT 10 and 11: the network is strongly typed, so precision is what the graph says (FP16
tensors; Q/DQ nodes for INT8 and FP8) and none of the builder flags and calibrators that 11 dropped are
used. build/vision_tensorrt.py and build/speech_tensorrt.py say which graphs and shapes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from steps.tensorrt.messages import Messages, make_logger, run_cancellable
from steps.tensorrt.network import Profile, add_profile, made, parse

from trimodal.build_support import console, progress
from trimodal.errors import ArtefactError, ServerError
from trimodal.manifest import GpuTarget, InputRange
from trimodal.runtimes.gpu_device import visible_gpus

if TYPE_CHECKING:
    import tensorrt
    from typing_extensions import Buffer

OLDEST = 10  # major version
WARNINGS = 5  # shown of a build
DEVICE = "cuda"  # that plans are checked on; tests, whose TensorRT computes on the CPU, name another


@dataclass(frozen=True)
class PlanFigures:
    """What a manifest says of a plan."""

    tensorrt_version: str
    gpu: GpuTarget
    profiles: list[dict[str, InputRange]]
    layers: int  # of the network, before the builder fuses them
    bytes: int
    seconds: float  # of the build alone


def build_plan(graph: Path, plan: Path, profiles: Sequence[Profile]) -> PlanFigures:
    """Compiles `graph` (weights may lie beside it) for this machine's first visible GPU and writes `plan`.

    Args:
        profiles: one or more; each names every input that has a free dimension.

    Raises:
        ArtefactError: no library or GPU, a graph that TensorRT cannot read (its errors are printed whole),
            profiles that it does not take, too little memory, Ctrl-C.
    """
    version, target = tensorrt_version(), gpu_target()
    if int(version.partition(".")[0]) < OLDEST:
        raise ArtefactError(f"here is TensorRT {version}: strongly typed plans need {OLDEST} or later")
    if not graph.is_file():
        raise ArtefactError(f"no ONNX graph at {graph}")
    import tensorrt as trt

    messages = Messages()
    logger = make_logger(messages)
    builder = made("a builder", lambda: trt.Builder(logger), messages)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    # The network's weights are the parser's memory: it has to live until the build has ended.
    parser = made("an ONNX parser", lambda: trt.OnnxParser(network, logger), messages)
    parse(parser, graph)
    config = builder.create_builder_config()
    for number, profile in enumerate(profiles):
        add_profile(builder, config, profile, f"profile {number} of {graph.name}", messages)
    # Else FP32 layers may round to 10 bits of mantissa.
    config.clear_flag(trt.BuilderFlag.TF32)
    started = time.monotonic()
    with progress(f"Compiling {graph.name}"):
        serialized = _build(builder, network, config, graph, messages)
    seconds = time.monotonic() - started
    for warning in messages.distinct_warnings()[:WARNINGS]:
        console.print(
            f"TensorRT warns: {warning}", markup=False, emoji=False, highlight=False, soft_wrap=True
        )
    # A block of host memory is a buffer; the published signatures do not say so.
    plan.write_bytes(cast("Buffer", serialized))
    ranges = [dict(profile) for profile in profiles]
    return PlanFigures(version, target, ranges, network.num_layers, plan.stat().st_size, seconds)


def tensorrt_version() -> str:
    """As 10.14.1.48. Raises: ArtefactError without the library."""
    try:
        import tensorrt
    except ImportError as error:
        raise ArtefactError(
            f"TensorRT's Python package does not import ({error}): run this in the build container, "
            "or install the tensorrt wheel of the version that will serve"
        ) from None
    return str(vars(tensorrt)["__version__"])  # The bindings' published signatures lack the name.


def require_cuda() -> None:
    """Raises: ArtefactError when torch, whose memory a plan is checked in, has no CUDA here."""
    import torch

    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise ArtefactError(
            "torch has no CUDA here, so the plan cannot be checked: --no-check builds it anyway"
        )


def gpu_target() -> GpuTarget:
    """The GPU that TensorRT builds on: the first that this process sees. Raises: ArtefactError without."""
    try:
        gpus = visible_gpus()
    except ServerError as error:
        raise ArtefactError(f"a plan is built on the GPU that it will run on: {error}") from None
    if not gpus:
        raise ArtefactError("a plan is built on a GPU, and CUDA_VISIBLE_DEVICES leaves none")
    return GpuTarget(sm=gpus[0].sm, name=gpus[0].name, count=1)


def _build(
    builder: tensorrt.Builder,
    network: tensorrt.INetworkDefinition,
    config: tensorrt.IBuilderConfig,
    graph: Path,
    messages: Messages,
) -> tensorrt.IHostMemory:
    def work() -> tensorrt.IHostMemory | None:  # None on failure; the published signature does not say so.
        return builder.build_serialized_network(network, config)

    why = ""
    try:
        serialized = run_cancellable(work, config)
    except (MemoryError, RuntimeError) as error:
        serialized, why = None, f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError):
            messages.errors.append("out of memory")
    if serialized is not None:
        return serialized
    if messages.out_of_memory():
        raise ArtefactError(
            f"TensorRT ran out of memory building {graph.name} ({messages.last_errors(1)}): end what else "
            "uses the GPU, or lower the largest batch of the profiles"
        )
    raise ArtefactError(f"TensorRT built no plan from {graph.name}: {why or messages.last_errors()}")
