"""Runs the steps of one part: each is measured, skipped with a reason, or failed, and the next one goes on.

    python -m benchmarks.gpu_check.steps PART RESULT.json OPTIONS.json

`gpu_check` starts it, with a time limit: the result is written after each step, and what is written by then
stays. The standard library is enough to import this.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from benchmarks.gpu_check.measure import Figures, timed
from trimodal.errors import TrimodalError
from trimodal.files import replace_file

Cases = dict[str, Figures]
PARTS = ("facts", "vision", "embedding", "speech", "llm")


class Skipped(Exception):
    """This step cannot be measured here, and that is no fault; the message says why."""


@dataclass(frozen=True)
class Options:
    """What the parts are given.

    Attributes:
        seconds: to measure each case of each round; rounds: that are counted.
        engines: directory for what is built.
        whisper: checkpoint directory, or a shape of build/random_checkpoint.py.
        llm: checkpoint that build/llm_place.py has put in place.
    """

    device: Literal["cpu", "cuda"]
    seconds: float
    rounds: int
    engines: str
    whisper: str = ""
    llm: str = ""

    @property
    def full(self) -> bool:
        """False in a rehearsal, whose numbers mean nothing: everything once, and small."""
        return self.device == "cuda"

    def time(self, call: Callable[[], object], items: int = 1) -> Figures:
        """Times a call that does `items` things."""
        return timed(call, items=items, seconds=self.seconds, rounds=self.rounds)

    def sweep(self, name: str, sizes: Sequence[int], call: Callable[[int], Callable[[], object]]) -> Cases:
        """Times calls of batches of these sizes, each of which `call` makes."""
        return {f"{name}_{size}": self.time(call(size), size) for size in sizes}


@dataclass(frozen=True)
class Step:
    """One measurement of a part.

    Attributes:
        measure: gives figures as plain data. Raises Skipped.
        needs: modules without which it is skipped; gpu: so it is without a GPU.
    """

    name: str
    measure: Callable[[Options], Mapping[str, Any]]
    needs: Sequence[str] = ()
    gpu: bool = False


def run_step(step: Step, options: Options) -> dict[str, Any]:
    """The step's figures, or why there are none: `skipped` or `error` with a sentence."""
    try:
        if missing := next((name for name in step.needs if find_spec(name) is None), ""):
            raise Skipped(f"{missing} is not installed")
        if step.gpu and not options.full:
            raise Skipped("it needs a GPU")
        return dict(step.measure(options))
    except Skipped as reason:
        return {"skipped": str(reason)}
    except ImportError as error:  # of something that a library needs in turn
        if (error.name or "").startswith(("benchmarks", "trimodal")):
            return {"error": first_line(error)}
        return {"skipped": f"{error.name or 'a library'} cannot be imported: {first_line(error)}"}
    except TrimodalError as error:
        return {"error": str(error)}
    except Exception as error:  # One step's surprise must not cost the others' figures.
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {first_line(error)}"}


def require_onnxruntime(options: Options) -> None:
    """Raises: Skipped: ONNX Runtime is built without CUDA."""
    import onnxruntime

    if options.full and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise Skipped(f"onnxruntime {onnxruntime.__version__} here is built without CUDA")


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0][:300]


def write_json(path: Path, content: Any) -> None:
    """Replaces the file at once: a reader never sees half of it."""
    replace_file(path, f"{json.dumps(content, indent=2, default=str)}\n".encode())


def run_part(name: str, result: Path, options: Options) -> None:
    """Writes {"steps": {step: outcome}} to `result`, before the first step and after each."""
    steps: dict[str, Any] = {}
    write_json(result, {"steps": steps})
    listed: Sequence[Step] = import_module(f"benchmarks.gpu_check.parts.{name}").STEPS
    for step in listed:
        began = time.monotonic()
        outcome = run_step(step, options) | {"seconds": round(time.monotonic() - began, 1)}
        steps[step.name] = outcome
        write_json(result, {"steps": steps})
        ending = next((f"{key}: {outcome[key]}" for key in ("skipped", "error") if key in outcome), "done")
        print(f"{name} {step.name}: {ending} ({outcome['seconds']} s)", flush=True)


def main() -> None:
    name, result, given = sys.argv[1:]
    # Under its own name: parts import Skipped from there, and __main__ has another class of that name.
    this = import_module("benchmarks.gpu_check.steps")
    this.run_part(name, Path(result), this.Options(**json.loads(given)))
    sys.stdout.flush()
    os._exit(0)  # threads of a library that hang must not keep what is measured from being reported


if __name__ == "__main__":
    main()
