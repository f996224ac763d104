"""Reads what the audit of a cache shows on a page of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from trimodal.cache.audit.estimate import Bounds
from trimodal.top.page import Page

_P = "trimodal_cache_audit"


@dataclass(frozen=True)
class Audited:
    """One tenant and namespace. Ratios are 0 to 1, with 95 % bounds.

    Attributes:
        tenant: digest of its name; "none" for those who name none.
        hits, misses: audited so far, by "agreed", "disagreed" and "unclear".
    """

    tenant: str
    namespace: str
    hits: dict[str, int]
    misses: dict[str, int]
    false_hits: Bounds
    missed_hits: Bounds


def audited(page: Page, model: str) -> Iterator[Audited]:
    """Every tenant and namespace that the audit of `model` has estimates of, by name."""
    shown = page.series(f"{_P}_false_hit_ratio", {"model": model, "bound": "estimate"})
    groups = sorted((found["tenant"], found["namespace"]) for found, _ in shown)
    for tenant, namespace in groups:
        where = {"model": model, "tenant": tenant, "namespace": namespace}
        yield Audited(
            tenant,
            namespace,
            _counts(page, where, "hit"),
            _counts(page, where, "miss"),
            _bounds(page, where, "false_hit_ratio"),
            _bounds(page, where, "missed_hit_ratio"),
        )


def line(one: Audited) -> str:
    """What is known of one group, as a sentence."""
    return (
        f"tenant {one.tenant}, {one.namespace}: {sum(one.hits.values())} hits audited, "
        f"{_shown(one.false_hits)} false; {sum(one.misses.values())} near misses, "
        f"{_shown(one.missed_hits)} missed"
    )


def as_json(one: Audited) -> dict[str, Any]:
    """The same for machines: rates with `lower` and `upper`."""
    rates = {
        name: dict(zip(("rate", "lower", "upper"), bounds, strict=True))
        for name, bounds in (("false_hits", one.false_hits), ("missed_hits", one.missed_hits))
    }
    return {**asdict(one), **rates}


def _shown(bounds: Bounds) -> str:
    return f"{bounds.rate:.1%} ({bounds.lower:.1%} to {bounds.upper:.1%})"


def _counts(page: Page, where: dict[str, str], decision: str) -> dict[str, int]:
    series = page.series(f"{_P}_answers_total", {**where, "decision": decision})
    return {found["agreement"]: int(value) for found, value in series}


def _bounds(page: Page, where: dict[str, str], name: str) -> Bounds:
    values = {found["bound"]: value for found, value in page.series(f"{_P}_{name}", where)}
    return Bounds(values.get("estimate", 0.0), values.get("lower", 0.0), values.get("upper", 1.0))
