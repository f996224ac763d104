"""Defines the audit's metrics: what was audited, what was dropped, and what is estimated of each group.

No label holds anything that a client sent: a tenant is named by a digest. Series cannot be taken back, so
only the first groups have theirs; all others are counted as the tenant "other", without estimates.
"""

from __future__ import annotations

from trimodal.cache.audit.disagreements import digest
from trimodal.cache.audit.promise import Group, Status
from trimodal.cache.audit.values import Agreement
from trimodal.metrics import Metrics, counters

MAX_GROUPS = 64
DROPPED = ("queue", "busy", "budget", "interrupted", "failed", "groups", "file")
AGREEMENTS: tuple[Agreement, ...] = ("agreed", "disagreed", "unclear")
_P = "trimodal_cache_audit"
_SHOW_EVERY_S = 1.0


class AuditMetrics:
    """Counts of the audit of one model. `audited`, `due` and `show` are called from one thread."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics, self._model = metrics, model
        self._shown: dict[Group, str] = {}
        self._next: dict[Group, float] = {}
        self._dropped = counters(
            f"{_P}_dropped_total",
            metrics,
            "Audits without a result, by reason",
            "reason",
            DROPPED,
            model=model,
        )
        self._tokens = metrics.counter(
            f"{_P}_tokens_total", "Tokens that the engine computed for audits", {"model": model}
        )

    def dropped(self, reason: str) -> None:
        """Counts an audit that came to nothing."""
        self._dropped[reason].increment(1)

    def spent(self, tokens: int) -> None:
        """Counts tokens that the engine computed for audits."""
        self._tokens.increment(tokens)

    def audited(self, group: Group, decision: str, agreement: Agreement) -> None:
        """Counts an audit."""
        text = "Audits by decision and agreement of the answers"
        labels = {**self._labels(group), "decision": decision, "agreement": agreement}
        self._metrics.counter(f"{_P}_answers_total", text, labels).increment(1)

    def due(self, group: Group, now: float) -> bool:
        """Whether what is known of a group is to be shown again: it takes a millisecond to compute."""
        if self._labels(group)["tenant"] == "other" or now < self._next.get(group, now):
            return False
        self._next[group] = now + _SHOW_EVERY_S
        return True

    def show(self, group: Group, status: Status) -> None:
        """Shows what is known of a group."""
        labels = self._labels(group)
        text = "Score that a semantic hit needs; above 1: there is none"
        self._metrics.gauge(f"{_P}_threshold", text, labels).set(status.threshold)
        false, missed = status.false_hits, status.missed_hits
        for at, bound in enumerate(("estimate", "lower", "upper")):
            one = {**labels, "bound": bound}
            text = "Wrong ones among semantic hits, 0 to 1"
            self._metrics.gauge(f"{_P}_false_hit_ratio", text, one).set(false[at])
            text = "Near misses whose answers agreed, 0 to 1"
            self._metrics.gauge(f"{_P}_missed_hit_ratio", text, one).set(missed[at])

    def _labels(self, group: Group) -> dict[str, str]:
        if group not in self._shown and len(self._shown) < MAX_GROUPS:
            self._shown[group] = digest(group.tenant)
        tenant = self._shown.get(group, "other")
        return {"model": self._model, "tenant": tenant, "namespace": group.namespace}
