"""Gives memory of large arrays back to the system when they are freed."""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD = -3  # mallopt(3)
_BYTES = 128 * 1024


def give_back_large_blocks() -> None:
    """From now on every block of 128 kB or more is mapped by itself, and unmapped when freed.

    By default glibc stops to do so for sizes that it has seen freed, and keeps them in one
    heap a thread: a process that handles a minute of audio at a time on twenty threads grows
    for hours, though it holds nothing. Does nothing with another C library.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _BYTES)


def give_back_freed() -> None:
    """Gives the system back what was freed so far; for after a model is loaded.

    Reading and rearranging weights frees about as much as is kept, within the heap, where glibc leaves it: of
    `embedding` 37 MB, of `speech_recognize` 52. Does nothing with another C library.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
