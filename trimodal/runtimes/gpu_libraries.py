"""Versions of GPU libraries and what they ask of the driver, found without importing any of them.

Importing one takes seconds and GPU memory, and a launcher needs neither. What is not
found here is None; the caller decides whether that is an error.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Literal

# CUDA major version → least major version of the driver, on Linux.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html (12.x: 525, 13.x: 580).
# TensorRT asks the same of CUDA 13, and 535 of its wheels for CUDA 12:
# https://docs.nvidia.com/deeplearning/tensorrt/11.4.0/installing-tensorrt/prerequisites.html
LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
# An older driver does on data centre GPUs, where a cuda-compat package brings a newer libcuda:
# https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
FORWARD_COMPATIBILITY = "data centre GPUs can use NVIDIA's cuda-compat package instead"
# CUDA 13 and TensorRT 11 begin with Turing (same pages).
LEAST_SM = {12: (5, 0), 13: (7, 5)}

# Wheel → its releases, SMs that they have machine code for, and SM of their PTX, which the driver compiles
# for newer GPUs ("": none). Read from the fat binaries of the wheels on the index.
CODE = {
    "onnxruntime-gpu": (("1.31.1",), ("7.5", "8.0", "8.6", "8.9", "9.0", "12.0"), ""),
    "ctranslate2": (("4.8.5",), ("5.3", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6"), "8.6"),
}

TENSORRT = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu13-bindings", "tensorrt-cu12-bindings")
_LOADER = Path("/etc/ld.so.conf.d")
_SYSTEM = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")


def installed(names: str | Iterable[str], python: str = "") -> str | None:
    """Version of the first of these distributions that is there.

    Args:
        python: another interpreter whose environment is asked; "" is the running one.
    """
    packages = (_distribution(name, python) for name in ([names] if isinstance(names, str) else names))
    return next((one.version for one in packages if one), None)


def python_tensorrt() -> str | None:
    """Version of TensorRT's Python package, as `tensorrt.__version__` says it: 10.14.1.48."""
    version = installed(TENSORRT)
    return version and version.partition(".post")[0]


def native_tensorrt() -> str | None:
    """Version of the TensorRT that Triton's backend will load, by the name of its library: 10.14.1.

    The build number is not part of the name. NVIDIA's images say it in TRT_VERSION: 10.14.1.48.
    """
    named = newest_library("libnvinfer")
    whole = os.environ.get("TRT_VERSION", "").partition("+")[0]
    return whole if named and whole.startswith(f"{named}.") else named


def newest_library(stem: str) -> str | None:
    """Version in the real name of `<stem>.so`, in the first of the loader's folders that has it."""
    for folder in _loader_folders():
        versions = []
        for path in folder.glob(f"{stem}.so*"):
            if match := re.fullmatch(re.escape(stem) + r"\.so\.([\d.]+)", path.resolve().name):
                versions.append(match.group(1))
        if versions:
            return max(versions, key=lambda version: [int(part) for part in version.split(".")])
    return None


def same_version(built: str, other: str) -> bool:
    """Whether `other` says the same as `built`, as far as both go: 10.14.1 agrees with 10.14.1.48."""
    return all(left == right for left, right in zip(built.split("."), other.split("."), strict=False))


def is_on_disk(name: str, file: str) -> bool:
    """Whether the file of an installed distribution whose name holds `file` is its own, by the size it had.

    Two distributions may write into one folder (onnxruntime and onnxruntime-gpu): the last one wins.
    """
    package = _distribution(name, "")
    for path in (package.files or []) if package else []:
        if file in path.name and path.size is not None:
            place = Path(str(path.locate()))
            return place.is_file() and place.stat().st_size == path.size
    return False


def has_library(stem: str, major: int) -> bool:
    """Whether the loader's folders have `<stem>.so.<major>`."""
    return any(next(folder.glob(f"{stem}.so.{major}*"), None) for folder in _loader_folders())


def cuda_of(name: str, python: str = "") -> int | None:
    """Major version of CUDA that an installed distribution was built for, by what it wants installed.

    None: it is not installed, or does not say.
    """
    package = _distribution(name, python)
    for requirement in (package.requires or []) if package else []:
        if match := re.match(r"(?:nvidia|tensorrt)[\w-]*[-_]cu(\d\d)(?!\d)", requirement):
            return int(match.group(1))
        # From CUDA 13 on NVIDIA's names have no suffix.
        if match := re.match(r"nvidia-cuda-runtime\s*\(?\s*[~>=]=\s*(\d+)", requirement):
            return int(match.group(1))
    return None


def has_code(name: str, version: str, sm: str) -> Literal["ready", "compiled", "none", "unknown"]:
    """Whether a wheel runs on a GPU of this SM as it is, once compiled by the driver, or not at all.

    Machine code of one SM runs on later ones of the same major number.
    """
    releases, codes, ptx = CODE.get(name, ((), (), ""))
    if version not in releases:
        return "unknown"
    major, minor = _sm(sm)
    if any(_sm(code)[0] == major and _sm(code)[1] <= minor for code in codes):
        return "ready"
    return "compiled" if ptx and _sm(ptx) <= (major, minor) else "none"


def _sm(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def driver_cuda() -> tuple[int, int] | None:
    """Newest CUDA that the loaded libcuda serves, cuda-compat's if that is first; None without a driver.

    Asks without starting CUDA: no context, no memory.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(version)) != 0 or not version.value:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _distribution(name: str, python: str) -> Distribution | None:
    if not python:
        try:
            return distribution(name)
        except PackageNotFoundError:
            return None
    # Not resolved: a virtual environment's interpreter is a link to the system's.
    root = Path(shutil.which(python) or python).absolute().parent.parent
    folders = [str(path) for path in root.glob("lib/python3*/*-packages")]
    return next(iter(distributions(name=name, path=folders)), None)


def _loader_folders() -> Iterable[Path]:
    """Where the dynamic loader looks, roughly in its order."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for file in sorted(_LOADER.glob("*.conf")):
        folders += [line.strip() for line in file.read_text().splitlines() if line.startswith("/")]
    return (Path(folder) for folder in [*folders, *_SYSTEM] if folder)
