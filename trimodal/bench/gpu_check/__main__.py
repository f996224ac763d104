"""Measures profile cuda on this machine in one go: vision, embedding and speech, each beside its bare engine.

    scripts/gpu_check                    on a machine with a GPU: makes an environment and runs this in it
    scripts/gpu_check --device cpu       a rehearsal: the same steps and files, small numbers, no GPU

The engines' answers are compared with the processor's first. Then each part is served by the embedded
Triton and takes turns with the same engine without a server; vision with the network in torch too. A
part that fails is written down and the others go on.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.gpu_check import answers
from trimodal.bench.gpu_check.artefacts import Artefact, artefacts, provide
from trimodal.bench.gpu_check.report import machine, write
from trimodal.errors import OperatorError, TrimodalError
from trimodal.manifest import read_manifest
from trimodal.runtimes.gpu_device import visible_gpus
from trimodal.runtimes.onnx_session import Device
from trimodal.server.artefacts import TASKS
from trimodal.server.options import Profile

PROFILE: Profile = "cuda"


@dataclass(frozen=True)
class Run:
    """One part under way: the artefact's directory, and how long to measure."""

    directory: Path
    device: Device
    seconds: float
    rounds: int
    samples: Path
    console: Console

    @property
    def full(self) -> bool:
        """False in a rehearsal, whose numbers mean nothing: everything once, and small."""
        return self.device == "cuda"


async def vision(run: Run) -> dict[str, Any]:
    """Batches of 1 to 64 through the ensemble and the classifier alone, beside ONNX Runtime and torch."""
    from trimodal.bench.vision.bench import measure
    from trimodal.bench.vision.tables import Plan

    folder = str(run.directory)
    changes = {
        "vision_preprocess": {"classifier": folder},
        "vision_classify": {"artefact": folder, "engine": "onnxruntime", "device": run.device},
        "vision_rank": {"classifier": folder},
    }
    plan = Plan(
        concurrency=(1, 8, 32, 64) if run.full else (1, 4),
        batches=(8, 16, 32, 64) if run.full else (4,),
        rounds=run.rounds,
        seconds=run.seconds,
        bare=True,
        width=224,
        height=224,
        changes=changes,
        profile=PROFILE,
        torch=True,
        pixels=True,
        max_batch=64 if run.full else 4,
    )
    return await measure(plan, run.console)


async def vision_options(run: Run) -> dict[str, Any]:
    """The bare classifier with each of ONNX Runtime's options for convolutions on CUDA."""
    from trimodal.bench.vision.session_options import measure

    batches = (1, 16, 64) if run.full else (1,)
    return await measure(run.directory, run.device, run.console, batches, run.rounds, run.seconds)


async def embedding(run: Run) -> dict[str, Any]:
    """Texts of 16 words from 1 to 32 clients."""
    from trimodal.bench.embedding import Plan, measure

    plan = Plan(
        concurrency=(1, 8, 32) if run.full else (1, 4),
        words=16,
        rounds=run.rounds,
        seconds=run.seconds,
        bare=True,
        changes={"artefact": str(run.directory), "engine": "onnxruntime", "device": run.device},
        profile=PROFILE,
    )
    return await measure(plan, run.console)


async def speech(run: Run) -> dict[str, Any]:
    """Windows of 5 s, one by one and 8 at once, beside the bare engine and (CTranslate2) faster-whisper."""
    from trimodal.bench.speech.bench import measure
    from trimodal.bench.speech.figures import Plan

    engine = read_manifest(run.directory, task="speech", runtime=None).runtime
    recognize = {"artefact": str(run.directory), "engine": engine, "device": run.device}
    plan = Plan(
        streams=(4,) if run.full else (1,),
        seconds=30.0 if run.full else 5.0,
        samples=run.samples,
        direct=True,
        window_s=(5.0,),
        batch=8 if run.full else 2,
        rounds=run.rounds,
        loop_s=run.seconds,
        changes={"speech_recognize": recognize},
        profile=PROFILE,
    )
    return await measure(plan, run.console)


# Part → what measures it, and the artefact that it measures.
PARTS: dict[str, tuple[Callable[[Run], Coroutine[Any, Any, dict[str, Any]]], str]] = {
    "vision": (vision, "vision"),
    "vision-options": (vision_options, "vision"),
    "embedding": (embedding, "embedding"),
    "speech": (speech, "speech"),
    "speech-onnx": (speech, "speech-onnx"),
}

# Part → what compares its engine's answers first.
ANSWERS: dict[str, Callable[[Run], dict[str, float]]] = {
    "vision": lambda run: answers.vision(run.directory, run.device),
    "embedding": lambda run: answers.embedding(run.directory, run.device),
    "speech": lambda run: answers.speech(run.directory, run.device, run.samples),
    "speech-onnx": lambda run: answers.speech(run.directory, run.device, run.samples),
}


def measure_part(
    name: str, artefact: Artefact, options: argparse.Namespace, console: Console
) -> dict[str, Any]:
    """Figures of a part, and what was measured; `error` where it failed."""
    measure, _ = PARTS[name]
    began = time.monotonic()
    console.rule(f"{name}: {' '.join((measure.__doc__ or '').split())}")
    try:
        directory = provide(artefact, options.engines, console)
        manifest = read_manifest(directory, task=TASKS[artefact.model], runtime=None)
        found: dict[str, Any] = {"artefact": manifest.model_dump(include={"source", "precision", "command"})}
        run = Run(directory, options.device, options.seconds, options.rounds, options.samples, console)
        if name in ANSWERS:
            found["answers"] = ANSWERS[name](run)
            told = ", ".join(f"{key} {value:.5f}" for key, value in found["answers"].items())
            console.print(f"answers against the processor's: {told}")
        found["figures"] = asyncio.run(measure(run))
    except TrimodalError as error:
        found = {"error": str(error)}
    except Exception as error:  # One part's surprise must not cost the others' figures.
        console.print_exception()
        found = {"error": f"{type(error).__name__}: {error}"}
    if "error" in found:
        console.print(f"{name} failed: {found['error']}", style="red", markup=False)
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="repeatable; all of them")
    out = Path("artefacts/gpu_check")
    parser.add_argument("--out", type=Path, default=out, help="for gpu_check.json, .md")
    parser.add_argument("--engines", type=Path, help="for what is built; OUT/engines")
    parser.add_argument(
        "--artefact", action="append", default=[], metavar="NAME=DIR",
        help="one that is built already; names: vision, embedding, speech, speech-onnx",
    )  # fmt: skip
    samples = Path("build/demo/speech/samples")
    parser.add_argument("--whisper", type=Path, default=samples.parent, help="checkpoint of speech")
    parser.add_argument("--samples", type=Path, default=samples, help="recordings, with samples.json")
    parser.add_argument("--seconds", type=float, help="of each case in each round; 2, rehearsal 0.2")
    parser.add_argument("--rounds", type=int, help="counted rounds; 3, rehearsal 1")
    options = parser.parse_args(given)
    full = options.device == "cuda"
    seconds, rounds = (2.0, 3) if full else (0.2, 1)
    options.seconds = seconds if options.seconds is None else options.seconds
    options.rounds = rounds if options.rounds is None else options.rounds
    if not (0 < options.seconds <= 3600 and options.rounds > 0):
        parser.error("--seconds must be above 0, at most 3600, and --rounds at least 1")
    options.engines = options.engines or options.out / "engines"
    options.part = options.part or list(PARTS)
    return options


def main(given: list[str] | None = None) -> int:
    """0 when every part was measured."""
    options, console = arguments(given), Console(highlight=False)
    try:
        if options.device == "cuda" and not visible_gpus():
            raise OperatorError("CUDA_VISIBLE_DEVICES hides every GPU")
        known = artefacts(options.device, options.whisper, options.artefact)
        about = machine(options.device)
        write(options.out, about, {})  # now: not being able to is told before anything is measured
    except (OperatorError, OSError) as error:
        console.print(f"gpu_check: {error} (--device cpu rehearses without a GPU)", style="red", markup=False)
        return 1
    parts: dict[str, Any] = {}
    for name in options.part:
        parts[name] = measure_part(name, known[PARTS[name][1]], options, console)
        write(options.out, about, parts)  # after each part: a run that is cut off leaves what it has
    console.print(f"written: {options.out / 'gpu_check.json'}, {options.out / 'gpu_check.md'}")
    return int(any("error" in part for part in parts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
