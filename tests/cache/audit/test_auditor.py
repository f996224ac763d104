"""What is drawn, with which probability, and what is counted of it."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cache.doubles import ask
from trimodal.cache.audit.auditor import Auditor
from trimodal.cache.audit.metrics import AuditMetrics
from trimodal.cache.decision import Decision
from trimodal.cache.values import Entry, Question
from trimodal.metrics import MemoryMetrics

STORED = Entry("stored", "Paris", "stop", 1, 64, 0.0, 1e12)
SAME = "Paris."
OTHER = "Berlin"


def judge(pairs: Any) -> list[float]:
    return [0.05 for _ in pairs]


class Rig:
    """An auditor that compares at once, with numbers from `drawn` (0: all are audited)."""

    def __init__(
        self, drawn: Callable[[], float] = lambda: 0.0, file: Path | None = None, share: float = 0.02
    ) -> None:
        self.metrics, self.full = MemoryMetrics(), False
        self.auditor = Auditor(
            share, AuditMetrics(self.metrics, "llm"),
            file=file, same=judge, draw=drawn, submit=self._at_once, clock=lambda: 0.0,
        )  # fmt: skip

    def _at_once(self, job: Callable[..., None], *arguments: Any) -> bool:
        if not self.full:
            job(*arguments)
        return not self.full

    def hit(self, question: Question, fresh: str, finish_reason: str = "stop") -> bool:
        drawn = self.auditor.hit(question)
        if drawn:
            self.auditor.finish(decision(question, hit=True), fresh, finish_reason)
        return drawn

    def miss(self, question: Question, fresh: str) -> None:
        self.auditor.missed(question, decision(question, hit=False))
        self.auditor.answered(question, fresh, "stop")

    def count(self, **labels: str) -> float:
        labels = {"model": "llm", **labels}
        return self.metrics.get("trimodal_cache_audit_answers_total", labels).value

    def dropped(self, reason: str) -> float:
        labels = {"model": "llm", "reason": reason}
        return self.metrics.get("trimodal_cache_audit_dropped_total", labels).value


def decision(question: Question, *, hit: bool) -> Decision:
    return Decision(question.scope, question.text, STORED.text, 0.95 if hit else 0.5, hit, STORED)


def test_hits_and_near_misses_are_counted_by_agreement() -> None:
    rig = Rig()
    rig.hit(ask(), SAME)
    rig.miss(ask(), OTHER)
    rig.miss(ask(), SAME)
    assert rig.count(decision="hit", agreement="agreed") == 1
    assert rig.count(decision="miss", agreement="disagreed") == 1
    assert rig.count(decision="miss", agreement="agreed") == 1


def test_the_share_of_them_is_drawn() -> None:
    draw = random.Random(1)
    rig = Rig(draw.random)
    drawn = sum(rig.hit(ask(), SAME) for _ in range(20_000))
    assert drawn == pytest.approx(400, abs=80)
    for number in range(5000):
        rig.miss(ask(f"q{number}"), SAME)
    assert rig.count(decision="miss", agreement="agreed") == pytest.approx(100, abs=40)


def test_sampled_answers_are_not_audited() -> None:
    rig, sampled = Rig(), ask(temperature=0.7)
    assert not rig.hit(sampled, SAME)
    rig.miss(sampled, SAME)
    assert rig.count(decision="miss", agreement="agreed") == 0


def test_an_answer_that_was_cut_is_unclear() -> None:
    rig = Rig()
    rig.hit(ask(), "Paris", "length")
    assert rig.count(decision="hit", agreement="unclear") == 1


def test_only_the_answer_to_the_near_miss_itself_is_compared_and_once() -> None:
    rig = Rig()
    rig.auditor.missed(ask("one"), decision(ask("one"), hit=False))
    assert not rig.auditor.answered(ask("two"), SAME, "stop")
    assert not rig.auditor.answered(ask("one", tenant="acme"), SAME, "stop")
    assert rig.auditor.answered(ask("one"), SAME, "stop")
    assert not rig.auditor.answered(ask("one"), SAME, "stop")


def test_near_misses_without_an_answer_do_not_pile_up() -> None:
    rig = Rig()
    for number in range(1000):
        rig.auditor.missed(ask(f"q{number}"), decision(ask(), hit=False))
    assert len(rig.auditor._near) == 64


def test_a_full_queue_and_a_comparison_that_fails_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.full = True
    rig.hit(ask(), SAME)
    assert rig.dropped("queue") == 1
    rig.full = False
    monkeypatch.setattr("trimodal.cache.audit.auditor.compare", lambda *arguments: 1 / 0)
    rig.hit(ask(), SAME)
    assert rig.dropped("failed") == 1


def disagreeing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimodal.cache.audit.auditor.compare", lambda *arguments: "disagreed")


def test_hits_that_disagree_are_written_for_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disagreeing(monkeypatch)
    rig = Rig(file=tmp_path / "pairs.jsonl")
    rig.hit(ask("what is a lambda"), OTHER)
    rig.miss(ask(), OTHER)
    (path,) = tmp_path.iterdir()
    (line,) = path.read_text().splitlines()
    pair = json.loads(line)
    assert (pair["a"], pair["b"], pair["label"]) == ("what is a lambda", "stored", None)
    assert pair["answers"] == ["Paris", OTHER]


def test_a_file_that_cannot_be_written_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disagreeing(monkeypatch)
    (tmp_path / "file").write_text("")
    rig = Rig(file=tmp_path / "file" / "pairs.jsonl")
    rig.hit(ask(), OTHER)
    assert rig.dropped("file") == 1
    assert rig.count(decision="hit", agreement="disagreed") == 1


def test_no_label_holds_what_a_client_sent() -> None:
    rig = Rig()
    rig.hit(ask("secret-text", tenant="secret-tenant"), SAME)
    assert not [series for series in rig.metrics.series if "secret" in repr(series)]


def test_estimates_are_shown_once_a_second() -> None:
    rig = Rig()
    now = [0.0]
    rig.auditor._clock = lambda: now[0]
    name, labels = "trimodal_cache_audit_false_hit_ratio", {"model": "llm", "bound": "upper"}
    shown = []
    for second in (0.0, 0.5, 1.1):
        now[0] = second
        rig.hit(ask(), SAME)
        shown.append(rig.metrics.get(name, labels).value)
    assert shown[0] == shown[1] > shown[2]


def test_a_thread_of_its_own_compares_when_none_is_given() -> None:
    metrics = MemoryMetrics()
    auditor = Auditor(1.0, AuditMetrics(metrics, "llm"))
    auditor.finish(decision(ask(), hit=True), SAME, "stop")
    auditor.close(60.0)  # after what waits
    assert "trimodal_cache_audit_answers_total" in {name for name, _ in metrics.series}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cache-audit")]
