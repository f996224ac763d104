"""One finding of the doctor: how bad it is, what was found, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "failure"]
# Our sentences end with what to do, behind a colon.
_REMEDY = re.compile(r": (?=(?:build|choose|enlarge|install|leave|name|pip|run|set|use)\b)")


@dataclass(frozen=True)
class Check:
    """A failure keeps the server from starting or a model from loading; a warning may hurt later."""

    group: str
    name: str
    level: Level
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Group:
    """Makes the checks of one group."""

    name: str

    def ok(self, name: str, found: str) -> Check:
        return Check(self.name, name, "ok", found)

    def warning(self, name: str, found: str, remedy: str = "", *, when: bool = True) -> Check:
        return Check(self.name, name, "warning", found, remedy) if when else self.ok(name, found)

    def failure(self, name: str, found: str, remedy: str = "") -> Check:
        return Check(self.name, name, "failure", found, remedy)

    def refused(self, name: str, error: Exception) -> Check:
        """A failure out of an operator's error: what is wrong, and behind the colon what to do."""
        found, *rest = _REMEDY.split(str(error), maxsplit=1)
        return Check(self.name, name, "failure", found, *rest)


def size(count: float) -> str:
    """Bytes as people read them: 12 KiB, 512 MiB, 3.4 GiB, 141 GiB."""
    for unit, power in (("KiB", 10), ("MiB", 20)):
        if count < 1 << (power + 10):
            return f"{count / (1 << power):.0f} {unit}"
    return f"{count / (1 << 30):.{0 if count >= 10 << 30 else 1}f} GiB"
