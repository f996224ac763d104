"""Checks the compilers that the llm's GPU engines call while they run, where the engine's process runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from trimodal.doctor.values import Check, Group
from trimodal.repository import Model
from trimodal.runtimes.jit_tools import KERNELS, JitTools, find_jit_tools, python_headers

TOOLS = Group("compilers")
ENGINES = ("vllm", "tensorrt_llm_pytorch")  # compiled engines hold their kernels
_COMPILER = "apt install build-essential python3-dev"


def check_engine_tools(models: Iterable[Model]) -> Iterator[Check]:
    """A line for the C compiler and its header, and one for FlashInfer's kernels, of each such engine."""
    for model in models:
        if model.backend == "python" and model.engine in ENGINES:
            python = model.parameters.get("python", "")
            tools = find_jit_tools(python)
            yield _compiler(model.name, tools.compiler, python_headers(python))
            yield _kernels(model, python, tools)


def _compiler(name: str, compiler: str, headers: str) -> Check:
    needed = {"C compiler": compiler, "Python.h": headers}
    if missing := [what for what, found in needed.items() if not found]:
        found = f"no {' and no '.join(missing)}: kernels in Triton's language cannot be compiled"
        return TOOLS.error(f"C ({name})", found, _COMPILER)
    return TOOLS.ok(f"C ({name})", f"{compiler}, Python.h in {headers}")


def _kernels(model: Model, python: str, tools: JitTools) -> Check:
    check = f"FlashInfer ({model.name})"
    if tools.kernels:
        return TOOLS.ok(check, f"{KERNELS} {tools.kernels}")
    if tools.flashinfer:
        return TOOLS.ok(check, f"compiled with {tools.nvcc} and {tools.ninja}")
    missing = " and no ".join(
        name for name, found in (("nvcc", tools.nvcc), ("ninja", tools.ninja)) if not found
    )
    if model.engine == "vllm":
        found, command = "vLLM samples with its own", os.path.join(os.path.dirname(python), "vllm")
        remedy = f"run {command} download-kernels, or install a CUDA toolkit and ninja"
    else:
        found = "what TensorRT-LLM takes of them fails"
        remedy = "install a CUDA toolkit, and pip install ninja"
    return TOOLS.warning(check, f"no {missing}, and no compiled kernels: {found}", remedy)
