"""Makes records and runs for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.records import Record


def record(number: int = 0, due: float = 0.0, latency: float = 1.0, **more: Any) -> Record:
    """An answered request without pieces, sent when it was due, unless told otherwise."""
    return Record(**{"number": number, "due": due, "sent": due, "pieces": [], "ended": due + latency} | more)


def answer(due: float, ttft: float, gaps: Sequence[float] = (), **more: Any) -> Record:
    """An answer with a token in each piece, which ends with the last one."""
    at, pieces = due + ttft, [due + ttft]
    for gap in gaps:
        at += gap
        pieces.append(at)
    return record(due=due, latency=at - due, pieces=pieces, **{"output_tokens": len(pieces)} | more)


def run_of(records: Sequence[Record], seconds: float, began: float = 0.0, **more: Any) -> LoadRun:
    return LoadRun(tuple(records), began, seconds, **more)
