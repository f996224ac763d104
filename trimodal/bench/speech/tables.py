"""Prints the two tables of live streams: what their clients saw, and what it cost the server."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from trimodal.bench.common.tables import NARROW, make_table
from trimodal.bench.speech.figures import LiveFigures

SEEN = "policy|streams|WER %|offline|to it|lag p50|p95|p99|first|kept"
COST = "policy|streams|compute|batch|most|win/s|lag p95|growth|flush|out"


def print_live(title: str, rows: Sequence[tuple[str, LiveFigures]], console: Console) -> None:
    """Both tables, a row for each policy with a number of streams, and what their columns mean."""
    seen = make_table(title, SEEN, **NARROW)
    cost = make_table("the same, seen from the server", COST, **NARROW)
    for policy, row in rows:
        seen.add_row(
            policy,
            str(row.streams),
            *(_number(rate, 100, 1) for rate in (row.wer, row.offline_wer, row.wer_to_offline)),
            *(_number(seconds, 1, 2) for seconds in (row.lag_p50, row.lag_p95, row.lag_p99, row.first_s)),
            "yes" if row.keeps_up else "no",
        )
        cost.add_row(
            policy,
            str(row.streams),
            f"{row.compute:.4f}",
            f"{row.batch_mean:.2f}",
            f"{row.batch_most:g}",
            f"{row.windows_per_s:.1f}",
            _number(row.server_lag_p95, 1, 2),
            f"{row.growth:+.2f}",
            f"{row.flush:.2f}",
            str(row.refused + row.failed),
        )
    console.print(seen)
    console.print(
        "WER: committed text against what was said; offline: the same of whole utterances; "
        "to it: WER with the offline text as truth\n"
        "lag: seconds of audio spoken less a word's end, when the client holds it as committed; "
        "first: from a stream's first word to its first text"
    )
    console.print(cost)
    console.print(
        "compute: seconds of the recogniser a second of audio; batch, most: windows of a run\n"
        "lag: as the server tells it; growth: of the median lag, last third less first third\n"
        "flush: from END to the last words; out: streams refused or failed"
    )


def _number(value: float | None, scale: float, digits: int) -> str:
    return "" if value is None else f"{value * scale:.{digits}f}"
