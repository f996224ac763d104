import io

import pytest
from rich.console import Console

from trimodal.bench.llm import bench
from trimodal.bench.llm.bench import Plan, Sides
from trimodal.bench.llm.peer import peer_checkpoint, run_peer, served_over
from trimodal.bench.llm.sides import Round, Sample
from trimodal.client.timing import Timing
from trimodal.errors import OperatorError
from trimodal.llm.settings import LlmSettings


class FakePeer:
    """Answers at once, and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    async def generate(self, token_ids, max_tokens):
        self.asked.append((token_ids, max_tokens))
        return Timing(ttft=0.2, itl=(0.02,) * (max_tokens - 1))


class Numbered:
    """Prompts that are numbers, of one token each."""

    def __init__(self):
        self.made = 0

    def next(self):
        self.made += 1
        return str(self.made)

    def token_ids(self, text):
        return [int(text)]


def served(asked):
    """A served side whose answers have 2, 3, 4, … tokens."""

    async def run(texts):
        asked.append(list(texts))
        return Round(tuple(Sample(0.1, (0.01,) * (1 + at), 2 + at) for at in range(len(texts))), 1.0)

    return run


async def test_a_peer_makes_as_many_tokens_as_it_is_told():
    peer = FakePeer()
    one = await run_peer(peer, [[1], [2, 3]], [4, 5])
    assert peer.asked == [([1], 4), ([2, 3], 5)]
    assert [sample.tokens for sample in one.samples] == [4, 5]
    assert one.samples[1].ttft == pytest.approx(0.2)
    assert one.samples[1].itl == pytest.approx((0.02,) * 4)


@pytest.mark.parametrize("file", [None, "questions"])
async def test_a_peer_gets_the_prompts_and_the_lengths_of_the_served_answers(file):
    bare, ours, peer = [], [], FakePeer()
    plan = Plan(streams=(2,), rounds=2, prompts=file)
    sides = Sides({"bare": served(bare), "served": served(ours)}, {"peer float32": peer})
    rounds = await bench._run_rounds(plan, 2, Numbered(), sides)
    assert {name: len(found) for name, found in rounds.items()} == {"bare": 2, "served": 2, "peer float32": 2}
    assert peer.asked == [([int(text)], 2 + at) for texts in ours for at, text in enumerate(texts)]
    if file:
        assert bare == ours, "the same questions for all"
    else:
        assert not {text for texts in bare for text in texts} & {text for texts in ours for text in texts}


async def test_the_tables_and_figures_have_the_ratios_of_ours_over_the_peers():
    out = io.StringIO()
    plan = Plan(streams=(1, 2), rounds=1)
    sides = Sides({"served": served([])}, {"peer float32": FakePeer()})
    found = await bench._measure_streams(plan, "test", Numbered(), sides, Console(file=out, width=80))
    theirs = found["streams_2"]["peer float32"]
    assert theirs["ttft_p50"] == pytest.approx(200)
    assert theirs["ttft_p95"] == pytest.approx(200)
    assert theirs["served_over"]["ttft_p50"] == pytest.approx(0.5)
    assert theirs["served_over"]["itl_p50"] == pytest.approx(0.5)
    assert "served_over" not in found["streams_2"]["served"]
    assert "served over peer" in out.getvalue()
    assert out.getvalue().count("peer float32") == 4, "a row each for two numbers of streams in two tables"
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_ratios_are_of_neighbouring_rounds():
    def rounds(*seconds):
        return [Round((Sample(one / 10, (one / 100,), 8),), one) for one in seconds]

    assert served_over(rounds(1, 2, 4), rounds(2, 4, 8)) == {
        "tokens_per_second": pytest.approx(2),
        "ttft_p50": pytest.approx(0.5),
        "itl_p50": pytest.approx(0.5),
    }


def test_the_fake_engine_has_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("trimodal.bench.llm.peer.check_libraries", lambda task: None)
    settings = LlmSettings(engine="fake")
    for given in (None, tmp_path):
        with pytest.raises(OperatorError, match="the fake engine has no checkpoint"):
            peer_checkpoint(settings, given)
    (tmp_path / "config.json").write_text("{}")
    assert peer_checkpoint(settings, tmp_path) == (tmp_path, False)
