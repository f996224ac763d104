"""Opens an artefact's tokenizer, groups texts of a batch by length, and makes arrays of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest

TOKENIZER = "tokenizer.json"
# A text may be padded by half its length and 8 tokens: below that, a run of its own costs more.
PADDING_SHARE, PADDING_TOKENS = 1.5, 8


def groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in order of length, parted where padding the shortest of a group would be too much."""
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and lengths[index] > PADDING_SHARE * lengths[group[0]] + PADDING_TOKENS:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def padded(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows in one array, filled up with zeros, and 1 where they are: both int64[len(rows), longest]."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for row, values in enumerate(rows):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return ids, mask


def open_tokenizer(directory: Path, manifest: Manifest) -> Any:
    """The `tokenizers.Tokenizer` beside a model; it neither pads nor cuts. Raises: ArtefactError: damaged."""
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(directory / TOKENIZER))
    except Exception as error:  # The library has no base for its errors.
        raise ArtefactError(
            f"{directory / TOKENIZER} is damaged ({type(error).__name__}): "
            f"build again with: {manifest.command}"
        ) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def shape_of(directory: Path, manifest: Manifest, name: str) -> int:
    """A size that the manifest must state. Raises: ArtefactError: it does not."""
    value = manifest.shapes.get(name)
    if not isinstance(value, int) or value < 1:
        raise ArtefactError(
            f"{directory / MANIFEST} is damaged (shapes.{name}): build again with: {manifest.command}"
        )
    return value
