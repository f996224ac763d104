"""Rewrites the weights of a CTranslate2 model in INT8.

CTranslate2 makes INT8 of other weights each time it opens them: half a second of a processor for `base`.
Written once, by the formula of its converter, they are the same numbers in half of FP16's bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from trimodal.speech.whisper.weights import SCALE, TYPES, Array, ModelFile

FLOATS = TYPES[0], TYPES[4]


def write_int8(file: Path) -> None:
    """Replaces `file`, which may be a hard link, by one with its matrices in INT8.

    What has another layout, or numbers of another type, stays as it is.
    """
    try:
        model = ModelFile(file)
    except ValueError:  # as with bfloat16, which CTranslate2 makes INT8 of as well
        return
    matrices = [name for name, array in model.variables.items() if _is_matrix(name, array)]
    made = file.with_suffix(".int8")
    with made.open("wb") as output:
        output.write(struct.pack("<I", model.version) + _text(model.spec))
        output.write(struct.pack("<2I", model.revision, len(model.variables) + len(matrices)))
        for name, array in model.variables.items():
            if name in matrices:
                array, scale = _quantise(array)
                _write(output, name + SCALE, scale)
            _write(output, name, array)
        output.write(struct.pack("<I", len(model.others)))
        for pair in model.others.items():
            output.write(b"".join(map(_text, pair)))
    made.replace(file)


def _is_matrix(name: str, array: Array) -> bool:
    """Whether CTranslate2 computes with it in INT8. Tables of positions have no weights in their name."""
    return name.endswith("weight") and array.ndim == 2 and array.dtype in FLOATS


def _quantise(matrix: Array) -> tuple[Array, Array]:
    """The matrix in INT8, and the scale of each row."""
    floats = matrix.astype(np.float32)
    largest = np.abs(floats).max(axis=1)
    largest[largest == 0] = 127
    scale = np.float32(127) / largest
    return np.rint(floats * scale[:, None]).astype(np.int8), scale


def _text(text: str) -> bytes:
    content = text.encode() + b"\0"
    return struct.pack("<H", len(content)) + content


def _write(output: BinaryIO, name: str, array: Array) -> None:
    shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    output.write(_text(name) + shape + struct.pack("<BI", TYPES.index(array.dtype), array.nbytes))
    output.write(np.ascontiguousarray(array).tobytes())
