"""Counts audits, and estimates how many hits are wrong and how many are missed."""

from __future__ import annotations

from trimodal.cache.audit.compare import Agreement
from trimodal.cache.audit.estimate import Estimate
from trimodal.metrics import Metrics, counters

DROPPED = ("queue", "busy", "budget", "interrupted", "failed", "file")
_P = "trimodal_cache_audit"
_SHOW_EVERY_S = 1.0


class AuditMetrics:
    """Counts of the audit of one model. `audited` is called from one thread."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics, self._labels = metrics, {"model": model}
        self._false_hits, self._missed_hits = Estimate(), Estimate()
        self._shown_at = float("-inf")
        dropped = "Audits without a result, by reason"
        self._dropped = counters(f"{_P}_dropped_total", metrics, dropped, "reason", DROPPED, model=model)
        tokens = "Tokens that the engine computed for audits"
        self._tokens = metrics.counter(f"{_P}_tokens_total", tokens, self._labels)

    def dropped(self, reason: str) -> None:
        """Counts an audit that came to nothing."""
        self._dropped[reason].increment(1)

    def spent(self, tokens: int) -> None:
        """Counts tokens that the engine computed for audits."""
        self._tokens.increment(tokens)

    def audited(self, hit: bool, agreement: Agreement, now: float) -> None:
        """Counts an audited hit or near miss; once a second shows what is known."""
        if hit:
            self._false_hits.add(agreement == "disagreed", agreement != "agreed")
        else:
            self._missed_hits.add(agreement == "agreed", agreement != "disagreed")
        answer = {"decision": "hit" if hit else "miss", "agreement": agreement}
        text = "Audits by decision and agreement of the answers"
        self._metrics.counter(f"{_P}_answers_total", text, {**self._labels, **answer}).increment(1)
        if now >= self._shown_at + _SHOW_EVERY_S:  # bounds take a millisecond to compute
            self._shown_at = now
            self._show()

    def _show(self) -> None:
        false, missed = self._false_hits.bounds(), self._missed_hits.bounds()
        for at, bound in enumerate(("estimate", "lower", "upper")):
            labels = {**self._labels, "bound": bound}
            text = "Wrong ones among semantic hits, 0 to 1"
            self._metrics.gauge(f"{_P}_false_hit_ratio", text, labels).set(false[at])
            text = "Near misses whose answers agreed, 0 to 1"
            self._metrics.gauge(f"{_P}_missed_hit_ratio", text, labels).set(missed[at])
