"""Writes what gpu_check found, with the machine, as JSON and as Markdown tables."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trimodal.bench.gpu_check.part import write_json
from trimodal.errors import ServerError
from trimodal.runtimes.gpu_device import visible_gpus

SUMMARY = {"rate", "p50", "p95", "p99"}
ENDINGS = ("skipped", "error")


def machine(device: str) -> dict[str, Any]:
    """Processor, GPU and driver; `rehearsal` when the GPU has no part in it.

    Raises:
        ServerError: there is no GPU, or no driver.
    """
    told = {"gpu": "", "driver": ""}
    if device == "cuda":
        told = _gpu()
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "rehearsal": device == "cpu",
        **told,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def _gpu() -> dict[str, str]:
    try:
        import pynvml  # noqa: F401
    except ImportError:
        return {"gpu": "not told: nvidia-ml-py is not installed", "driver": ""}
    if not (gpus := visible_gpus()):
        raise ServerError("CUDA_VISIBLE_DEVICES hides every GPU")
    gpu = gpus[0]
    return {"gpu": f"{gpu.name}, {gpu.memory / 2**30:.0f} GiB, SM {gpu.sm}", "driver": gpu.driver}


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)", file.read_text() if file.exists() else "", re.MULTILINE)
    return found[1] if found else platform.machine()


def rows(figures: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every summary of rounds in the figures of a bench, however deep, with the keys that lead to it."""
    for key, value in figures.items():
        if isinstance(value, Mapping):
            path = f"{name} {key}".strip()
            if set(value) >= SUMMARY:
                yield path, value
            else:
                yield from rows(value, path)


def others(figures: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure that is in no summary, with the keys that lead to it; not what was asked for."""
    for key, value in figures.items():
        path = f"{name} {key}".strip()
        if isinstance(value, Mapping):
            if key != "plan" and not set(value) >= SUMMARY:
                yield from others(value, path)
        elif not isinstance(value, list) and path not in ("seconds", "machine"):
            yield path, value


def markdown(about: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Writes the report: the machine, then the steps of each part. Times are in milliseconds."""
    lines = ["# gpu_check", ""]
    if about["rehearsal"]:
        lines += ["**A rehearsal on the processor: its numbers say nothing of any GPU.**", ""]
    lines += [f"- {key}: {value}" for key, value in about.items() if key != "rehearsal"] + [""]
    for name, part in parts.items():
        lines += [f"## {name}", ""]
        for step, outcome in part["steps"].items():
            ending = next((key for key in ENDINGS if key in outcome), None)
            if ending:
                lines += [f"**{step}** {ending}: {outcome[ending]}", ""]
                continue
            lines += [f"**{step}**, {outcome['seconds']} s", ""]
            if told := ", ".join(f"{key} {_shown(value)}" for key, value in others(outcome)):
                lines += [told, ""]
            lines += _table(dict(rows(outcome)))
        if "error" in part:
            lines += [f"**{name}** did not end well after {part['seconds']} s: {part['error']}", ""]
    return "\n".join(lines)


def _table(cases: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not cases:
        return []
    lines = ["| case | items/s | p50 ms | p95 ms | p99 ms | ratio to |", "|---|---:|---:|---:|---:|---|"]
    for case, one in cases.items():
        times = " | ".join(f"{one[key]:.2f}" for key in ("p50", "p95", "p99"))
        lines.append(f"| {case} | {one['rate']:.1f} | {times} | {_ratio(one.get('ratio'))} |")
    return [*lines, ""]


def _shown(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _ratio(ratio: Any) -> str:
    if isinstance(ratio, Mapping):
        return ", ".join(f"{name} {value:.3f}" for name, value in ratio.items())
    return "" if ratio is None else f"{ratio:.3f}"


def write(out: Path, about: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """`gpu_check.json` and `gpu_check.md` in `out`, which is made."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "gpu_check.json", {"machine": about, "parts": parts})
    (out / "gpu_check.md").write_text(markdown(about, parts))
