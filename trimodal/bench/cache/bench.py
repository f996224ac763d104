"""`trimodal bench cache`: measures how often the semantic cache is right on labelled pairs of questions.

Each pair is judged as the cache would judge it if one question's answer were stored and the other asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from trimodal.bench.cache.pairs import (
    CLASSES,
    CONFIDENCE,
    SAME,
    Measured,
    calibrate,
    hard,
    measure_pairs,
    read_pairs,
    share,
)
from trimodal.bench.common.serving import built, settings_of
from trimodal.bench.common.tables import make_table
from trimodal.cache.calibration import SHIPPED, Calibration
from trimodal.cache.guard.guard import Guard
from trimodal.embedding.engines.protocol import TextEmbedder, open_engine
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import OperatorError
from trimodal.manifest import read_manifest
from trimodal.paths import default_repository
from trimodal.repository import read_model

PARTS = Path(__file__).with_name("data")
GOAL_FALSE, GOAL_HITS = 0.01, 0.40
"""Upper bound of false hits among near-identical pairs, and the rate of hits among paraphrases."""


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
        OperatorError: no pairs, no built embedding engine, or no threshold that keeps the bound.
    """
    path = plan.pairs or PARTS / f"{plan.part}.jsonl"
    pairs = read_pairs(path)
    embedder, checkpoint = _open(plan.artefact)
    measured = await asyncio.to_thread(measure_pairs, pairs, embedder, Guard(plan.max_false_hit, checkpoint))
    if plan.calibrate:
        try:
            calibration = calibrate(measured, checkpoint, path.name)
        except ValueError as error:
            raise OperatorError(f"{path}: {error}") from None
        _write(plan.calibrate, calibration)
    else:
        calibration = Calibration.read(plan.calibration or SHIPPED, checkpoint)
    threshold = calibration.threshold(plan.max_false_hit)
    figures = _figures(measured, threshold, path.name, checkpoint)
    _print(figures, console)
    _tell(measured, threshold, plan.show, console)
    if not plan.accuracy_only:
        from trimodal.bench.cache import latency

        figures["latency"] = await latency.measure(console)
    return figures


def _open(artefact: Path | None) -> tuple[TextEmbedder, str]:
    """Opens the repository's embedding engine on the CPU; returns also the checkpoint behind it."""
    model = read_model(default_repository(), "embedding", "cpu")
    settings = settings_of(EmbeddingSettings, model)
    directory = artefact or built(model, settings.artefact)
    manifest = read_manifest(directory, task="embedding", runtime=None)
    return open_engine(directory, settings), manifest.source_sha256


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


def _figures(measured: Sequence[Measured], threshold: float, source: str, checkpoint: str) -> dict[str, Any]:
    by_class = {kind: [one for one in measured if one.pair.kind == kind] for kind in CLASSES}

    def plain(some: Sequence[Measured], *, guarded: bool = True) -> dict[str, Any]:
        found = share(some, threshold, guarded=guarded)
        return {**asdict(found), "rate": found.rate, "bounds": list(found.bounds)}

    return {
        "pairs": source,
        "checkpoint_sha256": checkpoint,
        "threshold": threshold,
        "confidence": CONFIDENCE,
        "without_guard": {kind: plain(some, guarded=False) for kind, some in by_class.items()},
        "with_guard": {kind: plain(some) for kind, some in by_class.items()},
        "false_hits": plain(hard(measured)),
        "false_hits_without_guard": plain(hard(measured), guarded=False),
        "hits": plain([one for one in measured if one.pair.label == "same"]),
        "reasons": dict(Counter(one.reason or "passed" for one in measured if one.cosine >= threshold)),
        "false_hit_ids": [one.pair.id for one in _false_hits(measured, threshold)],
    }


def _false_hits(measured: Sequence[Measured], threshold: float) -> list[Measured]:
    near = (one for one in measured if one.cosine >= threshold and not one.reason)
    return [one for one in near if one.pair.label == "different"]


def _print(figures: Mapping[str, Any], console: Console) -> None:
    title = f"semantic cache on {figures['pairs']}: cosine of at least {figures['threshold']:.2f}"
    table = make_table(title, "class|pairs|threshold alone|with guard|rate|95 % bounds")
    rows = [(kind, figures["without_guard"][kind], one) for kind, one in figures["with_guard"].items()]
    rows.append(("all near-identical", figures["false_hits_without_guard"], figures["false_hits"]))
    for name, without, one in rows:
        if one["pairs"]:
            low, high = one["bounds"]
            counts = map(str, (one["pairs"], without["hits"], one["hits"]))
            last = name in (SAME[-1], "unrelated")
            table.add_row(name, *counts, f"{one['rate']:.1%}", f"{low:.2%} … {high:.2%}", end_section=last)
    console.print(table)
    false, hits = figures["false_hits"], figures["hits"]
    if false["pairs"]:
        bound = false["bounds"][1]
        console.print(
            f"false hits: {false['hits']} of {false['pairs']} near-identical pairs, at most {bound:.2%} with "
            f"95 % confidence: the goal of {GOAL_FALSE:.0%} is {'met' if bound <= GOAL_FALSE else 'missed'}"
        )
    if hits["pairs"]:
        console.print(
            f"hits: {hits['hits']} of {hits['pairs']} paraphrases, {hits['rate']:.1%}: "
            f"the goal of {GOAL_HITS:.0%} is {'met' if hits['rate'] >= GOAL_HITS else 'missed'}"
        )


def _tell(measured: Sequence[Measured], threshold: float, most: int, console: Console) -> None:
    """Prints the questions behind the figures."""
    missed = [one for one in measured if one.pair.label == "same" and (one.reason or one.cosine < threshold)]
    for title, found in (("false hit", _false_hits(measured, threshold)), ("missed", missed)):
        for one in found[:most]:
            why = one.reason or ("below the threshold" if one.cosine < threshold else "passed")
            console.print(
                f"{title} {one.pair.id} ({one.cosine:.2f}, {why}): {one.pair.a} | {one.pair.b}", markup=False
            )
