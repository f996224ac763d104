"""`trimodal bench overload` as a user calls it, and the requests that it makes."""

import json
import random
import statistics

import pytest

from tests.cli.bench.test_app import run
from trimodal.bench.overload.bench import STOP, fake_answer
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineRequest, Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer

TIERS = """
[tier.standard]
ttft_deadline_ms = 300
itl_bound_ms = 1000

[tier.slow]
priority = -1
ttft_deadline_ms = 600
"""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--load", "0"], "load"),
        (["--load", "nan"], "load"),
        (["--seconds", "0"], "seconds"),
        (["--scheduler", "best"], "--scheduler best: known are deadline, fifo"),
        (["--mix", "premium"], "--mix premium: tier=weight is needed"),
        (["--mix", "premium=-1"], "with a weight above 0"),
        (["--mix", "premium=nan"], "with a weight above 0"),
        (["--mix", "gold=1"], "'gold' is none of the tiers in tiers.toml: premium, standard, batch"),
        (["--tiers", "/nowhere.toml"], "nowhere.toml cannot be read"),
        (["--prompts", "/nowhere.txt"], "cannot be read"),
        (["--plot", "/nowhere/plot.png"], "--plot /nowhere/plot.png: no file can be written there"),
        (["--plot", "plot.xyz"], "--plot plot.xyz: a name that ends with .png is needed"),
        (["--set", "engine"], "--set engine: parameter=value is needed"),
        (["--set", "colour=red"], "unknown parameter 'colour'"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(arguments, sentence):
    result = run("overload", *arguments)
    assert result.exit_code in (1, 2)
    assert sentence in result.output.replace("│\n│", "").replace("\n", "")
    assert "Traceback" not in result.output


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("trimodal.cli.bench.overload.find_spec", lambda name: None)
    result = run("overload", "--plot", tmp_path / "plot.png")
    assert result.exit_code == 2
    assert "--plot needs matplotlib" in result.output


def test_answers_of_the_fake_engine_end_at_random_with_their_mean():
    """The lengths of answers are the engine's secret: neither scheduler may be told by the requests."""
    tokenizer = ByteTokenizer()
    settings = LlmSettings(
        engine="fake", fake_step_ms=0, fake_prefill_us=0, fake_answer=fake_answer(24), max_num_seqs=1
    )
    engine = FakeEngine(settings)
    rng = random.Random(5)
    lengths = []
    for id in range(400):
        prompt = "".join(rng.choices("abcdefghij ", k=rng.randint(20, 90)))
        engine.add(EngineRequest(id, tokenizer.encode_prompt(prompt), Sampling(max_tokens=96)))
        made, finish = [], None
        while finish is None and STOP not in tokenizer.decode(made):
            (output,) = engine.step()
            made += output.token_ids
            finish = output.finish_reason
        engine.cancel(id)
        lengths.append(len(made))
    assert statistics.mean(lengths) == pytest.approx(24, rel=0.2)
    assert statistics.stdev(lengths) == pytest.approx(24, rel=0.25)  # an exponential's, but for the cut
    assert 1 <= min(lengths) <= 2
    assert max(lengths) > 72


@pytest.mark.e2e
@pytest.mark.slow
def test_two_small_levels_on_both_sides(tmp_path, monkeypatch):
    """At 4 times its capacity first in, first out can only be late; the figures of both sides balance."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    tiers = tmp_path / "tiers.toml"
    tiers.write_text(TIERS)
    target, plot = tmp_path / "figures.json", tmp_path / "plot.png"
    result = run(
        *("overload", "--load", "0.5", "--load", "4", "--seconds", "1", "--capacity", "20"),
        *("--tiers", tiers, "--mix", "slow=1,standard=3"),
        *("--set", "fake_step_ms=5", "--set", "max_num_seqs=2", "--json", target, "--plot", plot),
    )
    assert result.exit_code == 0, result.output
    figures = json.loads(target.read_text())
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert figures["capacity"]["requests_per_s"] == 20
    assert all(rate > 0 for rate in figures["capacity"]["closed_loop"].values())
    assert any("of its peak" in sentence for sentence in figures["statements"])
    levels = figures["levels"]
    assert [level["load"] for level in levels["fifo"]] == [0.5, 4]
    for both in zip(*levels.values(), strict=True):
        assert both[0]["sent"] == both[1]["sent"] > 0, "the very same requests"
        for level in both:
            for tier in level["tiers"].values():
                kinds = ("met", "late", "uneven", "refused", "expired", "lost")
                assert sum(tier[kind] for kind in kinds) == tier["sent"]
            assert not level["errors"]
            assert level["unsent"] == 0
            assert level["memory"]["most"]["engine"] > 1
    assert all(level["refusals"]["count"] == 0 for level in levels["fifo"])
    assert sum(level["forecast_error"]["count"] for level in levels["deadline"]) > 0
