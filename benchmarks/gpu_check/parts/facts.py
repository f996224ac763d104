"""Reads what this machine is: GPU, memory as NVML and CUDA see it, copies, compilers, libraries."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.measure import synchronise, timed
from benchmarks.gpu_check.steps import Options, Skipped, Step

COMMANDS = ("nvidia-smi", "nvidia-cuda-mps-control", "nvcc", "ninja", "cc", "tritonserver")


def software(options: Options) -> Mapping[str, Any]:
    """Versions of all packages, and where the programs are that engines compile with."""
    versions: dict[str, str] = {}
    for one in distributions():
        versions.setdefault(one.metadata["Name"], one.version)  # the first on the path is the one that counts
    return {
        "cores": len(os.sched_getaffinity(0)),
        "packages": versions,
        "commands": {name: shutil.which(name) or "" for name in COMMANDS},
        "python_h": Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
    }


def gpu(options: Options) -> Mapping[str, Any]:
    """The GPU as PyTorch sees it; total memory as NVML and as CUDA say."""
    import torch

    from trimodal.runtimes.gpu_device import visible_gpus

    if not torch.cuda.is_available():
        raise Skipped("torch sees no GPU")
    seen, total = torch.cuda.get_device_properties(0), torch.cuda.mem_get_info()[1]
    return {
        "name": seen.name,
        "sm": f"{seen.major}.{seen.minor}",
        "multiprocessors": seen.multi_processor_count,
        "torch_cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "cuda_total_bytes": total,
        "not_seen_by_cuda_bytes": visible_gpus()[0].memory - total,
    }


def speeds(options: Options) -> Mapping[str, Any]:
    """GB/s of copies to and from the device, and TFLOP/s of a product in BF16."""
    import torch

    device, full = options.device, options.full
    size, side = ((256 << 20), 8192) if full else ((4 << 20), 256)
    there = torch.empty(size, dtype=torch.uint8, device=device)
    here = torch.ones(size, dtype=torch.uint8, pin_memory=full)
    left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))

    def rate(call: Callable[[], object], items: int) -> float:
        def done() -> None:
            call()
            synchronise(device)

        return timed(done, items=items, seconds=min(options.seconds, 0.5))["rate"]

    return {
        "to_device_gb_s": rate(lambda: there.copy_(here, non_blocking=True), size) / 1e9,
        "from_device_gb_s": rate(lambda: here.copy_(there, non_blocking=True), size) / 1e9,
        "bf16_tflop_s": rate(lambda: torch.mm(left, right), 2 * side**3) / 1e12,
    }


STEPS = (
    Step("software", software),
    Step("gpu", gpu, ("torch", "pynvml"), gpu=True),
    Step("speeds", speeds, ("torch",)),
)
