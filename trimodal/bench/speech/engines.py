"""Compares built recognisers without a server: which engine is quicker on this machine.

    python -m trimodal.bench.speech.engines ARTEFACT ARTEFACT … --samples build/demo/speech/samples

All engines stay open in one process and hear the same windows in turn, so what drifts on the
machine affects all alike. The builds' checks measure word error rates.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console

from trimodal.audio.values import Samples
from trimodal.bench.common.closed_loop import paired_ratio, some
from trimodal.bench.speech.sides import cut_windows
from trimodal.bench.speech.utterances import read_utterances
from trimodal.errors import OperatorError
from trimodal.manifest import read_manifest
from trimodal.report.console import make_table
from trimodal.speech.engines.protocol import SpeechEngine, open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

WINDOWS = 32  # different ones, used round and round


@dataclass(frozen=True)
class Hearing:
    """What one engine took for windows of one length in batches of one size.

    Attributes:
        seconds: wall time a window, the median of all rounds.
        cpu_seconds: of all threads, a window, the median; on a busy machine the steadier figure.
        ratio: median over rounds of the first engine's wall time to this one's: above 1 is quicker.
        words: of all rounds: that engines heard alike much is a condition of the comparison.
    """

    engine: str
    window_s: float
    batch: int
    seconds: float
    cpu_seconds: float
    ratio: float
    words: int


def compare(
    engines: Mapping[str, SpeechEngine],
    audio: Sequence[Samples],
    *,
    windows_s: Sequence[float],
    batches: Sequence[int],
    rounds: int,
) -> list[Hearing]:
    """Rounds in which each engine hears the same batch once; one round before them warms up.

    Args:
        engines: name → open engine; the first is what the others are compared with.
        audio: float32 recordings at 16 kHz, from which windows are cut.
    """
    found = []
    for window_s in windows_s:
        windows = [Window(samples) for samples in cut_windows(audio, window_s, WINDOWS)]
        for batch in batches:
            taken: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
            for number in range(rounds + 1):
                for name, engine in engines.items():
                    once = _hear(engine, some(windows, number, batch))
                    if number:
                        taken[name].append(once)
            first = next(iter(taken.values()))
            for name, times in taken.items():
                walls, cpus, words = zip(*times, strict=True)
                ratio = paired_ratio(first, times, lambda one: one[0])
                per_window = median(walls) / batch, median(cpus) / batch
                found.append(Hearing(name, window_s, batch, *per_window, ratio, sum(words)))
    return found


def _hear(engine: SpeechEngine, windows: Sequence[Window]) -> tuple[float, float, int]:
    """Wall seconds, seconds of all threads, words."""
    wall, cpu = time.perf_counter(), time.process_time()
    heard = engine.recognise(windows)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall, cpu, sum(len(one.words) for one in heard)


def open_artefacts(
    directories: Sequence[Path], *, threads: int, batch: int, device: str = "cpu"
) -> dict[str, SpeechEngine]:
    """Engines by the directories' names, each for the runtime that its manifest names.

    Raises:
        OperatorError: an artefact that cannot be opened.
    """
    engines = {}
    for directory in directories:
        runtime = read_manifest(directory, task="speech", runtime=None).runtime
        given = {"artefact": str(directory), "engine": runtime, "device": device}
        more = {"intra_op_threads": threads, "max_batch_windows": batch}
        settings = RecogniseSettings.model_validate(given | more)
        engines[directory.resolve().name] = open_engine(directory, settings)
    return engines


def show(found: Sequence[Hearing], console: Console) -> None:
    """Prints the table."""
    table = make_table("ms a window; × is against the first engine", "window|batch|engine|wall|CPU|×|words")
    table.title_justify = "left"
    for one in found:
        case = f"{one.window_s:g} s", str(one.batch), one.engine
        times = f"{one.seconds * 1e3:.1f}", f"{one.cpu_seconds * 1e3:.1f}", f"{one.ratio:.2f}"
        table.add_row(*case, *times, str(one.words))
    console.print(table)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("artefacts", nargs="+", type=Path, help="built recognisers; the first is the measure")
    parser.add_argument("--samples", type=Path, required=True, help="folder with samples.json, as the demo's")
    parser.add_argument("--window-s", type=float, nargs="+", default=[5.0], help="lengths of windows")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="windows in a call")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if min(options.rounds, options.threads, *options.batch) < 1:
        parser.error("--rounds, --threads and --batch must be at least 1")
    console = Console()
    try:
        audio = [one.samples for one in read_utterances(options.samples)]
        engines = open_artefacts(
            options.artefacts, threads=options.threads, batch=max(options.batch), device=options.device
        )
        found = compare(
            engines, audio, windows_s=options.window_s, batches=options.batch, rounds=options.rounds
        )
    except OperatorError as error:
        raise SystemExit(f"error: {error}") from None
    show(found, console)


if __name__ == "__main__":
    main()
