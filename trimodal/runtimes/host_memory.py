"""Reads how much memory this machine has, or the container in which we run."""

from __future__ import annotations

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def host_memory() -> tuple[int, int]:
    """Bytes in all and free bytes: the machine's, or what the container's limit leaves (cgroup v2)."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kibibytes = {words[0]: int(words[1]) for words in lines}
    total, free = kibibytes["MemTotal:"] << 10, kibibytes["MemAvailable:"] << 10
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no limit: the file is not there, or says "max"
        return total, free
    return min(total, limit), min(free, limit - used)
