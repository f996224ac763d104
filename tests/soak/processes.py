"""Looks at the processes of one server: memory, threads, descriptors, shared memory."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from trimodal.server.supervision.stubs import children, model_of

_MIB = 2.0**20
_PREFIX = re.compile(rb"shm-region-prefix-name=([^\0]+)")
Figures = dict[str, float]  # kind of a series → value


def tree(launcher: int) -> Iterator[tuple[int, str]]:
    """Yields process id and name of the launcher and of all that it started."""
    yield launcher, "launcher"
    yield from _below(launcher, "")


def _below(pid: int, model: str) -> Iterator[tuple[int, str]]:
    for child in children(pid):
        own = model_of(child)
        yield child, own or (f"{model} engine" if model else _kind(child))
        yield from _below(child, own or model)


def _kind(pid: int) -> str:
    command = _command(pid)
    if b"process_guard" in command:
        return "guard"
    return Path(command.split(b"\0")[0].decode(errors="replace")).name


def figures(pid: int) -> Figures:
    """What one process holds; nothing where it has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return {
            "memory": _field(rollup, "Rss") / 1024,
            "pss": _field(rollup, "Pss") / 1024,
            "private": _field(rollup, "Private_Dirty") / 1024,
            "threads": _field(status, "Threads"),
            "descriptors": descriptors,
        }
    except (OSError, TypeError):  # a process that is ending has empty pages
        return {}


def shared_memory(pids: Iterable[int]) -> tuple[float, float]:
    """MiB and number of the regions of the tritonserver among these processes."""
    prefix = next((found[1].decode() for pid in pids if (found := _PREFIX.search(_command(pid)))), None)
    if prefix is None:
        return 0.0, 0.0
    regions = []
    for region in Path("/dev/shm").glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError):  # its model was unloaded meanwhile
            regions.append(region.stat().st_blocks * 512)
    return sum(regions) / _MIB, len(regions)


def _field(text: str, name: str) -> int:
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
