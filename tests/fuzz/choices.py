"""Reads choices (numbers, texts, JSON) out of bytes: a fuzzer that changes the bytes changes the choices.

The same generator then serves two: hypothesis, which shrinks the bytes, and a seeded random generator, whose
request number N can be made again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Consumes bytes from the front; once they are gone every choice is the first one, so all ends."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @classmethod
    def seeded(cls, seed: int, size: int = 1024) -> Choices:
        """Choices that this number always makes alike."""
        return cls(random.Random(seed).randbytes(size))

    @property
    def left(self) -> int:
        """Bytes that are not used yet."""
        return len(self._data) - self._at

    def bytes(self, most: int) -> bytes:
        """The next bytes, at most so many."""
        found = self._data[self._at : self._at + most]
        self._at += len(found)
        return found

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.bytes(self.left)

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        span = high - low + 1
        size = max(1, ((span - 1).bit_length() + 7) // 8)
        return low + int.from_bytes(self.bytes(size), "big") % span

    def pick(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.integer(0, len(values) - 1)]

    def chance(self, one_in: int) -> bool:
        """True about once in so many times; False once the bytes are gone."""
        return self.integer(0, one_in - 1) == one_in - 1
