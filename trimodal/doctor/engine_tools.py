"""Checks the compilers that the llm's GPU engines call while they run, where the engine's process runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from trimodal.doctor.values import Check, Group
from trimodal.repository import Model
from trimodal.runtimes.jit_tools import KERNELS, JitTools, find_jit_tools, python_headers
from trimodal.settings import read_as

TOOLS = Group("compilers")
ENGINES = ("vllm", "tensorrt_llm_pytorch")
_COMPILER = "apt install build-essential python3-dev"


def check_engine_tools(models: Iterable[Model]) -> Iterator[Check]:
    """A line for the C compiler and its header, and one for FlashInfer's kernels, of each such engine."""
    for model in models:
        if model.backend == "python" and model.engine in ENGINES:
            python = model.parameters.get("python", "")
            tools, headers = find_jit_tools(python), python_headers(python)
            if not model.wants_gpu and read_as(bool, model.parameters.get("enforce_eager", "false"), False):
                continue  # it compiles nothing
            lacks = [
                what for what, found in (("C compiler", tools.compiler), ("Python.h", headers)) if not found
            ]
            if lacks:
                found = f"no {' and no '.join(lacks)}: kernels in Triton's language cannot be compiled"
                yield TOOLS.error(f"C ({model.name})", found, _COMPILER)
            else:
                yield TOOLS.ok(f"C ({model.name})", f"{tools.compiler}, Python.h in {headers}")
            if model.wants_gpu:
                yield _kernels(model, python, tools)


def _kernels(model: Model, python: str, tools: JitTools) -> Check:
    check = f"FlashInfer ({model.name})"
    if tools.kernels:
        return TOOLS.ok(check, f"{KERNELS} {tools.kernels}")
    lacks = [what for what, found in (("nvcc", tools.nvcc), ("ninja", tools.ninja)) if not found]
    if not lacks:
        return TOOLS.ok(check, f"compiled with {tools.nvcc} and {tools.ninja}")
    missing, remedy = (
        f"no {' and no '.join(lacks)}, and no compiled kernels",
        "install a CUDA toolkit and ninja",
    )
    if model.engine == "vllm":
        command = os.path.join(os.path.dirname(python), "vllm")
        remedy = f"run {command} download-kernels, or {remedy}"
        return TOOLS.warning(check, f"{missing}: vLLM samples with its own", remedy)
    return TOOLS.warning(check, f"{missing}: what TensorRT-LLM takes of them fails", remedy)
