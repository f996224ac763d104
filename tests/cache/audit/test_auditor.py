"""What is drawn, with which probability, and what is counted of it."""

from __future__ import annotations

import random
import threading

import pytest

from tests.cache.doubles import ask
from trimodal.cache.audit import auditor
from trimodal.cache.audit.auditor import Auditor, wilson
from trimodal.cache.values import Entry
from trimodal.metrics import MemoryMetrics

STORED = Entry("stored", "Paris", "stop", 1, 64, 0.0, 1e12)


class Rig:
    """An auditor on a judge for which no two answers are the same."""

    def __init__(self) -> None:
        self.metrics = MemoryMetrics()
        self.auditor = Auditor(
            0.02, self.metrics, "llm", same=lambda pairs: [0.05], draw=random.Random(1).random
        )

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.get(f"trimodal_cache_audit_{name}", {"model": "llm", **labels}).value

    def audit(self, *answers: str, finish_reason: str = "stop") -> None:
        for answer in answers:
            self.auditor.finish(STORED, answer, finish_reason)
        self.auditor.close(60.0)  # after what waits


def test_the_share_of_hits_is_drawn_and_none_that_was_sampled() -> None:
    rig, sampled = Rig(), ask(temperature=0.7)
    assert sum(rig.auditor.draws(ask()) for _ in range(20_000)) == pytest.approx(400, abs=80)
    assert not any(rig.auditor.draws(sampled) for _ in range(1000))


def test_audits_are_counted_by_agreement_and_the_bounds_take_the_unclear_for_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    agreements = iter(["agreed"] * 6 + ["disagreed", "unclear"])
    monkeypatch.setattr(auditor, "compare", lambda *arguments: next(agreements))
    rig.audit(*["Paris."] * 8)
    counted = [rig.count("answers_total", agreement=one) for one in auditor.AGREEMENTS]
    shown = [rig.count("false_hit_ratio", bound=one) for one in ("estimate", "lower", "upper")]
    assert counted == [6, 1, 1]
    assert shown == [1 / 7, wilson(1, 8)[0], wilson(2, 8)[1]]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cache-audit")]


@pytest.mark.parametrize(
    ("counted", "samples", "bounds"),
    [(0, 1, (0.0, 0.7935)), (0, 500, (0.0, 0.0076)), (4, 8, (0.2152, 0.7848)), (8, 8, (0.6756, 1.0))],
)
def test_bounds_of_a_rate(counted: int, samples: int, bounds: tuple[float, float]) -> None:
    """The values are those of scipy's `binomtest(…).proportion_ci(method="wilson")`."""
    assert wilson(counted, samples) == pytest.approx(bounds, abs=1e-4)


def test_an_answer_that_was_cut_is_unclear() -> None:
    rig = Rig()
    rig.audit("Paris", finish_reason="length")
    assert rig.count("answers_total", agreement="unclear") == 1


def test_a_full_queue_and_a_comparison_that_fails_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    monkeypatch.setattr(auditor, "compare", lambda *arguments: 1 / 0)
    rig.audit("Paris")
    assert rig.count("dropped_total", reason="failed") == 1
    rig.audit("Paris")  # closed: nothing is taken any more
    assert rig.count("dropped_total", reason="queue") == 1


def test_no_label_holds_what_a_client_sent() -> None:
    rig = Rig()
    rig.audit("secret-text")
    assert not [series for series in rig.metrics.series if "secret" in repr(series)]
