"""Defines the cache's metrics: lookups, what went past it, what was refused, what was kept.

No label holds anything that a client sent.
"""

from __future__ import annotations

from trimodal.metrics import Metrics, counters

LAYERS, OUTCOMES = ("exact", "semantic"), ("hit", "miss", "bypass")
BYPASSED = ("timeout", "error", "open", "busy")
REFUSED = ("threshold", "case", "judge", "language", "length")
STORED = ("kept", "skipped", "dropped", "failed")
_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_P = "trimodal_cache"


class CacheMetrics:
    """Counts for the cache of one model. Every series is there from the start, at zero."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        lookups, past = "Lookups by layer and outcome", "Lookups that went past the cache, by reason"
        refused = "Near answers that were refused, by reason"
        stored = "Answers that were to be kept, by outcome"
        self._lookups = {
            layer: counters(
                f"{_P}_lookups_total", metrics, lookups, "outcome", OUTCOMES, model=model, layer=layer
            )
            for layer in LAYERS
        }
        self._bypassed = counters(f"{_P}_bypassed_total", metrics, past, "reason", BYPASSED, model=model)
        self._refused = counters(f"{_P}_refused_total", metrics, refused, "reason", REFUSED, model=model)
        self._stored = counters(f"{_P}_stored_total", metrics, stored, "outcome", STORED, model=model)
        self._seconds = {
            layer: metrics.histogram(
                f"{_P}_lookup_seconds", "One lookup", {"model": model, "layer": layer}, _SECONDS
            )
            for layer in LAYERS
        }
        self.entries = metrics.gauge(f"{_P}_entries", "Answers in the store", {"model": model})

    def looked_up(self, layer: str, outcome: str, seconds: float) -> None:
        """Counts a lookup of a layer."""
        self._lookups[layer][outcome].increment(1)
        self._seconds[layer].observe(seconds)

    def bypassed(self, reason: str) -> None:
        """Counts a lookup without a result in time."""
        self._bypassed[reason].increment(1)

    def refused(self, reason: str) -> None:
        """Counts a near answer that was not taken.

        Reasons: threshold (too far), case (only case or line ends differ, and say something), judge, language
        (sure enough, but not for a language that the judge was not trained for), length (of the question).
        """
        self._refused[reason].increment(1)

    def stored(self, outcome: str) -> None:
        """Counts an answer to be kept: kept, skipped (not storable), dropped (too many wait), failed."""
        self._stored[outcome].increment(1)
