"""Prints the doctor's findings as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimodal.doctor.values import Check, Level
from trimodal.server.options import ServerOptions

STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "failure": "bold red"}


def passed(checks: Sequence[Check]) -> bool:
    """Whether the server can be started: warnings do not count."""
    return not any(check.level == "failure" for check in checks)


def print_checks(checks: Sequence[Check], options: ServerOptions, console: Console) -> None:
    """A block for each group; under what is wrong, an arrow and what to do."""
    width = max(len(check.name) for check in checks)
    console.print(f"profile {options.profile}, models of {options.repository}")
    if options.engines:
        console.print(f"engines of {options.engines}")
    for group, members in groupby(checks, key=lambda check: check.group):
        console.print(f"\n{group}", style="bold")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=max(len(level) for level in STYLES), no_wrap=True)
        table.add_column(width=width, no_wrap=True)
        table.add_column(overflow="fold")
        for check in members:
            found = Text(check.found)
            if check.remedy:
                found.append(f"\n→ {check.remedy}")
            table.add_row(Text(check.level, style=STYLES[check.level]), check.name, found)
        console.print(table)
    console.print(f"\n{verdict(checks, options)}")


def verdict(checks: Sequence[Check], options: ServerOptions) -> str:
    """The last line: what stands in the way, or the command that comes next."""
    failures = sum(check.level == "failure" for check in checks)
    warnings = sum(check.level == "warning" for check in checks)
    counted = [
        f"{count} {name}{'s' if count > 1 else ''}"
        for count, name in ((failures, "failure"), (warnings, "warning"))
        if count
    ]
    if failures:
        return f"{' and '.join(counted)}: the server will not start as it is."
    engines = f" --engines {options.engines}" if options.engines else ""
    found = counted[0] if counted else "All is well"
    return f"{found}. Next: trimodal serve --profile {options.profile}{engines}"


def as_json(checks: Sequence[Check], options: ServerOptions) -> str:
    """`{"profile", "ok", "checks": [{"group", "name", "level", "found", "remedy"}]}`."""
    report = {
        "profile": options.profile,
        "repository": str(options.repository),
        "engines": str(options.engines) if options.engines else None,
        "ok": passed(checks),
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(report, indent=2, ensure_ascii=False)
