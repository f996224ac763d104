"""Stands in for a disk that takes a little more and is full then."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

ROOM = 4096  # bytes of a file


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows beyond ROOM while the block lasts: the system's own refusal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
