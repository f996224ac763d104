"""Holds a parser to what it promises: it answers, or refuses with a typed error that may be told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from trimodal.errors import TrimodalError

MOST_CHARACTERS = 400  # of a sentence that refuses
# What tells a stranger about the machine.
_LEAK = re.compile(r"Traceback|site-packages|\.py\b|0x[0-9a-f]{8}|/tmp/|/dev/shm")


class Broken(AssertionError):
    """A parser did what it must not."""


@contextmanager
def promise(kind: type[Exception] = TrimodalError, *, leak: bool = True) -> Iterator[None]:
    """Only errors of this kind leave the block, and each may be told to who sent the input.

    Args:
        leak: whether a path of the machine is a fault; not where an operator reads it.
    """
    try:
        yield
    except kind as error:
        told = str(error)
        faults = []
        if not told.strip():
            faults.append("says nothing")
        if leak and len(told) > MOST_CHARACTERS:
            faults.append(f"has {len(told)} characters")
        if leak and _LEAK.search(told):
            faults.append("tells of the machine")
        try:
            told.encode()
        except UnicodeEncodeError:
            faults.append("cannot be sent: it holds a lone surrogate")
        if faults:
            raise Broken(f"an error {', '.join(faults)}: {told[:500]!r}") from error
