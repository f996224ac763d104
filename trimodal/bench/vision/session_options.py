"""Finds which of ONNX Runtime's options for convolutions are quickest on this GPU, with the bare classifier.

They are parameters of vision on profile cuda; what is best depends on the network and the card.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import BareProcess, LoopRound, Works, rate_ratio, some, summarise_loops
from trimodal.bench.vision.sides import random_pixels
from trimodal.report.console import make_table
from trimodal.runtimes.onnx_session import Device
from trimodal.vision.settings import VisionSettings

PLAIN = "plain"
CHOICES: dict[str, dict[str, bool]] = {
    PLAIN: {},
    "prefer_nhwc": {"prefer_nhwc": True},
    "fuse_conv_bias": {"fuse_conv_bias": True},
    "both": {"prefer_nhwc": True, "fuse_conv_bias": True},
}


def open_engine_alone(directory: Path, settings: VisionSettings) -> Works:
    """`engine` on a batch of random pixels; opened in a process of its own."""
    from trimodal.vision.artefact import read_classifier
    from trimodal.vision.engines.protocol import open_engine, runtime_of

    engine = open_engine(read_classifier(directory, runtime=runtime_of(settings.engine)), settings)
    pixels = random_pixels(directory)
    every = range(len(pixels))
    return {"engine": lambda batch, number: engine.classify(pixels[some(every, number, batch)])}


async def measure(
    directory: Path, device: Device, console: Console, batches: Sequence[int], rounds: int, seconds: float
) -> dict[str, Any]:
    """All choices in turn in every round; `ratio` is a choice's images a second over those of `plain`.

    Raises:
        OperatorError: an engine cannot be opened.
    """
    found: dict[tuple[str, int], list[LoopRound]] = defaultdict(list)
    with ExitStack() as stack:
        processes = {}
        for name, choice in CHOICES.items():
            settings = VisionSettings(
                artefact=str(directory), device=device, warm_up_batch_sizes=tuple(batches), **choice
            )
            processes[name] = stack.enter_context(BareProcess(open_engine_alone, directory, settings))
        for index in range(rounds + 1):  # round 0 warms up
            for batch in batches:
                for name, process in processes.items():
                    one = await process.run("engine", batch=batch, seconds=seconds)
                    if index:
                        found[name, batch].append(one)
    title = "vision, bare classifier: options of ONNX Runtime on CUDA"
    table = make_table(title, "batch|option|img/s|p50 ms|/plain")
    figures: dict[str, Any] = {}
    for (name, batch), all_rounds in found.items():
        summary = summarise_loops(all_rounds)
        ratio = rate_ratio(all_rounds, found[PLAIN, batch])
        figures[f"{name}_{batch}"] = {**asdict(summary), "ratio": ratio}
        table.add_row(str(batch), name, f"{summary.rate:.1f}", f"{summary.p50:.2f}", f"{ratio:.3f}")
    console.print(table)
    return figures
