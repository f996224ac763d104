"""Tells which processes hold memory of a GPU, by the driver's management library (NVML)."""

from __future__ import annotations


def gpu_pids() -> set[int]:
    """Their numbers; empty where no driver answers.

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
