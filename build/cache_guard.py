"""Learns the guard's model of rewordings (cache/guard/rewording.json) from labelled pairs, and measures it.

Beside the pairs as they are it learns from hard ones in another frame ("Tell me …"), and from questions of
different pairs that happen to be near: or it would take any other sentence for a rewording. The cosine
threshold comes from `trimodal bench cache --calibrate`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from trimodal.bench.cache.pairs import HARD, Pair, clopper_pearson, cosines_of, read_pairs
from trimodal.build_support import operator_errors, report
from trimodal.cache.guard.guard import compare
from trimodal.cache.guard.reading.words import NotEnglish
from trimodal.cache.guard.rewording import FEATURES, LEAST_SIMILARITY, MODEL, features, may_be_reworded
from trimodal.embedding.engines.protocol import TextEmbedder, open_engine
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.manifest import read_manifest

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
MOST_PASSED = 300
ROOT = Path(__file__).parents[1]
APART, EMBEDDING = "tests/cache/guard/kept_apart.txt", "model_repository/embedding/1/onnx-fp32"
FRAMES = (
    (r"how (?:do|can) i (.*)\?$", ("What's the best way to {}?", "Which steps are needed to {}?")),
    (r"how to (.*)$", ("What should I do to {}?", "explain how I {}")),
    (r"what (?:is|are) (.*)\?$", ("Tell me {}.", "Do you know what {} is?")),
    (r"can i (.*)\?$", ("Is it possible to {}?", "Am I allowed to {}?")),
    (r"where (?:do|can) i (.*)\?$", ("In which place can one {}?",)),
    (r"(why|when|which|who|where) (.*)\?$", ("Do you know {} {}?", "I wonder {} {}.")),
)
GENERAL = ("Could you tell me: {}", "I have a question. {} Thanks!", "hi, {}", "Just wondering: {}")


class Example(NamedTuple):
    """One pair to learn from; `made`: its sentence frame was changed, or its sides come from two pairs."""

    pair: Pair
    made: bool
    fold: int


def reframed(text: str, draw: random.Random) -> str:
    """The same question in another sentence."""
    for pattern, frames in FRAMES:
        if found := re.match(pattern, text, re.IGNORECASE):
            return draw.choice(frames).format(
                *(part.lower() for part in found.groups()[:1]), *found.groups()[1:]
            )
    return draw.choice(GENERAL).format(text[:1].lower() + text[1:])


def examples(pairs: list[Pair], alike: set[frozenset[str]], embedder: TextEmbedder) -> Iterator[Example]:
    """The pairs, hard ones and paraphrases in other frames, and near questions of different pairs.

    `alike` names questions of different pairs that do have the same answer.
    """
    draw = random.Random(5)
    folds = {pair.id: draw.randrange(5) for pair in pairs}
    for pair in pairs:
        fold = folds[pair.id]
        yield Example(pair, False, fold)
        if pair.kind != "unrelated":
            yield Example(pair.model_copy(update={"b": reframed(pair.b, draw)}), True, fold)
            yield Example(pair.model_copy(update={"a": reframed(pair.a, draw)}), True, fold)
    owners = {text: pair for pair in pairs for text in (pair.a, pair.b)}
    texts = list(owners)
    vectors = np.concatenate([embedder.embed(texts[at : at + 32]).vectors for at in range(0, len(texts), 32)])
    near = np.argwhere(np.triu(vectors @ vectors.T, 1) >= LEAST_SIMILARITY)
    known = {frozenset((pair.a, pair.b)) for pair in pairs} | alike
    for row, column in near:
        one, other = texts[row], texts[column]
        if frozenset((one, other)) not in known:
            pair = apart(f"{row}-{column}", one, other)
            yield Example(pair, True, folds[owners[one].id])


def apart(id: str, one: str, other: str) -> Pair:
    """Two questions that differ."""
    return Pair.model_validate({"id": id, "a": one, "b": other, "label": "different", "class": "subject"})


def table(found: list[Example], embedder: TextEmbedder) -> tuple[list[Example], Floats, Flags]:
    """Those that the model would be asked about, features [N, F], and whether they mean the same [N]."""
    kept: list[Example] = []
    rows: list[tuple[float, ...]] = []
    for example, cosine in zip(found, cosines_of([e.pair for e in found], embedder), strict=True):
        pair = example.pair
        try:
            compared = compare(pair.a, pair.b)
        except NotEnglish:
            continue
        if compared.reason == "subject" and may_be_reworded(*compared.difference[2:], cosine):
            kept.append(example)
            rows.append(features(*compared.difference, (pair.a, pair.b), cosine))
    return kept, np.array(rows), np.array([example.pair.label == "same" for example in kept])


def learn(x: Floats, y: Flags) -> tuple[Floats, float]:
    """Weights and bias on the features as they are."""
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(C=1.0, max_iter=4000).fit(scaler.transform(x), y)
    weights = model.coef_[0] / scaler.scale_
    return weights, float(model.intercept_[0] - weights @ scaler.mean_)


def main(
    pairs: list[Path] = typer.Argument(help="JSON lines of labelled pairs, to learn from."),
    apart_file: Path = typer.Option(
        ROOT / APART, "--apart", show_default=APART, help="More that differ, as a|b."
    ),
    alike: Path | None = typer.Option(
        None, help="Questions of different pairs that do mean the same, as a|b."
    ),
    artefact: Path = typer.Option(ROOT / EMBEDDING, show_default=EMBEDDING, help="Embedding engine."),
    out: Path = typer.Option(MODEL, show_default="trimodal/cache/guard/rewording.json", help="Model's file."),
) -> None:
    """Fit the guard's model of rewordings; which score keeps which bound comes from held-out fifths."""
    with operator_errors():
        embedder = open_engine(artefact.resolve(), EmbeddingSettings(artefact=str(artefact)))
        checkpoint = read_manifest(artefact.resolve(), task="embedding", runtime=None).source_sha256
        given = [pair for file in pairs for pair in read_pairs(file)]
        more = [apart(f"k{number}", one, other) for number, (one, other) in enumerate(_lines(apart_file))]
        same = {frozenset(line) for line in _lines(alike)} if alike else set()
        found = list(examples(given + more, same, embedder))
        kept, x, y = table(found, embedder)
        folds = np.array([example.fold for example in kept])
        scores = np.empty(len(y))
        for fold in range(5):
            weights, bias = learn(x[folds != fold], y[folds != fold])
            scores[folds == fold] = x[folds == fold] @ weights + bias
        different = sum(example.pair.label == "different" for example in found)
        wrong = np.sort(scores[~y])[::-1]
        bounds = [clopper_pearson(passed, different)[1] for passed in range(min(MOST_PASSED, len(wrong)))]
        curve = [(round(b, 6), round(float(score), 4)) for b, score in zip(bounds, wrong, strict=False)]
        weights, bias = learn(x, y)
        rounded = {"weights": [round(float(weight), 6) for weight in weights], "bias": round(bias, 6)}
        values = {"checkpoint": checkpoint, "features": FEATURES, **rounded, "curve": curve}
        out.write_text(json.dumps(values) + "\n")
        plain = np.array([not example.made for example in kept])
        hard = np.array([example.pair.kind in HARD for example in kept])
        chosen = [y & plain, ~y & plain & hard, ~y & ~plain]
        rows = []
        for wanted in (0.002, 0.005, 0.01, 0.02):
            least = min((score for bound, score in curve if bound <= wanted), default=np.inf)
            passed = [f"{(scores[which] > least).sum()} of {which.sum()}" for which in chosen]
            rows.append([f"{wanted:.1%}", f"{least:.2f}", *passed])
        report(
            f"{len(found)} examples, {different} of them different; {len(y)} left to the model; held out",
            rows,
            header=("bound", "score", "paraphrases", "hard pairs", "made ones"),
        )
        nearest = np.argsort(np.where(y, np.inf, -scores))[:20]
        rows = [[f"{scores[at]:.2f}", kept[at].pair.a, kept[at].pair.b] for at in nearest]
        report("that differ and are nearest to passing", rows)


def _lines(path: Path) -> list[tuple[str, str]]:
    parted = (line.partition("|") for line in path.read_text(encoding="utf-8").splitlines())
    return [(one, other) for one, bar, other in parted if bar]


if __name__ == "__main__":
    typer.run(main)
