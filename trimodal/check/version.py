"""Reads versions of Triton: by the container's month (24.10) or the server's number (2.51)."""

from __future__ import annotations

import re

Release = tuple[int, int]
NEWEST: Release = (26, 9)
EMBEDDED: Release = (24, 10)  # what nvidia-pytriton 0.7.0 carries, 2.51


def parse_release(text: str) -> Release:
    """`24.10`, `2.51` or `2.51.0` → (24, 10). Raises: ValueError."""
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)?", text.strip())
    if not match:
        raise ValueError(f"{text} is no version of Triton: write it as 24.10 or 2.51")
    major, minor = int(match[1]), int(match[2])
    if major == 2:
        return of_number(minor)
    if not (17 <= major <= 99 and 1 <= minor <= 12):
        raise ValueError(f"{text} is no version of Triton: write it as 24.10 or 2.51")
    return major, minor


def of_number(minor: int) -> Release:
    """2.`minor` → the container's month. One release a month; 25.07 was 2.59.1 and took no number."""
    months = 12 * 24 + 9 + (minor - 51) + (minor >= 60)
    return months // 12, months % 12 + 1


def shown(release: Release) -> str:
    return f"{release[0]}.{release[1]:02}"
