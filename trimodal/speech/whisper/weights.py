"""Reads the weights of a CTranslate2 model: numbers and names of its model.bin, from the beginning on."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WEIGHTS = "model.bin"
VERSIONS = (4, 5, 6)  # of the file's layout, which are alike; CTranslate2 4 writes 6
TYPES = tuple(map(np.dtype, ("f4", "i1", "i2", "i4", "f2")))  # by their number in the file
SCALE = "_scale"  # what follows the name of a matrix in INT8: of the variable with its rows' scales
Array = NDArray[Any]


class ModelFile:
    """What model.bin holds; arrays are views of the file, which stays mapped while they live.

    Attributes:
        version, spec, revision: of the layout, and of what the model is.
        variables: name → array.
        others: name → name of the variable that it stands for: of equal ones the file has one.
    """

    def __init__(self, file: Path) -> None:
        """Raises: OSError; ValueError: another layout, numbers of a type that is not known, or cut short."""
        self._content = np.memmap(file, np.uint8, "r")
        self._at = 0
        self.version = self._number()
        if self.version not in VERSIONS:
            raise ValueError(f"its layout is {self.version} (known: {', '.join(map(str, VERSIONS))})")
        try:
            self.spec, self.revision = self._text(), self._number()
            self.variables = {self._text(): self._array() for _ in range(self._number())}
            self.others = {self._text(): self._text() for _ in range(self._number())}
        except (IndexError, struct.error) as error:
            raise ValueError(f"it is damaged, or has numbers of another type ({error})") from None

    def __contains__(self, name: str) -> bool:
        return self.others.get(name, name) in self.variables

    def array(self, name: str) -> Array:
        """A variable, or the one that it stands for. Raises: KeyError."""
        return self.variables[self.others.get(name, name)]

    def quantised(self, name: str) -> tuple[Array, NDArray[np.float32] | None]:
        """A variable's numbers, and of INT8 what they are to be divided by, one for a row; else None."""
        own = self.others.get(name, name)
        scale = self.array(own + SCALE).astype(np.float32) if own + SCALE in self else None
        return self.variables[own], scale

    def floats(self, name: str) -> NDArray[np.float32]:
        """A variable in FP32. Raises: KeyError."""
        numbers, scale = self.quantised(name)
        floats = numbers.astype(np.float32)
        return floats if scale is None else floats / scale.reshape(-1, *(1,) * (floats.ndim - 1))

    def _number(self, form: str = "I") -> int:
        (value,) = struct.unpack(f"<{form}", self._raw(struct.calcsize(form)).tobytes())
        return int(value)

    def _raw(self, size: int) -> Array:
        self._at += size
        return self._content[self._at - size : self._at]

    def _text(self) -> str:
        return self._raw(self._number("H")).tobytes().rstrip(b"\0").decode()

    def _array(self) -> Array:
        shape = [self._number() for _ in range(self._number("B"))]
        kind = TYPES[self._number("B")]
        return self._raw(self._number()).view(kind).reshape(shape)
