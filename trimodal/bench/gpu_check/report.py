"""Writes what gpu_check found, with the machine, as JSON and as Markdown tables."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trimodal.runtimes.gpu_device import current_gpu
from trimodal.runtimes.gpu_libraries import installed
from trimodal.runtimes.onnx_session import Device

PACKAGES = (
    "onnxruntime-gpu", "onnxruntime", "ctranslate2", "faster-whisper", "torch", "nvidia-pytriton", "numpy",
    "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cublas-cu12", "tokenizers",
)  # fmt: skip
SUMMARY = {"rate", "p50", "p95", "p99"}


def machine(device: Device) -> dict[str, Any]:
    """Processor, GPU, driver and versions; `rehearsal` when the GPU had no part in it."""
    gpu = current_gpu() if device == "cuda" else None
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "rehearsal": device == "cpu",
        "gpu": None if gpu is None else f"{gpu.name}, {gpu.memory / 2**30:.0f} GiB, SM {gpu.sm}",
        "driver": None if gpu is None else gpu.driver,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := installed(name))},
    }


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


def markdown(about: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Writes the report: the machine, then a table for each part. Times are in milliseconds."""
    lines = ["# gpu_check", ""]
    if about["rehearsal"]:
        lines += ["**A rehearsal on the processor: its numbers say nothing of any GPU.**", ""]
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    lines += [f"- {key}: {about[key]}" for key in ("date", "gpu", "driver", "processor", "cores", "python")]
    lines += [f"- packages: {packages}", ""]
    for name, part in parts.items():
        lines += [f"## {name}", ""]
        if "error" in part:
            lines += [f"Failed after {part['seconds']} s: {part['error']}", ""]
            continue
        made = part["artefact"]
        lines += [f"{made['source']}, {made['precision']} (`{made['command']}`); {part['seconds']} s", ""]
        if told := ", ".join(f"{key} {value:.5f}" for key, value in part.get("answers", {}).items()):
            lines += [f"Answers against the processor's: {told}", ""]
        lines += ["| case | items/s | p50 ms | p95 ms | p99 ms | ratio to |", "|---|---:|---:|---:|---:|---|"]
        for case, one in rows(part["figures"]):
            times = " | ".join(f"{one[key]:.2f}" for key in ("p50", "p95", "p99"))
            lines.append(f"| {case} | {one['rate']:.1f} | {times} | {_ratio(one.get('ratio'))} |")
        lines.append("")
    return "\n".join(lines)


def _ratio(ratio: Any) -> str:
    if isinstance(ratio, Mapping):
        return ", ".join(f"{name} {value:.3f}" for name, value in ratio.items())
    return "" if ratio is None else f"{ratio:.3f}"


def write(out: Path, about: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """`gpu_check.json` and `gpu_check.md` in `out`, which is made."""
    out.mkdir(parents=True, exist_ok=True)
    everything = {"machine": about, "parts": parts}
    (out / "gpu_check.json").write_text(json.dumps(everything, indent=2, default=str) + "\n")
    (out / "gpu_check.md").write_text(markdown(about, parts))
