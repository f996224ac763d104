"""Finds which of ONNX Runtime's options for convolutions are quickest on this GPU, with the bare classifier.

They are parameters of vision_classify; what is best depends on the network and the card.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from trimodal.bench.common.bare_process import BareProcess, Works
from trimodal.bench.common.closed_loop import LoopRound, summarise_loops
from trimodal.bench.common.samples import paired_ratio
from trimodal.bench.vision.sides import random_pixels
from trimodal.runtimes.onnx_session import Device
from trimodal.vision.settings import ClassifySettings

PLAIN = "plain"
CHOICES: dict[str, dict[str, bool]] = {
    PLAIN: {},
    "prefer_nhwc": {"prefer_nhwc": True},
    "fuse_conv_bias": {"fuse_conv_bias": True},
    "both": {"prefer_nhwc": True, "fuse_conv_bias": True},
}


def open_engine_alone(directory: Path, settings: ClassifySettings) -> Works:
    """`engine` on a batch of random pixels; opened in a process of its own."""
    from trimodal.vision.artefact import read_classifier
    from trimodal.vision.engines.protocol import open_engine, runtime_of

    engine = open_engine(read_classifier(directory, runtime=runtime_of(settings.engine)), settings)
    pixels = random_pixels(directory)

    def run(batch: int, number: int) -> None:
        engine.classify(pixels[[(number * batch + index) % len(pixels) for index in range(batch)]])

    return {"engine": run}


async def measure(
    directory: Path,
    device: Device,
    console: Console,
    *,
    batches: Sequence[int],
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    """All choices in turn in every round; `ratio` is a choice's images a second over those of `plain`.

    Raises:
        OperatorError: an engine cannot be opened.
    """
    found: dict[tuple[str, int], list[LoopRound]] = {}
    with ExitStack() as stack:
        processes = {}
        for name, choice in CHOICES.items():
            settings = ClassifySettings(
                artefact=str(directory), device=device, warm_up_batch_sizes=tuple(batches), **choice
            )
            processes[name] = stack.enter_context(BareProcess(open_engine_alone, directory, settings))
        for index in range(rounds + 1):  # round 0 warms up
            for batch in batches:
                for name, process in processes.items():
                    one = await process.run("engine", batch=batch, seconds=seconds)
                    if index:
                        found.setdefault((name, batch), []).append(one)
    table = Table(title="vision_classify, bare: options of ONNX Runtime on CUDA")
    for column in ("batch", "option", "img/s", "p50 ms", "/plain"):
        table.add_column(column, justify="left" if column == "option" else "right")
    figures: dict[str, Any] = {}
    for (name, batch), some in found.items():
        summary = summarise_loops(some)
        ratio = paired_ratio(some, found[PLAIN, batch], lambda one: one.rate)
        figures[f"{name}_{batch}"] = {**asdict(summary), "ratio": ratio}
        table.add_row(str(batch), name, f"{summary.rate:.1f}", f"{summary.p50:.2f}", f"{ratio:.3f}")
    console.print(table)
    return figures
