"""Reports a judge's accuracy by kind: with kinds or domains left out, and on sealed pairs, in Markdown."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from steps.judge.blocks import PARAPHRASE
from steps.judge.data import MIRRORED, Parts, read_files
from steps.judge.example import Example, normalised
from steps.judge.figures import FALSE_SHARE, FAR, Scored, summary, threshold_at, threshold_for

from trimodal.bench.cache.pairs import HARD, SAME, clopper_pearson
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest

if TYPE_CHECKING:
    from steps.judge.train import Schedule

ANY = ("near", PARAPHRASE, MIRRORED)  # kinds of pairs that may be of any other kind
BY_DISGUISE = ("abbreviation", "case", "contraction", "filler", "politeness", "spelling", "typo")


def leave_kinds_out(directory: Path, parts: Parts, folds: int, schedule: Schedule) -> None:
    """Prints accuracy on each kind: of a judge that was trained with it, and of one that never saw it.

    Neither is trained on pairs that may hold any kind (`ANY`); without a kind is also without the pairs of
    other kinds whose sides are reworded by it. Kinds that disguises put on every pair cannot be left out.
    All is measured on held-out domains. `passed` counts what reaches the threshold at which 1 % of the
    near-identical pairs pass that are of none of the fold's kinds: false hits of a kind of difference, found
    rewordings of a kind of sameness.
    """
    train = [
        each for each in parts.train if each.kind not in ANY or (each.kind == PARAPHRASE and each.wordings)
    ]
    told_apart = {*HARD, *SAME} - {*ANY, *BY_DISGUISE}
    kinds = told_apart & {each.kind for each in parts.validation} & {each.kind for each in train}
    dealt = deal(sorted(kinds, key=lambda kind: (kind in SAME, kind)), folds, schedule.seed)
    whole = _measured(directory, train, parts.validation, schedule)
    print(f"trained with every kind: {len(train)} pairs, {_told(whole)}", flush=True)
    rows: list[list[Any]] = []
    for fold in dealt:
        rest = [each for each in train if {each.kind, *each.wordings}.isdisjoint(fold)]
        scored = _measured(directory, rest, parts.validation, schedule)
        print(f"trained without {', '.join(fold)}: {len(rest)} pairs, {_told(scored)}", flush=True)
        rows += [[kind, *_of_kind(whole, kind, fold), *_of_kind(scored, kind, fold)[1:]] for kind in fold]
    order = {kind: at for at, kind in enumerate(whole.kinds())}
    rows.sort(key=lambda row: order[row[0]])
    _print(
        f"{folds} folds of kinds, {schedule.steps} steps",
        ("kind", "pairs", "accuracy with", "passed with", "accuracy without", "passed without"),
        rows,
    )


def leave_domains_out(directory: Path, parts: Parts, folds: int, schedule: Schedule) -> None:
    """Prints figures on domains that were not trained on, for every domain once; then the worst ones."""
    examples = [*parts.train, *parts.validation]
    rows: list[list[Any]] = []
    by_domain: list[tuple[str, int, float]] = []
    for number, fold in enumerate(deal(sorted({each.domain for each in examples}), folds, schedule.seed), 1):
        test = [each for each in examples if each.domain in fold]
        texts = {normalised(text) for each in test for text in each[:2]}
        rest = [
            each
            for each in examples
            if each.domain not in fold and texts.isdisjoint((normalised(each.a), normalised(each.b)))
        ]
        scored = _measured(directory, rest, test, schedule)
        figures = summary(scored)
        rows.append([f"{number} ({len(fold)} domains)", *figures.values()])
        for domain in fold:
            chosen = [at for at, each in enumerate(test) if each.domain == domain]
            right = [(scored.scores[at] >= 0.5) == test[at].same for at in chosen]
            by_domain.append((domain, len(right), float(np.mean(right))))
    _print(f"{folds} folds of domains, {schedule.steps} steps", ("fold", *figures), rows)
    by_domain.sort(key=lambda row: row[2])
    _print("worst domains", ("domain", "pairs", "accuracy"), by_domain[:15])


def tell_sealed(out_dir: Path, files: Sequence[Path], max_false_hit: float) -> None:
    """Prints what each built judge lets pass of these pairs, at its calibrated threshold.

    Raises:
        ArtefactError: nothing is built there, or no threshold keeps the bound.
    """
    from steps.judge.check import Graph, logits, probabilities
    from steps.judge.model import open_tokenizer

    examples = read_files(files)
    judges = sorted(path.parent for path in out_dir.glob("onnx-*/calibration.json"))
    if not judges:
        raise ArtefactError(f"--sealed: no judge is built in {out_dir}: build one first, or name --out-dir")
    columns: list[list[str]] = []
    for directory in judges:
        manifest = read_manifest(directory, task="judge", runtime="onnxruntime")
        calibration = json.loads((directory / "calibration.json").read_text())
        threshold = threshold_for(calibration, max_false_hit)
        if threshold > 1:
            least = min(point["false_hit_upper"] for point in calibration["curve"])
            raise ArtefactError(
                f"--max-false-hit {max_false_hit:g}: no threshold of {directory.name} keeps it; the least "
                f"bound on its held-out pairs is {least:.4f}"
            )
        tokenizer = open_tokenizer(directory, manifest.shapes["max_length"])
        scores = probabilities(
            logits(Graph(directory / "model.onnx", bool(manifest.extra.get("aligned"))), tokenizer, examples)
        )
        scored = Scored(examples, scores)
        print(f"{directory.name}: threshold {threshold:.6f}, {_told(scored)}")
        columns.append(_passed(scored, threshold))
        for each, score in zip(examples, scored.scores, strict=True):
            if not each.same and score >= threshold:
                print(f"  false hit ({each.kind}, {score:.4f}): {each.a} | {each.b}")
    kinds = Scored(examples, np.zeros(len(examples))).kinds()
    names = ["false hits among near-identical ones", "found rewordings", *kinds]
    counts = [
        sum(not each.same and each.kind not in FAR for each in examples),
        sum(each.same for each in examples),
        *(sum(each.kind == kind for each in examples) for kind in kinds),
    ]
    rows = list(zip(names, counts, *columns, strict=True))
    told = ", ".join(path.name for path in files)
    _print(
        f"{told}: passed at a bound of {max_false_hit:g}, with 95 % bounds (Clopper and Pearson)",
        ("pairs", "number", *(directory.name for directory in judges)),
        rows,
    )


def deal(names: Sequence[str], folds: int, seed: int) -> list[list[str]]:
    """Names in `folds` parts, neighbours in different ones. Raises: ArtefactError: fewer names than folds."""
    if len(names) < folds:
        raise ArtefactError(f"{folds} folds: there are but {len(names)} to leave out")
    rng = random.Random(seed)
    dealt: list[list[str]] = [[] for _ in range(folds)]
    for start in range(0, len(names), folds):
        order = list(range(folds))
        rng.shuffle(order)
        for fold, name in zip(order, names[start : start + folds], strict=False):
            dealt[fold].append(name)
    return dealt


def _measured(
    directory: Path, train: Sequence[Example], test: Sequence[Example], schedule: Schedule
) -> Scored:
    from steps.judge.check import logits, probabilities
    from steps.judge.train import fit

    model, tokenizer, _ = fit(directory, train, schedule)
    return Scored(test, probabilities(logits(model, tokenizer, test)))


def _of_kind(scored: Scored, kind: str, fold: Sequence[str]) -> list[object]:
    """Pairs, accuracy and share that passes at a threshold that was chosen without the kinds of `fold`."""
    others = [
        score
        for each, score in zip(scored.examples, scored.scores, strict=True)
        if not each.same and each.kind not in {*fold, *FAR}
    ]
    least = threshold_at(np.array(others), FALSE_SHARE) if others else math.inf
    passed = [
        score >= least
        for each, score in zip(scored.examples, scored.scores, strict=True)
        if each.kind == kind
    ]
    return [*scored.accuracy(kind), float(np.mean(passed))]


def _passed(scored: Scored, threshold: float) -> list[str]:
    chosen = [scored.differing(), scored.of(True)]
    kinds = [scored.scores[[each.kind == kind for each in scored.examples]] for kind in scored.kinds()]
    told = []
    for scores in (*chosen, *kinds):
        hits = int((scores >= threshold).sum())
        low, high = clopper_pearson(hits, len(scores))
        rate = hits / len(scores) if len(scores) else 0.0
        told.append(f"{hits} ({rate:.1%}; {low:.2%} … {high:.2%})")
    return told


def _told(scored: Scored) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in summary(scored).items())


def _print(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    for row in rows:
        cells = (f"{cell:.1%}" if isinstance(cell, float) else str(cell) for cell in row)
        print(f"| {' | '.join(cells)} |")
