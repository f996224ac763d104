"""Finds what GPU libraries compile their kernels with while they run, in the environment of any interpreter.

vLLM and TensorRT-LLM's PyTorch runtime bring Triton's language, which compiles launchers in C (compiler and
Python.h), and FlashInfer, which compiles kernels with nvcc and ninja unless a package holds them compiled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trimodal.runtimes import gpu_libraries

KERNELS = "flashinfer-jit-cache"
"""FlashInfer's kernels compiled. flashinfer-cubin is no substitute: it holds none of those for sampling."""
_CUDA = "/usr/local/cuda"  # where FlashInfer looks last (flashinfer.jit.cpp_ext.get_cuda_path)
_INCLUDE = "import sysconfig; print(sysconfig.get_paths()['include'])"
_SECONDS = 20.0


@dataclass(frozen=True)
class JitTools:
    """Where each tool is; "" is nowhere. `kernels` is the version of the package."""

    compiler: str
    nvcc: str
    ninja: str
    kernels: str

    @property
    def flashinfer(self) -> bool:
        """Whether FlashInfer can sample: it finds its kernels, or can compile them."""
        return bool(self.kernels or (self.nvcc and self.ninja))


def search_path(python: str) -> str:
    """PATH of a process that `python` runs: programs of its own environment, as ninja, come first.

    It is called by its path, so nothing has activated its environment.
    """
    own = os.path.dirname(os.path.abspath(python))
    others = [part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if part != own]
    return os.pathsep.join([own, *others])


def find_jit_tools(python: str = "") -> JitTools:
    """The tools of `python`'s environment; "" is the running interpreter's."""
    path = search_path(python or sys.executable)
    compilers = (shutil.which(name, path=path) for name in (os.environ.get("CC", ""), "gcc", "clang") if name)
    return JitTools(
        compiler=next(filter(None, compilers), ""),
        nvcc=_nvcc(path),
        ninja=shutil.which("ninja", path=path) or "",
        kernels=gpu_libraries.installed(KERNELS, python) or "",
    )


def python_headers(python: str = "") -> str:
    """Folder of that interpreter's Python.h, asked of itself; "" where there is none."""
    command = [python or sys.executable, "-I", "-c", _INCLUDE]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    folder = ended.stdout.strip()
    return folder if Path(folder, "Python.h").is_file() else ""


def _nvcc(path: str) -> str:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if not home and (nvcc := shutil.which("nvcc", path=path)):
        return nvcc
    return shutil.which(os.path.join(home or _CUDA, "bin", "nvcc")) or ""
