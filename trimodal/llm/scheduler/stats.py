"""Holds the scheduler's figures for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SchedulerStats:
    """Totals only grow; all else is as of now.

    Attributes:
        refused_deadline: refused on arrival, as the first text would have come too late.
        refused_queue: refused on arrival, as the queue was full.
        expired: left the queue, as the first text could not be in time any more.
        displaced: left a full queue for a request of a higher class.
        error_p50_s, error_p90_s: size of the last predictions' errors, seconds; nan before there is one.
        token_s: between two tokens of a stream at the present batch; nan: unknown.
        prefill_token_s: what a prompt token takes; 0: unknown.
    """

    refused_deadline: int = 0
    refused_queue: int = 0
    expired: int = 0
    displaced: int = 0
    error_p50_s: float = float("nan")
    error_p90_s: float = float("nan")
    token_s: float = float("nan")
    prefill_token_s: float = 0.0
