"""Reads what this machine is: GPU, driver, memory as NVML and CUDA see it, copies, compilers, libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from trimodal.bench.gpu_check.steps import Run, Skipped, Step
from trimodal.bench.gpu_check.timing import synchronise, timed

MIB = 1 << 20
# How the names of packages that matter to a GPU begin.
KNOWN = (
    "torch", "numpy", "nvidia-", "tensorrt", "onnx", "ctranslate2", "faster-whisper", "vllm", "flashinfer",
    "transformers", "tokenizers", "triton", "pydantic", "cupy", "jax", "safetensors", "openvino", "trimodal",
)  # fmt: skip
COMMANDS = ("nvidia-smi", "nvidia-cuda-mps-control", "nvcc", "ninja", "cc", "tritonserver")
_CONTEXT = """
import pynvml, torch
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByUUID({uuid!r})
before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
print(pynvml.nvmlDeviceGetMemoryInfo(handle).used - before)
"""


def gpu(run: Run) -> Mapping[str, Any]:
    """Names the GPU, as the driver's library tells it, and what PyTorch sees of it."""
    import torch

    if not torch.cuda.is_available():
        raise Skipped("torch sees no GPU")
    found = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "name": found.name,
        "sm": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "cuda_total_bytes": total,
        "cuda_free_bytes": free,
        "torch_cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def memory(run: Run) -> Mapping[str, Any]:
    """Total memory as NVML and as CUDA tell it, and what one CUDA context takes of it."""
    import pynvml
    import torch

    if not torch.cuda.is_available():
        raise Skipped("torch sees no GPU")
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        nvml = pynvml.nvmlDeviceGetMemoryInfo(handle)
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        raise Skipped(f"NVML does not tell: {error}") from None
    finally:
        pynvml.nvmlShutdown()
    cuda_total = torch.cuda.mem_get_info()[1]
    asked = [sys.executable, "-c", _CONTEXT.format(uuid=uuid)]
    context = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    return {
        "driver": driver,
        "nvml_total_bytes": nvml.total,
        "not_seen_by_cuda_bytes": nvml.total - cuda_total,
        "context_bytes": int(context.stdout) if not context.returncode else context.stderr[-300:],
    }


def copies(run: Run) -> Mapping[str, Any]:
    """GB/s of copies to and from the device, of page-locked memory and of other, and within the device."""
    import torch

    size = (256 if run.full else 4) * MIB
    on_device = torch.empty(size, dtype=torch.uint8, device=run.device)
    twin = torch.empty_like(on_device)
    hosts = {"pageable": torch.ones(size, dtype=torch.uint8)}
    if run.full:
        hosts["pinned"] = hosts["pageable"].pin_memory()

    def gigabytes(to: torch.Tensor, of: torch.Tensor) -> float:
        def copy() -> None:
            to.copy_(of, non_blocking=True)
            synchronise(run.device)

        return timed(copy, items=size, seconds=min(run.seconds, 0.5))["rate"] / 1e9

    found = {}
    for name, host in hosts.items():
        found[f"h2d_{name}_gb_s"] = gigabytes(on_device, host)
        found[f"d2h_{name}_gb_s"] = gigabytes(host, on_device)
    # Within the device every byte is read and written.
    return {**found, "d2d_gb_s": 2 * gigabytes(twin, on_device)}


def products(run: Run) -> Mapping[str, Any]:
    """TFLOP/s of a large matrix product in BF16."""
    import torch

    side = 8192 if run.full else 256
    left, right = (torch.randn(side, side, device=run.device, dtype=torch.bfloat16) for _ in range(2))

    def multiply() -> None:
        torch.mm(left, right)
        synchronise(run.device)

    rate = timed(multiply, items=2 * side**3, seconds=min(run.seconds, 1.0))["rate"]
    return {"side": side, "bf16_tflop_s": rate / 1e12}


def software(run: Run) -> Mapping[str, Any]:
    """Versions of every library that matters, and where the programs are that engines compile with."""
    found: dict[str, str] = {}
    for one in distributions():
        name = (one.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith(KNOWN):
            found.setdefault(name, one.version)  # the first on the path is the one that is imported
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return {
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)),
        "packages": dict(sorted(found.items())),
        "commands": {name: shutil.which(name) or "" for name in COMMANDS},
        "python_h": header.is_file(),
        "mps": bool(shutil.which("nvidia-cuda-mps-control")),
    }


STEPS = (
    Step("software", software),
    Step("gpu", gpu, ("torch",), gpu=True),
    Step("memory", memory, ("torch", "pynvml"), gpu=True),
    Step("copies", copies, ("torch",)),
    Step("products", products, ("torch",)),
)
