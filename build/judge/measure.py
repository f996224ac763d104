"""Measures on labelled pairs how often the semantic cache would be right, and calibrates the judge on them.

    python build/judge/measure.py                                        # on the project's sealed pairs
    python build/judge/measure.py my_pairs.jsonl --show 20
    python build/judge/measure.py my_pairs.jsonl --calibrate my_calibration.json

Each pair is judged as the cache would judge it if one question's answer were stored and the other asked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimodal.build_support import operator_errors, progress, report
from trimodal.cache.calibration import FILE, Calibration
from trimodal.errors import OperatorError, SettingsError
from trimodal.manifest import read_manifest
from trimodal.paths import artefact_root, default_repository
from trimodal.repository import read_model

if TYPE_CHECKING:
    from judge.figures import Floats, Scored
    from judge.pairs import Example

BATCH = 32
SEALED = [f"sealed_{number}.tsv.xz" for number in range(1, 6)]
NEVER = 2.0  # a threshold that nothing reaches


def main() -> None:
    options = arguments()
    from judge.figures import Scored, calibrate
    from judge.pairs import DATA, read_files

    files = options.pairs or [DATA / name for name in SEALED]
    pairs, named = read_files(files), ", ".join(path.name for path in files)
    checkpoint = read_manifest(options.artefact, task="judge", runtime=None).source_sha256
    known = _known(options.calibration or options.artefact / FILE, checkpoint, options.calibrate)
    with progress(f"{len(pairs)} pairs"):
        cosines = cosines_of(pairs, options.embedder)
        scores = scores_of(pairs, options.artefact, cosines, known)
    alone, judged = Scored(pairs, cosines), Scored(pairs, scores)
    if options.calibrate:
        languages = known.languages if known else ("en",)
        known = calibrate([judged], checkpoint, named, languages)
        _write(options.calibrate, known)
    assert known
    by_cosine = _least(calibrate([alone], checkpoint, named), options.max_false_hit)
    threshold = known.threshold(options.max_false_hit)
    tell(named, alone, by_cosine, judged, threshold)
    tell_pairs(judged, cosines, threshold, options.show)


def cosines_of(pairs: Sequence[Example], directory: Path) -> Floats:
    """The cosine [N] of the two questions of each pair."""
    import numpy as np

    from trimodal.embedding.engines.onnxruntime import open_engine
    from trimodal.embedding.settings import EmbeddingSettings

    embedder = open_engine(directory, EmbeddingSettings(artefact=directory.name))
    found: list[float] = []
    for start in range(0, len(pairs), BATCH):
        texts = [text for pair in pairs[start : start + BATCH] for text in pair[:2]]
        vectors = embedder.embed(texts).vectors
        found += (vectors[::2] * vectors[1::2]).sum(1).tolist()
    return np.array(found)


def scores_of(
    pairs: Sequence[Example], directory: Path, cosines: Floats, known: Calibration | None
) -> Floats:
    """What the cache compares with its threshold [N]: P(same).

    1 or 0 where the words tell without the judge; 0 for what is too far away to be asked about, and for
    questions in another language unless the judge is as sure as these need it.
    """
    import numpy as np

    from trimodal.cache.decision import LEAST_SIMILARITY, known_score
    from trimodal.cache.models import in_order
    from trimodal.judge.engines.onnxruntime import open_engine
    from trimodal.judge.language import is_foreign
    from trimodal.judge.settings import JudgeSettings

    judge = open_engine(directory, JudgeSettings(artefact=directory.name))
    languages, sure = (known.languages, known.foreign_threshold) if known else (("en",), 0.999)
    found: list[float] = []
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        scores = judge.judge([in_order(pair.a, pair.b) for pair in batch]).tolist()
        for pair, score in zip(batch, scores, strict=True):
            told = known_score(pair.a, pair.b)
            foreign = is_foreign(pair.a, languages) or is_foreign(pair.b, languages)
            found.append(told if told is not None else 0.0 if foreign and score < sure else score)
    return np.where(cosines >= LEAST_SIMILARITY, np.array(found), 0.0)


def tell(named: str, alone: Scored, by_cosine: float, judged: Scored, threshold: float) -> None:
    """Prints how many pairs of each kind would be a hit, with 95 % bounds (Clopper and Pearson)."""
    from judge.pairs import clopper_pearson

    rows: list[list[Any]] = []
    sides = [
        ("all near-identical", alone.differing(), judged.differing()),
        ("all rewordings", alone.of(True), judged.of(True)),
        *((kind, alone.of_kind(kind), judged.of_kind(kind)) for kind in judged.kinds()),
    ]
    for name, cosines, scores in sides:
        hits = int((scores >= threshold).sum())
        low, high = clopper_pearson(hits, len(scores))
        share = f"{hits / len(scores):.1%}" if len(scores) else ""
        rows.append(
            [name, len(scores), int((cosines >= by_cosine).sum()), hits, share, f"{low:.2%} … {high:.2%}"]
        )
    report(
        f"{named}: hits at P(same) of at least {threshold:.4f}",
        rows,
        header=("kind", "pairs", f"cosine alone, {by_cosine:.2f}", "judge", "rate", "95 % bounds"),
    )


def tell_pairs(judged: Scored, cosines: Floats, threshold: float, most: int) -> None:
    """Prints at most `most` of the false hits and as many of the rewordings that were not found."""
    rows = list(zip(judged.examples, judged.scores, cosines, strict=True))
    for title, same in (("false hit", False), ("missed", True)):
        wrong = [row for row in rows if row[0].same == same and (row[1] >= threshold) != same]
        for pair, score, cosine in wrong[:most]:
            print(f"{title} ({pair.kind}, cosine {cosine:.2f}, P(same) {score:.4f}): {pair.a} | {pair.b}")


def _known(path: Path, checkpoint: str, calibrate: Path | None) -> Calibration | None:
    """The calibration of the judge; None: there is none yet, and one is being made."""
    if calibrate and not path.is_file():
        return None
    return Calibration.read(path, checkpoint)


def _least(calibration: Calibration, max_false_hit: float) -> float:
    try:
        return calibration.threshold(max_false_hit)
    except SettingsError:
        return NEVER


def _write(path: Path, calibration: Calibration) -> None:
    try:
        path.write_text(calibration.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"--calibrate {path}: cannot be written ({error.strerror})") from None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("pairs", nargs="*", type=Path, help="JSON lines of labelled pairs (the project's sealed ones)")
    add("--artefact", type=Path, help="a built judge (the served one)")
    add("--embedder", type=Path, help="a built embedder (the served one)")
    add("--max-false-hit", type=float, default=0.01, help="bound that the threshold is to keep (0.01)")
    add("--calibration", type=Path, metavar="FILE", help="another one than the judge's own")
    add("--calibrate", type=Path, metavar="FILE", help="calibrate on the pairs and write it to this file")
    add("--show", type=int, default=0, metavar="N", help="print N of the false hits and of the missed")
    options = parser.parse_args()
    if options.calibrate and not options.pairs:
        parser.error("--calibrate needs pairs: what is calibrated on the sealed ones cannot be measured")
    if options.calibrate and options.calibration:
        parser.error("--calibrate and --calibration: one of them")
    options.artefact = options.artefact or built("judge")
    options.embedder = options.embedder or built("embedding")
    return options


def built(model: str) -> Path:
    """What a server on the processor opens for this model."""
    known = read_model(default_repository(), model, "cpu")
    own = artefact_root(model) / known.artefact
    return own if own.is_dir() else known.artefact_directory(known.artefact)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # as `judge.…` the modules beside it are imported
    with operator_errors():
        main()
