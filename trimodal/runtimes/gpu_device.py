"""Lists the NVIDIA GPUs of this machine by the driver's management library (NVML), without a CUDA context."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from trimodal.errors import ServerError


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory is in bytes; `sm` is its compute capability, as 9.0."""

    index: int
    name: str
    sm: str
    memory: int
    free: int
    driver: str
    uuid: str = ""


def visible_gpus() -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves to this process, in CUDA's order; empty when it hides all.

    MIG instances are not listed: the GPU that they are parts of is.

    Raises:
        ServerError: no driver answers, or nvidia-ml-py is not installed.
    """
    try:
        import pynvml
    except ImportError:
        raise ServerError("nvidia-ml-py is not installed: pip install 'trimodal[cuda]'") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise ServerError(
            f"no NVIDIA driver answers ({error}): install one, or start the container with --gpus all"
        ) from None
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        gpus = [_read(pynvml, index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise ServerError(f"the NVIDIA driver does not tell its GPUs ({error})") from None
    finally:
        pynvml.nvmlShutdown()
    return _visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))


def current_gpu() -> Gpu | None:
    """The GPU that a process of this environment would use first; None where there is none."""
    try:
        return next(iter(visible_gpus()), None)
    except ServerError:
        return None


def _read(pynvml: Any, index: int, driver: str) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        sm=f"{major}.{minor}",
        memory=int(memory.total),
        free=int(memory.free),
        driver=driver,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
    )


def _visible(gpus: list[Gpu], variable: str | None) -> list[Gpu]:
    """As CUDA reads the variable: numbers or (the beginning of) UUIDs, up to the first that is neither."""
    if variable is None:
        return gpus
    chosen: list[Gpu] = []
    for name in (part.strip() for part in variable.split(",")):
        found = [
            gpu
            for gpu in gpus
            if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
        ]
        if len(found) != 1:
            break
        chosen += found
    return chosen


def _text(value: str | bytes) -> str:
    """Older nvidia-ml-py give bytes."""
    return value.decode() if isinstance(value, bytes) else value
