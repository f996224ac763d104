"""Runs one part in this process and writes what it found after each step.

    python -m trimodal.bench.gpu_check.part NAME RESULT.json RUN.json

`gpu_check` starts it, with a time limit: what is written by then stays.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from trimodal.bench.gpu_check.steps import Run, Step, run_steps

PARTS = ("facts", "vision", "embedding", "speech", "llm", "interference")


def write_json(path: Path, content: Any) -> None:
    """Replaces the file at once: a reader never sees half of it."""
    work = path.with_name(f".{path.name}-{os.getpid()}")
    work.write_text(json.dumps(content, indent=2, default=str) + "\n")
    os.replace(work, path)


def run_part(name: str, result: Path, run: Run) -> None:
    """Writes {"steps": {step: outcome}} to `result`, before the first step and after each."""
    steps: dict[str, Any] = {}
    write_json(result, {"steps": steps})
    listed: Sequence[Step] = import_module(f"trimodal.bench.gpu_check.parts.{name}").STEPS
    for step, outcome in run_steps(listed, run):
        steps[step] = outcome
        write_json(result, {"steps": steps})
        told = next((f"{key}: {outcome[key]}" for key in ("skipped", "error") if key in outcome), "measured")
        print(f"{name} {step}: {told} ({outcome['seconds']} s)", flush=True)


def main() -> None:
    name, result, given = sys.argv[1:]
    values = json.loads(given)
    values |= {"engines": Path(values["engines"]), "given": tuple(values["given"])}
    run_part(name, Path(result), Run(**values))
    sys.stdout.flush()
    os._exit(0)  # threads of a library that hang must not keep what is measured from being reported


if __name__ == "__main__":
    main()
