"""Keeps onnxruntime's quantiser from advising a preparation that changes nothing here (root logger)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_advice() -> Iterator[None]:
    """Logs nothing below ERROR meanwhile; as a decorator, while the function runs."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
