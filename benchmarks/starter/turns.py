"""Makes the table "End of turn by audio": recordings, whole and cut in the middle of a word, told apart.

python -m benchmarks.starter.turns
python -m benchmarks.starter.turns DIRECTORY_OF_RECORDINGS --at 0.55 --threads 1
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.common import SAMPLES, run_command
from benchmarks.tables import make_table
from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE
from trimodal.paths import artefact_root
from trimodal.turn.engines.onnxruntime import open_engine
from trimodal.turn.engines.protocol import WINDOW
from trimodal.turn.settings import TurnSettings

PAUSE = np.zeros(SAMPLE_RATE // 5, np.float32)
KINDS = (".wav", ".flac", ".ogg")


def main(
    recordings: Annotated[Path, typer.Argument(help="directory; each ends with a sentence")] = SAMPLES,
    at: Annotated[float, typer.Option(min=0.05, max=0.95, help="share of a recording that is kept")] = 0.55,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Prints how well ends of turns are told from cuts (AUC), and what a judgement takes."""
    settings = TurnSettings(artefact="onnx-int8", intra_op_threads=threads)
    engine = open_engine(artefact_root("turn") / settings.artefact, settings)
    found: dict[str, list[float]] = {"whole": [], "cut": []}
    times = []
    for file in sorted(one for one in recordings.rglob("*") if one.suffix in KINDS):
        samples = np.concatenate(list(read_blocks(file, 10.0)))
        for name, share in (("whole", 1.0), ("cut", at)):
            heard = np.concatenate([samples[: round(share * len(samples))], PAUSE])[-WINDOW:]
            began = time.perf_counter()
            found[name].append(float(engine.judge([heard])[0]))
            times.append(1e3 * (time.perf_counter() - began))
    whole, cut = (np.array(values) for values in found.values())
    if not len(whole):
        raise SystemExit(f"{recordings} holds no recording")
    auc = np.mean((whole[:, None] > cut) + 0.5 * (whole[:, None] == cut))
    columns = "recordings|AUC|whole above 0.5|cut above 0.5|p50 (ms)|p95 (ms)"
    table = make_table("end of turn by audio", columns)
    p50, p95 = np.percentile(times, (50, 95))
    shares = (f"{np.mean(values > 0.5):.0%}" for values in (whole, cut))
    table.add_row(str(len(whole)), f"{auc:.3f}", *shares, f"{p50:.0f}", f"{p95:.0f}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    run_command(main)
