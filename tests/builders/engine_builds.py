"""Runs a build script by its command line; a TensorRT-LLM that saves and answers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner, Result

from tests.doubles.gpu_libraries import Recorder, make
from trimodal.runtimes.gpu_device import Gpu

GIB = 2**30
Build = Callable[..., Result]


def command(script: str) -> Build:
    """The script as a function of its command line."""
    app = typer.Typer()
    app.command()(importlib.import_module(script).main)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result: Result) -> str:
    """The one red sentence of a failed build, after it is known to be no traceback."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.output.splitlines() if line.startswith("error: ")]
    return line


def gpu(index: int = 0, sm: str = "9.0", memory: int = 80 * GIB, free: int | None = None) -> Gpu:
    name = "NVIDIA H100" if sm == "9.0" else "NVIDIA A100"
    return Gpu(index, name, sm, memory, memory if free is None else free, "580.95")


def prompts() -> tuple[str, ...]:
    return tuple(importlib.import_module("steps.llm.check").PROMPTS[:4])


def outputs(answers: Sequence[list[int]]) -> list[Any]:
    from tensorrt_llm.llmapi import CompletionOutput, RequestOutput

    return [make(RequestOutput, outputs=[make(CompletionOutput, index=0, token_ids=ids)]) for ids in answers]


def save(instance: object, engine_dir: str) -> None:
    (Path(engine_dir) / "rank0.engine").write_bytes(b"engine")
    (Path(engine_dir) / "config.json").write_text("{}")


def torch_answers_of(recorder: Recorder) -> list[list[int]]:
    """The answers that the recorder's engine would give."""
    from tensorrt_llm._tensorrt_engine import LLM

    rows: Any = LLM(model="x").generate([[1]])
    recorder.calls.clear()
    return [list(row.outputs[0].token_ids) for row in rows]
