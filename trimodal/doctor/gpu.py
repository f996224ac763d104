"""Checks the GPUs and their driver against the CUDA that the libraries of a profile are built for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from trimodal.doctor.values import Check, Group
from trimodal.errors import ServerError
from trimodal.report.numbers import size
from trimodal.repository import Model
from trimodal.runtimes import gpu_libraries
from trimodal.runtimes.gpu_device import Gpu
from trimodal.server import preflight
from trimodal.settings import read_as

GPU = Group("gpu")
# Bytes a process of a model: its CUDA context (0.5 GiB) and workspaces. Estimated.
PROCESS = 1 << 30
LEAST_FREE = 0.8  # of a GPU's memory: the llm engine takes nearly all that is free


def find_gpus(models: Iterable[Model]) -> list[Gpu] | ServerError:
    """The GPUs, or why there are none; an empty list when no model wants one."""
    try:
        return preflight.check_gpus(models)
    except ServerError as error:
        return error


def check_gpus(
    found: list[Gpu] | ServerError, models: Iterable[Model], weights: Mapping[str, int]
) -> Iterator[Check]:
    """`found`: as `find_gpus` says; `weights`: model → bytes of its built engines on the first GPU."""
    if isinstance(found, ServerError):
        yield GPU.refused("driver", found)
        return
    gpus, models = found, list(models)
    if not gpus:
        return
    needs = cuda_needs(models)
    yield _driver(gpus[0], needs)
    for gpu in gpus:
        yield _gpu(gpu, needs)
    yield _memory(
        gpus[0], {model.name: _share(model, gpus[0], weights) for model in models if model.wants_gpu}
    )


def _share(model: Model, gpu: Gpu, weights: Mapping[str, int]) -> int:
    """Bytes that a model takes of a GPU, or at least takes: an estimate but for the weights."""
    if model.engine == "vllm":
        asked = read_as(float, model.parameters.get("gpu_memory_utilization", "0"), 0.0)
        if 0 < asked <= 1:
            return int(asked * gpu.memory)
    # A copy of the weights for each: instances in Python share none, Triton's own backends share one.
    processes = model.instances or 1
    return processes * (weights.get(model.name, 0) + PROCESS)


def _memory(gpu: Gpu, shares: Mapping[str, int]) -> Check:
    """The shares added up. Pools that take what is left over are not in them."""
    total = sum(shares.values())
    added = ", ".join(f"{name} {size(share)}" for name, share in sorted(shares.items()))
    found = f"{added}: {size(total)} together"
    if total <= gpu.free:
        return GPU.ok("memory", f"{found}, of {size(gpu.free)} free on GPU {gpu.index}; caches come on top")
    has = f"has {size(gpu.memory)}" if total > gpu.memory else f"has {size(gpu.free)} free"
    return GPU.error(
        "memory",
        f"{found}, and GPU {gpu.index} {has}",
        "lower gpu_memory_utilization (0: what the others leave), build with fewer bits (trimodal plan llm "
        "says what fits), serve fewer models, or end what else holds memory",
    )


def cuda_needs(models: Iterable[Model]) -> dict[str, int]:
    """Library → major version of CUDA that it is built for; those that do not say are left out."""
    needs: dict[str, int | None] = {}
    for model in models:
        python = model.parameters.get("python", "")
        if not model.wants_gpu:
            continue
        if model.engine == "onnxruntime":
            needs["onnxruntime-gpu"] = gpu_libraries.cuda_of("onnxruntime-gpu")
        elif model.engine == "ctranslate2":
            needs["ctranslate2"] = 12  # its wheels open libcublas.so.12, whatever else is installed
        elif model.engine in ("vllm", "tensorrt_llm_pytorch"):
            needs["torch"] = gpu_libraries.cuda_of("torch", python)
        elif model.engine == "tensorrt":
            needs["tensorrt"] = gpu_libraries.cuda_of("tensorrt")
            needs["torch"] = gpu_libraries.cuda_of("torch")
        else:
            # NVIDIA's images say their CUDA here.
            major = os.environ.get("CUDA_VERSION", "").split(".")[0]
            needs[f"Triton's {model.backend} backend"] = int(major) if major.isdecimal() else None
    return {name: major for name, major in needs.items() if major is not None}


def _driver(gpu: Gpu, needs: Mapping[str, int]) -> Check:
    serves = gpu_libraries.driver_cuda()
    found = f"{gpu.driver}" + (f", serves CUDA {serves[0]}.{serves[1]}" if serves else "")
    if not needs:
        return GPU.ok("driver", found)
    name, major = max(needs.items(), key=lambda item: item[1])
    least = gpu_libraries.LEAST_DRIVER.get(major, 0)
    found += f"; {name} is built for CUDA {major}, which needs {least}"
    if int(gpu.driver.split(".")[0]) >= least:
        return GPU.ok("driver", found)
    if serves and serves[0] >= major:
        return GPU.ok("driver", f"{found}, or the forward compatibility package, which is here")
    return GPU.error(
        "driver", found, f"install driver {least} or newer; {gpu_libraries.FORWARD_COMPATIBILITY}"
    )


def _gpu(gpu: Gpu, needs: Mapping[str, int]) -> Check:
    name = f"GPU {gpu.index}"
    found = f"{gpu.name}, SM {gpu.sm}, {size(gpu.free)} of {size(gpu.memory)} are free"
    least = gpu_libraries.LEAST_SM.get(max(needs.values(), default=0), (0, 0))
    if tuple(int(part) for part in gpu.sm.split(".")) < least:
        return GPU.error(
            name,
            found,
            f"CUDA {max(needs.values())} serves SM {least[0]}.{least[1]} and newer: hide it with "
            "CUDA_VISIBLE_DEVICES, or install libraries for CUDA 12",
        )
    remedy = "see with nvidia-smi who holds the rest; engines take what is free"
    return GPU.warning(name, found, remedy, when=gpu.free < LEAST_FREE * gpu.memory)
