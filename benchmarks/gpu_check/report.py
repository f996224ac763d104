"""Writes what gpu_check found, with the machine, as JSON and as text."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.steps import write_json
from trimodal.errors import ServerError
from trimodal.runtimes.gpu_device import visible_gpus


def machine(device: str) -> dict[str, Any]:
    """Date, and GPU and driver; `rehearsal` when the GPU has no part in it.

    Raises:
        ServerError: there is no GPU, or no driver.
    """
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    found = {"date": date, "rehearsal": device == "cpu", "python": platform.python_version()}
    if device == "cuda":
        if not (gpus := visible_gpus()):
            raise ServerError("CUDA_VISIBLE_DEVICES hides every GPU")
        gpu = gpus[0]
        memory = f"{gpu.memory / 2**30:.0f} GiB"
        found |= {"gpu": f"{gpu.name}, {memory}, SM {gpu.sm}", "driver": gpu.driver}
    return found


def lines(figures: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """A line for each figure of a step, with the keys that lead to it; a case with its percentiles is one."""
    for key, value in figures.items():
        path = f"{name} {key}".strip()
        if isinstance(value, Mapping) and "rate" in value:
            times = ", ".join(f"{one} {value[one]:.2f}" for one in ("p50", "p95", "p99"))
            yield f"  {path}: {value['rate']:.1f} items/s; ms: {times}"
        elif isinstance(value, Mapping):
            yield from lines(value, path)
        elif path != "seconds":
            yield f"  {path}: {value:.5g}" if isinstance(value, float) else f"  {path}: {value}"


def text(about: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """The machine, then the steps of each part."""
    written = [f"{key}: {value}" for key, value in about.items()]
    if about["rehearsal"]:
        written += ["A rehearsal on the processor: its numbers say nothing of any GPU."]
    for name, part in parts.items():
        for step, outcome in part["steps"].items():
            written += ["", f"{name} {step} ({outcome['seconds']} s)", *lines(outcome)]
        if "error" in part:
            written += ["", f"{name} did not end well after {part['seconds']} s: {part['error']}"]
    return "\n".join(written) + "\n"


def write(out: Path, about: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """`gpu_check.json` and `gpu_check.txt` in `out`, which is made."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "gpu_check.json", {"machine": about, "parts": parts})
    (out / "gpu_check.txt").write_text(text(about, parts))
