"""Collects the sources of pairs: the makers of each kind, the project's files, an operator's, public sets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from steps.judge.data import Parts, Plan, Sources, made, mix, read_files
from steps.judge.public import read_public

import trimodal.bench
from trimodal.build_support import report
from trimodal.errors import ArtefactError

DATA = Path(trimodal.bench.__file__).parent / "cache" / "data"
SEALED = "sealed"  # begins the name of files that are measured on, once
BEHAVIOUR = "behaviour"  # what the tests hold the built judge to
BY_HAND = "report.jsonl"  # held out, to calibrate on


def all_makers() -> Sources:
    """The project's own makers."""
    from steps.judge.changed_sense import CHANGED_SENSE
    from steps.judge.changed_words import CHANGED_WORDS
    from steps.judge.sameness import SAMENESS, disguise, reword

    return Sources({**CHANGED_WORDS, **CHANGED_SENSE}, SAMENESS, disguise, reword)


def mixed_pairs(files: Sequence[Path], public: Sequence[str], plan: Plan) -> Parts:
    """All pairs, mixed. Raises: OperatorError: a file or a set cannot be read; ArtefactError."""
    for path in files:
        if path.name.startswith(SEALED):
            raise ArtefactError(f"--pairs {path}: a sealed file is measured on, never trained on")
    own = {path for path in DATA.glob("*.jsonl") if not path.name.startswith((SEALED, BEHAVIOUR))}
    held = {path for path in own if path.name == BY_HAND}
    given = read_files([*sorted(own - held), *files])
    for name in public:
        given += read_public(name, plan.seed)
    return mix(all_makers(), given, plan, embed, read_files(held))


def embed(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Unit vectors [N, d] of the embedder that the cache looks questions up with."""
    from steps.embedding.check import run_torch
    from steps.embedding.checkpoint import encode, load, packaged
    from tokenizers import Tokenizer

    directory = Path(packaged())
    model = load(directory)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_truncation(64)
    tokenizer.enable_padding()
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    vectors = np.empty((len(texts), 384), np.float32)
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        vectors[rows] = run_torch(model, encode(tokenizer, [texts[at] for at in rows]))
    return vectors


def tell_sample(number: int, seed: int) -> None:
    """Prints `number` pairs of each kind."""
    sources = all_makers()
    for same, makers in ((False, sources.different), (True, sources.same)):
        for kind, maker in makers.items():
            pairs = made(maker, same, number, random.Random(f"{seed} {kind}"))
            rows = [[pair.domain, pair.a, pair.b] for pair in pairs]
            report(f"{kind}: {'same' if same else 'different'}", rows, header=("domain", "a", "b"))
