"""`trimodal bench cache`: measures how often the semantic cache is right on labelled pairs of questions.

Each pair is judged as the cache would judge it if one question's answer were stored and the other asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from trimodal.bench.cache.pairs import (
    CLASSES,
    CONFIDENCE,
    SAME,
    Bar,
    Measured,
    calibrate,
    hard,
    least_cosine,
    measure_pairs,
    read_pairs,
    rewordings,
    share,
)
from trimodal.bench.common.serving import built, settings_of
from trimodal.cache.calibration import FILE, Calibration
from trimodal.cache.semantic.decision import LEAST_SIMILARITY
from trimodal.embedding.engines import protocol as embedding_engines
from trimodal.embedding.engines.protocol import TextEmbedder
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import OperatorError
from trimodal.judge.engines import protocol as judge_engines
from trimodal.judge.engines.protocol import PairJudge
from trimodal.judge.settings import JudgeSettings
from trimodal.manifest import read_manifest
from trimodal.paths import default_repository
from trimodal.report.console import make_table
from trimodal.repository import read_model

DATA = Path(__file__).with_name("data")
PARTS = {"report": tuple(f"sealed_{number}.jsonl" for number in range(1, 6)), "tune": ("tune.jsonl",)}
"""Part → its files: what nothing was chosen on, and a part of what the judge was trained on."""
GOAL_FALSE, GOAL_HITS = 0.01, 0.50
"""Upper bound of false hits among near-identical pairs, and the rate of hits among rewordings."""


@dataclass(frozen=True)
class Plan:
    """What to measure, as the options of `trimodal bench cache` say; `part` counts without `pairs`."""

    part: Literal["report", "tune"] = "report"
    pairs: Path | None = None
    calibration: Path | None = None
    calibrate: Path | None = None
    max_false_hit: float = GOAL_FALSE
    artefact: Path | None = None
    accuracy_only: bool = False
    show: int = 0


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data.

    Raises:
        OperatorError: no pairs, an engine that is not built, or no threshold that keeps the bound.
    """
    files = [plan.pairs] if plan.pairs else [DATA / name for name in PARTS[plan.part]]
    pairs = [pair for path in files for pair in read_pairs(path)]
    named = ", ".join(path.name for path in files)
    judge, directory = _open_judge(plan.artefact)
    checkpoint = read_manifest(directory, task="judge", runtime=None).source_sha256
    calibration = _known(plan.calibration or directory / FILE, checkpoint, plan)
    languages = calibration.languages if calibration else ("en",)
    measured = await asyncio.to_thread(measure_pairs, pairs, _open_embedder(), judge, languages)
    if plan.calibrate:
        try:
            calibration = calibrate(measured, checkpoint, named, languages)
        except ValueError as error:
            raise OperatorError(f"{named}: {error}") from None
        _write(plan.calibrate, calibration)
    assert calibration
    threshold = calibration.threshold(plan.max_false_hit)
    bars = {
        "cosine alone": Bar(least_cosine(measured, plan.max_false_hit)),
        "judge": Bar(LEAST_SIMILARITY, threshold, calibration.foreign_threshold),
    }
    figures = _figures(measured, bars, named, checkpoint)
    _print(figures, console)
    _tell(measured, bars["judge"], plan.show, console)
    if not plan.accuracy_only:
        from trimodal.bench.cache import latency

        figures["latency"] = await latency.measure(console)
    return figures


def _open_embedder() -> TextEmbedder:
    model = read_model(default_repository(), "embedding", "cpu")
    settings = settings_of(EmbeddingSettings, model)
    return embedding_engines.open_engine(built(model, settings.artefact), settings)


def _open_judge(artefact: Path | None) -> tuple[PairJudge, Path]:
    """Opens the repository's judge on the CPU, or that in `artefact`; returns also where it lies."""
    model = read_model(default_repository(), "judge", "cpu")
    settings = settings_of(JudgeSettings, model)
    directory = artefact or built(model, settings.artefact)
    return judge_engines.open_engine(directory, settings), directory


def _known(path: Path, checkpoint: str, plan: Plan) -> Calibration | None:
    """The calibration of the judge; None: there is none yet, and one is being made."""
    if plan.calibrate and not path.is_file():
        return None
    return Calibration.read(path, checkpoint)


def _write(path: Path, calibration: Calibration) -> None:
    text = (
        calibration.model_dump_json()
        .replace("[{", "[\n  {")
        .replace("},{", "},\n  {")
        .replace("}]}", "}\n]}")
    )
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"--calibrate {path}: cannot be written ({error.strerror})") from None


def _figures(
    measured: Sequence[Measured], bars: Mapping[str, Bar], source: str, checkpoint: str
) -> dict[str, Any]:
    def plain(some: Sequence[Measured], bar: Bar) -> dict[str, Any]:
        found = share(some, bar)
        return {**asdict(found), "rate": found.rate, "bounds": list(found.bounds)}

    by_class = {kind: [one for one in measured if one.pair.kind == kind] for kind in CLASSES}
    sides = {
        name: {
            "cosine": bar.cosine,
            "threshold": bar.score,
            "classes": {kind: plain(some, bar) for kind, some in by_class.items()},
            "false_hits": plain(hard(measured), bar),
            "hits": plain(rewordings(measured), bar),
        }
        for name, bar in bars.items()
    }
    return {
        "pairs": source,
        "checkpoint_sha256": checkpoint,
        "confidence": CONFIDENCE,
        "sides": sides,
        "false_hit_ids": [one.pair.id for one in _false_hits(measured, bars["judge"])],
    }


def _false_hits(measured: Sequence[Measured], bar: Bar) -> list[Measured]:
    return [one for one in measured if one.pair.label == "different" and bar.passes(one)]


def _print(figures: Mapping[str, Any], console: Console) -> None:
    alone, judged = figures["sides"]["cosine alone"], figures["sides"]["judge"]
    title = f"semantic cache on {figures['pairs']}: P(same) of at least {judged['threshold']:.4f}"
    table = make_table(title, f"class|pairs|cosine alone, {alone['cosine']:.2f}|judge|rate|95 % bounds")
    rows = [(kind, alone["classes"][kind], one) for kind, one in judged["classes"].items() if one["pairs"]]
    rows.append(("all near-identical", alone["false_hits"], judged["false_hits"]))
    rows.append(("all rewordings", alone["hits"], judged["hits"]))
    for (name, without, one), (after, *_) in zip(rows, [*rows[1:], ("",)], strict=True):
        low, high = one["bounds"]
        counts = map(str, (one["pairs"], without["hits"], one["hits"]))
        last = (name in SAME) != (after in SAME) or after == "all near-identical"
        table.add_row(name, *counts, f"{one['rate']:.1%}", f"{low:.2%} … {high:.2%}", end_section=last)
    console.print(table)
    false, hits = judged["false_hits"], judged["hits"]
    if false["pairs"]:
        bound = false["bounds"][1]
        console.print(
            f"false hits: {false['hits']} of {false['pairs']} near-identical pairs, at most {bound:.2%} with "
            f"95 % confidence: the goal of {GOAL_FALSE:.0%} is {'met' if bound <= GOAL_FALSE else 'missed'}"
        )
    if hits["pairs"]:
        console.print(
            f"hits: {hits['hits']} of {hits['pairs']} rewordings, {hits['rate']:.1%}: "
            f"the goal of {GOAL_HITS:.0%} is {'met' if hits['rate'] >= GOAL_HITS else 'missed'}"
        )


def _tell(measured: Sequence[Measured], bar: Bar, most: int, console: Console) -> None:
    """Prints the questions behind the figures."""
    missed = [one for one in rewordings(measured) if not bar.passes(one)]
    for title, found in (("false hit", _false_hits(measured, bar)), ("missed", missed)):
        for one in found[:most]:
            figures = f"cosine {one.cosine:.2f}, P(same) {one.score:.4f}"
            console.print(f"{title} {one.pair.id} ({figures}): {one.pair.a} | {one.pair.b}", markup=False)
