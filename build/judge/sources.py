"""Collects the sources of pairs: what is written by hand, the project's files, an operator's."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from judge.blocks import own_blocks
from judge.disguise.disguise import disguise
from judge.lines import own_lines
from judge.mix import Mixture, Parts, mix, without_copies
from judge.pairs import DATA, TABLE, Example, read_files

from trimodal.build_support import resolve_checkpoint
from trimodal.errors import ArtefactError

SEALED = "sealed"  # begins the name of files that are measured on, once
FILES_DRAWN = 6  # times that a pair of a file is drawn
BY_HAND = "by_hand"  # begins the name of files that are held out, to calibrate on


def written_pairs(seed: int) -> list[Example]:
    """Pairs of all blocks and lines."""
    rng = random.Random(f"{seed} written")
    found = [pair for block in own_blocks() for pair in block.pairs(rng)]
    return found + [pair for line in own_lines() for pair in line.pairs(rng)]


def mixed_pairs(files: Sequence[Path], mixture: Mixture) -> Parts:
    """All pairs, mixed. Raises: OperatorError: a file cannot be read; ArtefactError."""
    for path in files:
        if path.name.startswith(SEALED):
            raise ArtefactError(f"--pairs {path}: a sealed file is measured on, never trained on")
    own = {path for path in DATA.glob(f"*{TABLE}") if not path.name.startswith(SEALED)}
    held = {path for path in own if path.name.startswith(BY_HAND)}
    # Again and again, each time in other disguises: they are the likest to what is asked.
    given = FILES_DRAWN * read_files([*sorted(own - held), *files])
    given += written_pairs(mixture.seed)
    return mix(given, mixture, disguise, embed, read_files(sorted(held)))


def once_wrong() -> list[Example]:
    """Pairs that an earlier way to judge got wrong, found one by one, and that a judge is asked about."""
    return list(without_copies(read_files(DATA.glob(f"behaviour{TABLE}")), Counter()))


def embed(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Unit vectors [N, d] of the embedder that the cache looks questions up with."""
    from steps.embedding.check import run_torch
    from steps.embedding.checkpoint import encode, load
    from tokenizers import Tokenizer

    directory = resolve_checkpoint("starter:minilm-l6-v2")
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
