"""Prints rows as a table that is text and Markdown alike."""

from __future__ import annotations

from tests.chaos.judge import Row

_COLUMNS = ("fault", "clients saw", "told within", "ITL p99", "back after", "lost", "SIGTERM", "falls short")
HEAD = f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}"


def line(row: Row) -> str:
    """One row."""
    short = "; ".join([*([f"known: {row.limit}"] if row.limit else []), *row.missed]) or "–"
    itl = f"{row.itl[0] * 1e3:.0f} → {row.itl[1] * 1e3:.0f} ms" if row.itl else "–"
    cells = (
        row.fault,
        row.saw,
        _s(row.told_s),
        itl,
        _s(row.recovery_s),
        row.lost or "–",
        _s(row.stop_s),
        short,
    )
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def _s(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f} s"
