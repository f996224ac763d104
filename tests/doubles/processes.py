"""Looks at processes of this machine."""

from __future__ import annotations

from pathlib import Path


def running(pid: int) -> bool:
    """Whether a process is there that has not ended; an orphan that nobody reaps has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
