"""Makes the doctor's findings: each of one thing, in one group."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimodal.report.findings import Finding

# Our sentences end with what to do, behind a colon.
_REMEDY = re.compile(r": (?=(?:build|choose|enlarge|install|leave|name|pip|run|set|use)\b)")


@dataclass(frozen=True)
class Part:
    """One thing of a machine, as "open files" in the group "machine"."""

    group: str
    name: str


# An error keeps the server from starting or a model from loading; a warning may hurt later.
Check = Finding[Part]


@dataclass(frozen=True)
class Group:
    """Makes the checks of one group."""

    name: str

    def ok(self, name: str, found: str) -> Check:
        return Check("ok", Part(self.name, name), found)

    def warning(self, name: str, found: str, remedy: str = "", *, when: bool = True) -> Check:
        return Check("warning", Part(self.name, name), found, remedy) if when else self.ok(name, found)

    def error(self, name: str, found: str, remedy: str = "") -> Check:
        return Check("error", Part(self.name, name), found, remedy)

    def refused(self, name: str, error: Exception) -> Check:
        """An error out of an operator's: what is wrong, and behind the colon what to do."""
        return self.error(name, *_REMEDY.split(str(error), maxsplit=1))
