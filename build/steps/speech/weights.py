"""Rewrites the weights of a CTranslate2 model in INT8.

CTranslate2 makes INT8 of other weights each time it opens them: half a second of a processor for `base`.
Written once, by the formula of its converter, they are the same numbers in half of FP16's bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

VERSIONS = (4, 5, 6)  # of the file's layout, which are alike; CTranslate2 4 writes 6
TYPES = tuple(map(np.dtype, ("f4", "i1", "i2", "i4", "f2")))  # by their number in the file
FLOATS = TYPES[0], TYPES[4]
Array = NDArray[Any]


class _Reader:
    """Reads model.bin from its beginning on: numbers, texts that end in a zero, and arrays."""

    def __init__(self, file: Path) -> None:
        self._content = np.memmap(file, np.uint8, "r")
        self._at = 0

    def number(self, form: str = "I") -> int:
        (value,) = struct.unpack(f"<{form}", self.raw(struct.calcsize(form)).tobytes())
        return int(value)

    def raw(self, size: int) -> Array:
        self._at += size
        return self._content[self._at - size : self._at]

    def text(self) -> bytes:
        return self.raw(self.number("H")).tobytes()

    def array(self) -> Array:
        """Raises: IndexError: numbers of a type that is not known."""
        shape = [self.number() for _ in range(self.number("B"))]
        kind = TYPES[self.number("B")]
        return self.raw(self.number()).view(kind).reshape(shape)

    def rest(self) -> bytes:
        return self._content[self._at :].tobytes()


def write_int8(file: Path) -> None:
    """Replaces `file`, which may be a hard link, by one with its matrices in INT8.

    What has another layout, or numbers of another type, stays as it is.
    """
    reader = _Reader(file)
    version = reader.number()
    if version not in VERSIONS:
        return
    model, revision = reader.text(), reader.number()
    try:
        variables = [(reader.text(), reader.array()) for _ in range(reader.number())]
    except IndexError:  # bfloat16, which CTranslate2 makes INT8 of as well
        return
    matrices = [name for name, array in variables if _is_matrix(name, array)]
    made = file.with_suffix(".int8")
    with made.open("wb") as output:
        output.write(struct.pack("<I", version) + _text(model))
        output.write(struct.pack("<2I", revision, len(variables) + len(matrices)))
        for name, array in variables:
            if name in matrices:
                array, scale = _quantise(array)
                _write(output, name.replace(b"\0", b"_scale\0"), scale)
            _write(output, name, array)
        output.write(reader.rest())  # names that stand for other variables
    made.replace(file)


def _is_matrix(name: bytes, array: Array) -> bool:
    """Whether CTranslate2 computes with it in INT8. Tables of positions have no weights in their name."""
    return name.endswith(b"weight\0") and array.ndim == 2 and array.dtype in FLOATS


def _quantise(matrix: Array) -> tuple[Array, Array]:
    """The matrix in INT8, and the scale of each row."""
    floats = matrix.astype(np.float32)
    largest = np.abs(floats).max(axis=1)
    largest[largest == 0] = 127
    scale = np.float32(127) / largest
    return np.rint(floats * scale[:, None]).astype(np.int8), scale


def _text(text: bytes) -> bytes:
    return struct.pack("<H", len(text)) + text


def _write(output: BinaryIO, name: bytes, array: Array) -> None:
    shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    output.write(_text(name) + shape + struct.pack("<BI", TYPES.index(array.dtype), array.nbytes))
    output.write(np.ascontiguousarray(array).tobytes())
