"""What the audit shows as metrics is read back, a tenant and namespace at a time."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from tests.cache.doubles import ask
from trimodal.cache.audit.auditor import Auditor
from trimodal.cache.audit.disagreements import digest
from trimodal.cache.audit.metrics import AuditMetrics
from trimodal.cache.decision import Decision
from trimodal.cache.values import Entry
from trimodal.metrics import MemoryMetrics
from trimodal.top.audits import as_json, audited, line
from trimodal.top.page import Page, read_page


def page() -> Page:
    """As a server shows it after some audits of two tenants."""
    metrics = MemoryMetrics()
    auditor = Auditor(
        1.0, AuditMetrics(metrics, "llm"),
        submit=lambda job, *arguments: job(*arguments) is None, clock=iter(range(10_000)).__next__,
    )  # fmt: skip
    entry = Entry("stored", "Paris", "stop", 1, 64, 0.0, 1e12)
    for tenant, hits in (("", 3), ("acme", 700)):
        question = ask(tenant=tenant)
        for hit in (True, False):
            decision = Decision(question.scope, "asked", "stored", 0.95 if hit else 0.5, hit, entry)
            for _ in range(hits):
                if hit:
                    auditor.finish(decision, "Paris", "stop")
                else:
                    auditor.missed(question, decision)
                    auditor.answered(question, "Paris.", "stop")
    return read_page(text_of(metrics), 0.0)


def text_of(metrics: MemoryMetrics) -> str:
    registry, families = CollectorRegistry(), {}
    for (name, labels), metric in metrics.series.items():
        kind = Counter if name.endswith("_total") else Gauge
        if name not in families:
            families[name] = kind(name, name, [label for label, _ in labels], registry=registry)
        families[name].labels(*(value for _, value in labels)).inc(metric.value)
    return generate_latest(registry).decode()


def test_each_group_has_its_line() -> None:
    one, other = audited(page(), "llm")
    assert {one.tenant, other.tenant} == {"none", digest("acme")}
    acme = one if one.tenant == digest("acme") else other
    assert (acme.hits, acme.misses) == ({"agreed": 700}, {"agreed": 700})
    assert acme.false_hits.upper < 0.01
    told = line(acme)
    assert told.startswith(f"tenant {digest('acme')}, default: 700 hits audited, ")
    assert "0.0% (0.0% to 0.7%) false; 700 near misses, 100.0% (99." in told
    assert as_json(acme)["missed_hits"]["rate"] == pytest.approx(1.0)


def test_another_models_audit_is_not_its() -> None:
    assert not list(audited(page(), "other"))


def test_a_page_without_an_audit_has_none() -> None:
    assert not list(audited(read_page("", 0.0), "llm"))
