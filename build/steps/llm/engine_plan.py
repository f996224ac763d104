"""Checks what an LLM engine is to be, and whether this machine can build and run it, before anything heavy.

Nothing here imports TensorRT-LLM; engine_build.py does.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from steps.llm.calibration import Calibration
from steps.llm.speculation import Speculation

from trimodal.errors import ArtefactError, OperatorError
from trimodal.manifest import GpuTarget
from trimodal.plan.advice import advise
from trimodal.plan.architecture import Architecture
from trimodal.plan.cards import UNSEEN, Card
from trimodal.plan.memory import (
    KV_CHOICES,
    Deployment,
    KvPrecision,
    Precision,
    check_parallel,
    kv_choice,
    size,
    weight_bytes,
)
from trimodal.runtimes.gpu_device import Gpu, visible_gpus
from trimodal.runtimes.gpu_libraries import installed

SERIES = "1.2."  # The last with compiled engines; what was read and type-checked.
TOKENS_PER_BLOCK = 32
COPIES = 3  # On disk at once: the converted checkpoint, the engine, and the artefact's copy of it.
UNCALIBRATED = (Precision.fp16, Precision.bf16, Precision.int8_wo)


@dataclass(frozen=True)
class EnginePlan:
    """Everything that decides the engine, checked by `check_plan` and `check_machine`."""

    model: Architecture
    precision: Precision
    kv_precision: KvPrecision = KvPrecision.auto
    tp: int = 1
    pp: int = 1
    max_batch_size: int = 256
    max_num_tokens: int = 8192
    max_seq_len: int = 8192
    multiple_profiles: bool = False
    speculation: Speculation = field(default_factory=Speculation)
    calibration: Calibration | None = None

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    def shapes(self) -> dict[str, int | str]:
        """Limits of the engine, for the manifest."""
        names = ("max_batch_size", "max_num_tokens", "max_seq_len", "tp", "pp")
        limits = {name: getattr(self, name) for name in names}
        return limits | {"tokens_per_block": TOKENS_PER_BLOCK, "kv_precision": self.kv_precision.value}


def needs_calibration(precision: Precision, kv_precision: KvPrecision) -> bool:
    """Whether scales are measured on texts: of activations, or of keys and values."""
    return precision not in UNCALIBRATED or kv_precision is not KvPrecision.auto


def check_plan(plan: EnginePlan) -> None:
    """Raises: OperatorError, one sentence, for what no machine could build."""
    if plan.kv_precision not in KV_CHOICES[plan.precision]:
        raise ArtefactError(kv_choice(plan.precision, plan.kv_precision))
    if needs_calibration(plan.precision, plan.kv_precision) != bool(plan.calibration):
        raise ArtefactError(
            f"--precision {plan.precision.value} --kv-precision {plan.kv_precision.value} "
            + ("uses no --calibration" if plan.calibration else "needs --calibration FILE_OR_DIRECTORY")
        )
    check_parallel(plan.model, plan.tp, plan.pp)
    if plan.max_num_tokens < plan.max_batch_size:
        raise ArtefactError(
            f"--max-num-tokens {plan.max_num_tokens} is below --max-batch-size {plan.max_batch_size}: "
            "a step of decoding takes a token of each sequence"
        )


def check_runtime() -> None:
    """Raises: ArtefactError unless TensorRT-LLM 1.2 is installed. Imports nothing."""
    found = installed(("tensorrt_llm", "tensorrt-llm"))
    if found is None:
        raise ArtefactError(
            "TensorRT-LLM is not installed here: run this in the container's environment (version 1.2.1)"
        )
    if not found.startswith(SERIES):
        raise ArtefactError(
            f"TensorRT-LLM {found} is here, and engines are built with {SERIES}x: later releases have no "
            "engines (put the checkpoint in place with build/llm_place.py, engine tensorrt_llm_pytorch)"
        )


def check_machine(plan: EnginePlan) -> GpuTarget:
    """The GPUs that the engine is built on, after it is known to fit them.

    Raises:
        OperatorError: no driver, too few GPUs, of different kinds, without FP8, or too small.
    """
    gpus = visible_gpus()
    if len(gpus) < plan.gpus:
        raise ArtefactError(
            f"--tp {plan.tp} --pp {plan.pp} takes {plan.gpus} GPUs, and {len(gpus) or 'none'} can be seen"
        )
    used = gpus[: plan.gpus]
    if len({gpu.sm for gpu in used}) > 1:
        kinds = ", ".join(f"{gpu.name} (SM {gpu.sm})" for gpu in used)
        raise ArtefactError(
            f"one engine needs GPUs of one SM, and here are {kinds}: set CUDA_VISIBLE_DEVICES"
        )
    _check_memory(plan, min(used, key=lambda gpu: gpu.memory))
    return GpuTarget(sm=used[0].sm, name=used[0].name, count=plan.gpus)


def check_disk(plan: EnginePlan, folder: Path) -> None:
    """Raises: ArtefactError where the file system of `folder` has no room for the build."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    needed = COPIES * weight_bytes(plan.model, plan.precision)
    free = shutil.disk_usage(there).free
    if free < needed:
        raise ArtefactError(
            f"{there} has {free / 2**30:.0f} GiB free, and the build takes about {needed / 2**30:.0f}: "
            "name another place with --out or TRIMODAL_ENGINES"
        )


def deployment(plan: EnginePlan, gpu: Gpu) -> Deployment:
    """The plan in the sizing calculator's terms, on a GPU that is there."""
    return Deployment(
        card=Card(gpu.name, gpu.memory, gpu.memory - UNSEEN, 1.0, gpu.sm),  # Speed is not asked for.
        precision=plan.precision,
        kv_precision=plan.kv_precision,
        tp=plan.tp,
        pp=plan.pp,
        max_seq_len=plan.max_seq_len,
        max_batch_size=plan.max_batch_size,
        max_num_tokens=plan.max_num_tokens,
    )


def _check_memory(plan: EnginePlan, gpu: Gpu) -> None:
    wanted = deployment(plan, gpu)
    sizing = size(plan.model, wanted)
    if sizing.problems:
        remedies = advise(plan.model, wanted)
        tail = f" (it fits with {' or with '.join(remedies)})" if remedies else ""
        raise ArtefactError("; ".join(sizing.problems) + tail)
    needed = sizing.weights + sizing.reserve
    if gpu.free < needed:
        raise OperatorError(
            f"GPU {gpu.index} has {gpu.free / 2**30:.1f} GiB free of {gpu.memory / 2**30:.1f}, and the "
            f"engine takes {needed / 2**30:.1f} before its KV cache: end what else runs on it"
        )
