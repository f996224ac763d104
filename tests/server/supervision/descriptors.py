"""Takes all descriptors away from this process for a while."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptors() -> Iterator[None]:
    """No file can be opened while the block lasts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest that is not taken
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
