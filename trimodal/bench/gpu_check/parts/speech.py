"""Measures Whisper: log-mel features, every engine that is there, and the served recogniser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from trimodal.bench.gpu_check.parts.vision import artefact, require_onnxruntime
from trimodal.bench.gpu_check.steps import Run, Skipped, Step, require_served
from trimodal.bench.gpu_check.timing import timed

WINDOW_S = 5.0
BATCHES = (1, 2, 4, 8, 16)
SMALL = (1, 2)
# Engine → its artefact.
ARTEFACTS = {"ctranslate2": "speech", "onnxruntime": "speech-onnx", "torch": "speech-torch"}


def features(run: Run) -> Mapping[str, Any]:
    """Log-mel features of one window, on the processor."""
    from trimodal.bench.gpu_check.answers import windows
    from trimodal.speech.whisper.features import log_mel

    (samples,) = windows(WINDOW_S, 1)
    found = {}
    for bands in (80, 128):
        call = partial(log_mel, samples, WINDOW_S, bands)
        found[f"log_mel_{bands}"] = timed(call, items=1, seconds=min(run.seconds, 0.5), rounds=run.rounds)
    return found


def open_and_hear(engine: str, directory: Path, device: str) -> dict[str, float]:
    """Seconds until the engine is open, and of its first window; called in a process of its own."""
    began = time.perf_counter()
    with closing(_open(engine, directory, device, 1)) as opened:
        at = time.perf_counter()
        _hear(opened, 1)()
        return {"open_s": at - began, "first_window_s": time.perf_counter() - at}


def _open(engine: str, directory: Path, device: str, batch: int) -> Any:
    from trimodal.speech.engines.protocol import open_engine
    from trimodal.speech.settings import RecogniseSettings

    given = {"artefact": str(directory), "engine": engine, "device": device, "max_batch_windows": batch}
    return open_engine(directory, RecogniseSettings.model_validate(given))


def _hear(opened: Any, batch: int) -> Callable[[], object]:
    from trimodal.bench.gpu_check.answers import windows
    from trimodal.speech.values import Window

    return partial(opened.recognise, [Window(samples) for samples in windows(WINDOW_S, batch)])


def engine(name: str, run: Run) -> Mapping[str, Any]:
    """One engine in this process: two starts (the first may compile), its answers, and windows a second."""
    from trimodal.bench.gpu_check import answers
    from trimodal.speech.engines.protocol import ENGINES

    if name not in ENGINES:
        raise Skipped(f"this version has no speech engine {name}")
    if name == "onnxruntime":
        require_onnxruntime(run)
    directory = artefact(run, ARTEFACTS[name])
    found: dict[str, Any] = {}
    for start in ("first_start", "second_start") if run.full else ():
        # CTranslate2 4.8.5 has no machine code for Hopper: the driver compiles its PTX, and keeps that.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found[start] = pool.submit(open_and_hear, name, directory, run.device).result()
    found["answers"] = answers.speech(directory, name, run.device)
    sizes = BATCHES if run.full else SMALL
    with closing(_open(name, directory, run.device, max(sizes))) as opened:
        for batch in sizes:
            call = _hear(opened, batch)
            found[f"engine_{batch}"] = timed(call, items=batch, seconds=run.seconds, rounds=run.rounds)
    return found


def served(run: Run) -> Mapping[str, Any]:
    """Windows of 5 s through Triton, one by one and 8 at once, beside the engine alone."""
    require_served(run)
    from rich.console import Console

    from trimodal.bench.speech.bench import measure
    from trimodal.bench.speech.figures import Plan
    from trimodal.paths import default_repository

    samples = default_repository().resolve().parent / "build" / "demo" / "speech" / "samples"
    if not samples.is_dir():
        raise Skipped(f"{samples} is not here")
    folder = str(artefact(run, "speech"))
    recognize = {"artefact": folder, "engine": "ctranslate2", "device": run.device}
    plan = Plan(
        streams=(4,) if run.full else (1,),
        seconds=30.0 if run.full else 5.0,
        samples=samples,
        direct=True,
        window_s=(WINDOW_S,),
        batch=8 if run.full else 2,
        rounds=run.rounds,
        loop_s=run.seconds,
        changes={"speech_recognize": recognize},
        profile="cuda",
    )
    return asyncio.run(measure(plan, Console()))


BUILT = ("torch", "transformers", "tokenizers", "safetensors", "pydantic", "rich", "typer", "soundfile")
"""What building a recogniser from a checkpoint and opening it need."""

STEPS = (
    Step("features", features, ("numpy",)),
    Step("ctranslate2", partial(engine, "ctranslate2"), (*BUILT, "ctranslate2")),
    Step("onnxruntime", partial(engine, "onnxruntime"), (*BUILT, "onnxruntime", "onnx", "onnxscript")),
    Step("torch", partial(engine, "torch"), BUILT),
    Step("served", served, (*BUILT, "ctranslate2", "faster_whisper")),
)
