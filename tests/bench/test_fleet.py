"""The check of the simulator: what is asked, what is compared, and one short run on a real server."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from tests.plan.fleet.given import replica
from trimodal.bench.fleet import ENGINE, STEP_TOKENS, Compared, measure, questions, show
from trimodal.llm.tokenizer import ByteTokenizer

FAST = {"fake_step_ms": "5", "fake_prefill_us": "20"}


@pytest.mark.slow
@pytest.mark.e2e
def test_a_real_server_and_its_simulation_are_asked_the_same() -> None:
    figures, (row,) = asyncio.run(measure([1], [0.5], 4.0, FAST, lambda text: None))
    assert figures.step_ms[0][1] >= 5.0
    assert figures.prefill_us > 10
    assert row.requests > 20
    assert row.hit_rate[1] == pytest.approx(row.hit_rate[0], abs=0.1)
    assert min(*row.p50, *row.p95, *row.goodput) > 0


def test_questions_are_the_same_for_a_seed_and_begin_with_their_document() -> None:
    asked = questions(20.0, 30.0, "a")
    assert asked == questions(20.0, 30.0, "a")
    assert len(asked) == pytest.approx(600, rel=0.15)
    texts = {one.document: one.messages[0]["content"] for one in asked}
    assert all(one.messages[0]["content"] == texts[one.document] for one in asked)
    others = {one.messages[0]["content"] for one in questions(20.0, 30.0, "b")}
    assert not others & set(texts.values())


def test_a_document_takes_more_than_a_step() -> None:
    """Or chunked prefill would not be in the comparison."""
    (one, *_) = questions(20.0, 1.0, "a")
    assert len(ByteTokenizer().encode(ByteTokenizer().render(list(one.messages)))) > STEP_TOKENS
    assert int(ENGINE["max_num_batched_tokens"]) == STEP_TOKENS


def test_what_is_shown() -> None:
    row = Compared(2, 0.5, 8.0, 320, (0.5, 0.52), (100.0, 110.0), (400.0, 380.0), (7.5, 7.5))
    console = Console(file=io.StringIO(), width=160)
    show(replica(), [row], console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "100 / 110" in shown
    assert "+10.0%" in shown
    assert "-5.0%" in shown
    assert "TTFT p50: error 10.0% at most" in shown
