"""Runs the steps of one part: each is measured, skipped with a reason, or failed, and the next one goes on.

The standard library is enough to import this: a step names the modules that it needs.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from trimodal.errors import ServerError, TrimodalError

# Found only, not imported: it reads the environment when imported, which our engine sets first.
FOUND_ONLY = ("vllm",)
SERVED = ("numpy", "tritonclient", "pydantic", "rich")
"""What a step needs that serves through the embedded Triton."""


class Skipped(Exception):
    """This step cannot be measured here, and that is no fault; the message says why."""


@dataclass(frozen=True)
class Run:
    """What the parts are given.

    Attributes:
        seconds: to measure each case of each round; rounds: that are counted.
        engines: directory for what is built.
        given: NAME=DIR of artefacts that are built already.
        whisper: checkpoint directory, or a shape of build/random_checkpoint.py.
    """

    device: Literal["cpu", "cuda"]
    seconds: float
    rounds: int
    engines: Path
    given: tuple[str, ...] = ()
    whisper: str = ""

    @property
    def full(self) -> bool:
        """False in a rehearsal, whose numbers mean nothing: everything once, and small."""
        return self.device == "cuda"


@dataclass(frozen=True)
class Step:
    """One measurement of a part.

    Attributes:
        measure: gives figures as plain data. Raises Skipped.
        needs: modules without which it is skipped; gpu: so it is without a GPU.
    """

    name: str
    measure: Callable[[Run], Mapping[str, Any]]
    needs: Sequence[str] = ()
    gpu: bool = False


def run_steps(steps: Sequence[Step], run: Run) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and outcome of each step: figures, or `skipped` or `error` with a sentence."""
    for step in steps:
        began = time.monotonic()
        outcome = run_step(step, run)
        yield step.name, {**outcome, "seconds": round(time.monotonic() - began, 1)}


def run_step(step: Step, run: Run) -> dict[str, Any]:
    """The step's figures, or why there are none."""
    try:
        require(step.needs)
        if step.gpu and not run.full:
            raise Skipped("it needs a GPU")
        return dict(step.measure(run))
    except Skipped as reason:
        return {"skipped": str(reason)}
    except ImportError as error:  # of something that a library needs in turn
        return {"skipped": f"{error.name or 'a library'} cannot be imported: {first_line(error)}"}
    except TrimodalError as error:
        return {"error": str(error)}
    except Exception as error:  # One step's surprise must not cost the others' figures.
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {first_line(error)}"}


def require(modules: Sequence[str]) -> None:
    """Raises: Skipped: one of these modules is not there, or cannot be imported."""
    for name in modules:
        try:
            if name not in FOUND_ONLY:
                import_module(name)
            elif find_spec(name) is None:
                raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        except ModuleNotFoundError as error:
            why = "is not installed" if error.name == name else f"needs {error.name}, which is not installed"
            raise Skipped(f"{name} {why}") from None
        except Exception as error:  # A library without its driver fails in any way it likes.
            raise Skipped(f"{name} cannot be imported: {type(error).__name__}: {first_line(error)}") from None


def require_served(run: Run) -> None:
    """Raises: Skipped: no Triton can serve here."""
    require(SERVED)
    import numpy

    from trimodal.server.installation import find_triton

    try:
        triton = find_triton()
    except ServerError as error:
        raise Skipped(f"{error}; bare engines alone are measured") from None
    if triton.is_wheel and int(numpy.__version__.partition(".")[0]) > 1:
        raise Skipped(
            f"Triton 2.51 of nvidia-pytriton serves with numpy below 2, and {numpy.__version__} is here; "
            "bare engines alone are measured"
        )


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0][:300]
