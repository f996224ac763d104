"""Counts audits, and estimates for each tenant and namespace how many hits are wrong and how many are missed.

No label holds anything that a client sent: a tenant is named by a digest. Series cannot be taken back, so
only the first tenants and namespaces have their own; all others are counted together as the tenant "other".
"""

from __future__ import annotations

from trimodal.cache.audit.compare import Agreement
from trimodal.cache.audit.disagreements import digest
from trimodal.cache.audit.estimate import Estimate
from trimodal.cache.values import CacheScope
from trimodal.metrics import Metrics, counters

MAX_GROUPS = 64
DROPPED = ("queue", "busy", "budget", "interrupted", "failed", "file")
_P = "trimodal_cache_audit"
_SHOW_EVERY_S = 1.0


class _Group:
    """The estimates of one tenant and namespace; `shown_at`: when they were last put into the gauges."""

    def __init__(self, tenant: str, namespace: str) -> None:
        self.labels = {"tenant": tenant, "namespace": namespace}
        self.false_hits, self.missed_hits = Estimate(), Estimate()
        self.shown_at = float("-inf")


class AuditMetrics:
    """Counts of the audit of one model. `audited` is called from one thread."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics, self._model = metrics, model
        self._groups: dict[tuple[str, str], _Group] = {}
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

    def audited(self, scope: CacheScope, hit: bool, agreement: Agreement, now: float) -> None:
        """Counts an audited hit or near miss; once a second shows what is known of its group."""
        group = self._group(scope)
        if hit:
            group.false_hits.add(agreement == "disagreed", agreement != "agreed")
        else:
            group.missed_hits.add(agreement == "agreed", agreement != "disagreed")
        labels = {"model": self._model, **group.labels}
        answer = {"decision": "hit" if hit else "miss", "agreement": agreement}
        text = "Audits by decision and agreement of the answers"
        self._metrics.counter(f"{_P}_answers_total", text, {**labels, **answer}).increment(1)
        if now >= group.shown_at + _SHOW_EVERY_S:  # bounds take a millisecond to compute
            group.shown_at = now
            self._show(group, labels)

    def _show(self, group: _Group, labels: dict[str, str]) -> None:
        false, missed = group.false_hits.bounds(), group.missed_hits.bounds()
        for at, bound in enumerate(("estimate", "lower", "upper")):
            one = {**labels, "bound": bound}
            text = "Wrong ones among semantic hits, 0 to 1"
            self._metrics.gauge(f"{_P}_false_hit_ratio", text, one).set(false[at])
            text = "Near misses whose answers agreed, 0 to 1"
            self._metrics.gauge(f"{_P}_missed_hit_ratio", text, one).set(missed[at])

    def _group(self, scope: CacheScope) -> _Group:
        tenant, namespace = digest(scope.tenant), scope.namespace
        if (tenant, namespace) not in self._groups and len(self._groups) >= MAX_GROUPS:
            tenant = "other"
        return self._groups.setdefault((tenant, namespace), _Group(tenant, namespace))
