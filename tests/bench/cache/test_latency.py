"""The latency bench of the cache: its sums, and how it fills, chooses and asks, on a scripted model."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from trimodal.bench.cache import latency
from trimodal.bench.cache.latency import ENTRIES, Times, figures_of
from trimodal.client import Client, FakeTransport
from trimodal.client.transports.fake import llm_outputs
from trimodal.client.transports.tensors import strings
from trimodal.errors import OperatorError


class CachedModel:
    """An llm with both layers: any question beginning like a stored one is a paraphrase of it."""

    def __init__(self, *, empty: str = "") -> None:
        self.stored: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.empty = empty

    async def __call__(self, request):
        if "cancel" in request.inputs:
            self.asked["bare"] += 1
            yield llm_outputs("", "not_found")
            return
        text = request.inputs["text_input"][0].decode()
        control = request.inputs.get("cache_control", [b""])[0].decode()
        kind = "exact" if text in self.stored else ""
        if control == "no-cache":
            kind = ""
        elif not kind and any(text.split()[:2] == one.split()[:2] for one in self.stored):
            kind = "semantic"
        self.asked[kind] += 1
        answer = "" if text == self.empty else "yes"
        if not kind and control != "no-store" and answer:
            self.stored.add(text)
        yield {
            **llm_outputs(answer, "stop"),
            "cache": strings([kind.encode()]),
            "similarity": np.array([1.0], np.float32),
            "trimmed": strings([b""]),
            "queue_ms": np.array([0.0], np.float32),
            "predicted_ttft_ms": np.array([np.nan], np.float32),
        }


def embedding(request):
    return {"embedding": np.ones((len(request.inputs["text_input"]), 4), np.float32) / 2}


@pytest.fixture
def model():
    return CachedModel()


@pytest.fixture
async def client(model):
    async with Client(transport=FakeTransport(llm=model, embedding=embedding)) as client:
        yield client


def times(**seconds: list[float]) -> Times:
    return Times({side: seconds.get(side, [0.001]) for side in latency.SIDES})


def test_hits_are_compared_with_what_they_stand_beside():
    figures = figures_of(
        times(
            bare=[0.001] * 99 + [0.002],
            exact=[0.002] * 90 + [0.005] * 10,
            embedding=[0.004],
            semantic=[0.013],
        )
    )
    assert figures["sides"]["exact"] == pytest.approx(
        {"requests": 100, "p50": 2.0, "p95": 5.0, "p99": 5.0, "missed": 0}
    )
    exact, semantic = figures["added"]["exact"], figures["added"]["semantic"]
    assert (exact["above"], exact["p50"], exact["p95"]) == ("bare", pytest.approx(1), pytest.approx(4))
    assert (exact["goal_p95"], exact["met"]) == (3.0, False)
    assert (semantic["above"], semantic["p95"], semantic["met"]) == ("embedding", pytest.approx(9), True)


def test_a_side_without_a_single_hit_has_not_met_its_goal():
    figures = figures_of(times(exact=[]))
    assert figures["sides"]["exact"]["requests"] == 0
    assert not figures["added"]["exact"]["met"]


async def test_paraphrases_are_those_that_hit_and_nothing_else_is_kept(client, model, tmp_path, monkeypatch):
    lines = [
        '{"a": "how many cups", "b": "how many mugs", "label": "same"}',
        '{"a": "who is it", "b": "it is who", "label": "same"}',
        '{"a": "when does it end", "b": "when does it start", "label": "different"}',
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(latency, "PAIRS", tmp_path / "pairs.jsonl")
    assert await latency._paraphrases(client) == [("how many cups", "how many mugs")]
    assert model.stored == {"how many cups", "who is it"}


async def test_without_a_single_hit_there_is_nothing_to_measure(client, tmp_path, monkeypatch):
    (tmp_path / "pairs.jsonl").write_text('{"a": "who is it", "b": "it is who", "label": "same"}\n')
    monkeypatch.setattr(latency, "PAIRS", tmp_path / "pairs.jsonl")
    with pytest.raises(OperatorError, match="none of 1 paraphrases was a semantic hit"):
        await latency._paraphrases(client)


async def test_the_store_is_filled_with_different_questions(client, model):
    await latency._fill(client, 50)
    assert len(model.stored) == 50


async def test_an_answer_that_is_empty_is_not_waited_for(client, model):
    model.empty = "nothing to say"
    await latency._keep(client, "nothing to say")
    assert model.stored == set()


async def test_all_sides_take_turns_and_what_is_no_hit_is_not_timed(client, model):
    model.stored = {"how many cups", "who is it"}
    pairs = [("how many cups", "how many mugs"), ("who is it", "it is who")]
    measured = await latency._take_turns(client, pairs, 20)
    counted = {side: len(seconds) for side, seconds in measured.seconds.items()}
    assert counted == {"bare": 20, "exact": 20, "embedding": 20, "semantic": 10}
    assert measured.missed == {"exact": 0, "semantic": 10}
    assert {hit: len(seconds) for hit, seconds in measured.above.items()} == {"exact": 20, "semantic": 10}
    turns = zip(measured.seconds["exact"], measured.seconds["bare"], strict=True)
    assert measured.above["exact"] == pytest.approx([exact - bare for exact, bare in turns])
    assert (model.asked["bare"], model.asked["exact"]) == (22, 22)  # two of each came before
    assert model.stored == {"how many cups", "who is it"}


def test_the_table_says_what_was_missed(capsys):
    figures = figures_of(times(exact=[0.006]))
    figures["sides"]["semantic"]["missed"] = 3
    latency._show(Console(width=80), {**figures, "plan": {"entries": ENTRIES}})
    said = capsys.readouterr().out
    assert "1000 other answers stored" in said
    assert "exact hit above bare: p50 +5.00 ms, p95 +5.00 ms (goal 3 ms: missed)" in said
    assert "semantic hit above embedding: p50 +0.00 ms, p95 +0.00 ms (goal 10 ms: met)" in said
    assert "semantic: 3 requests were no hits" in said
    assert "p95 of the difference within a turn: +0.00 ms" in said
    assert "exact: " not in said
