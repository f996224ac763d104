"""Lists NVIDIA GPUs and the processes on them by the driver's library (NVML), without a CUDA context."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from trimodal.errors import ServerError

# Variable and value: CUDA by itself puts the fastest GPU first, the driver's library goes by the bus.
DEVICE_ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


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

    A MIG instance that it names is one GPU with the instance's memory. CUDA opens one such at a time.

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
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        if variable and variable.strip().startswith("MIG-"):
            return _instance(pynvml, variable.split(",")[0].strip(), driver)
        gpus = [_read(pynvml, index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise ServerError(f"the NVIDIA driver does not tell its GPUs ({error})") from None
    finally:
        pynvml.nvmlShutdown()
    return _visible(gpus, variable)


def current_gpu() -> Gpu | None:
    """The GPU that a process of this environment would use first; None where there is none."""
    try:
        return next(iter(visible_gpus()), None)
    except ServerError:
        return None


def gpu_pids() -> set[int]:
    """Numbers of the processes that hold memory of a GPU; empty where no driver answers.

    In a container the driver tells the container's own numbers, or (before 555) none of its processes.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # nvidia-ml-py is not installed, or finds no driver
        return set()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return {
            int(process.pid)
            for handle in handles
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
    except pynvml.NVMLError:  # a GPU that has fallen off the bus
        return set()
    finally:
        pynvml.nvmlShutdown()


def _read(pynvml: Any, index: int, driver: str) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return _described(pynvml, handle, handle, index, driver)


def _instance(pynvml: Any, name: str, driver: str) -> list[Gpu]:
    """The MIG instance of this name; empty where there is none, as for CUDA."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(name)
        whole = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except (
        pynvml.NVMLError_NotFound,
        pynvml.NVMLError_InvalidArgument,
        pynvml.NVMLError_NotSupported,
    ):
        return []
    return [_described(pynvml, handle, whole, pynvml.nvmlDeviceGetIndex(whole), driver)]


def _described(pynvml: Any, handle: Any, whole: Any, index: int, driver: str) -> Gpu:
    """`handle`: of the GPU or of a part of it; `whole`: of the GPU, which alone knows its SM."""
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(whole)
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
        named = [
            gpu
            for gpu in gpus
            if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
        ]
        if len(named) != 1:
            break
        chosen += named
    return chosen


def _text(value: str | bytes) -> str:
    """Older nvidia-ml-py give bytes."""
    return value.decode() if isinstance(value, bytes) else value
