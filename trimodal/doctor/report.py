"""Prints the doctor's findings as a table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimodal.doctor.values import Check
from trimodal.report.findings import STYLES, counted
from trimodal.server.options import ServerOptions


def passed(checks: Sequence[Check]) -> bool:
    """Whether the server can be started: warnings do not count."""
    return not any(check.severity == "error" for check in checks)


def print_checks(checks: Sequence[Check], options: ServerOptions, console: Console) -> None:
    """A block for each group; under what is wrong, an arrow and what to do."""
    width = max(len(check.place.name) for check in checks)
    console.print(f"profile {options.profile}, models of {options.repository}")
    if options.engines:
        console.print(f"engines of {options.engines}")
    for group, members in groupby(checks, key=lambda check: check.place.group):
        console.print(f"\n{group}", style="bold")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=len("warning"), no_wrap=True)
        table.add_column(width=width, no_wrap=True)
        table.add_column(overflow="fold")
        for check in members:
            found = Text(check.sentence)
            if check.remedy:
                found.append(f"\n→ {check.remedy}")
            level = Text(check.severity, style=STYLES[check.severity])
            table.add_row(level, check.place.name, found)
        console.print(table)
    console.print(f"\n{verdict(checks, options)}")


def verdict(checks: Sequence[Check], options: ServerOptions) -> str:
    """The last line: what stands in the way, or the command that comes next."""
    counts = counted(checks)
    if not passed(checks):
        starts = all(one.place.group == "production" for one in checks if one.severity == "error")
        if starts:
            return f"{' and '.join(counts)}: it is not to be reached by strangers as it is."
        return f"{' and '.join(counts)}: the server will not start as it is."
    engines = f" --engines {shlex.quote(str(options.engines))}" if options.engines else ""
    return f"{''.join(counts) or 'All is well'}. Next: trimodal serve --profile {options.profile}{engines}"
