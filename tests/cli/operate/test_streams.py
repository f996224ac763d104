"""`trimodal plan speech` on the fake recogniser."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

import numpy as np
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from trimodal.bench.common.samples import Recording
from trimodal.bench.load.slo import parse_slo
from trimodal.cli.app import app
from trimodal.repository import Model
from trimodal.speech.engines.fake import speak

SPOKEN, _ = speak([*["hello", "world"] * 4, 2.0, "please", "explain", 1.5])


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """The shipped config files with the fake engine and what it hears; tests add parameters."""
    given = Model.parameters
    own = {"speech_recognize": {"engine": "fake"}, "speech": {"vad": "energy"}}

    def parameters(model: Model) -> Mapping[str, str]:
        shipped: Mapping[str, str] = given.fget(model)  # type: ignore[attr-defined]
        return {**shipped, **own.get(model.name, {})}

    monkeypatch.setattr(Model, "parameters", property(parameters))
    monkeypatch.setattr("trimodal.bench.common.samples.speak", lambda *_, **__: Recording(SPOKEN, ""))
    return own


def plan(*arguments: str) -> Result:
    done = CliRunner().invoke(app, ["plan", "speech", *arguments])
    assert done.exit_code == 0, done.output
    return done


def test_the_streams_that_keep_the_lag_and_one_more() -> None:
    told = json.loads(plan("--json").stdout)
    assert set(told) == {"streams", "max_streams", "p95_lag_s", "recogniser_s_per_s"}
    held, lags = told["streams"], told["p95_lag_s"]
    assert told["max_streams"] == 256
    assert list(lags) == [str(held), str(held + 1)]
    assert lags[str(held)] <= 3 < lags[str(held + 1)]


def test_no_more_than_the_server_takes(own: dict[str, dict[str, str]]) -> None:
    own["speech"]["max_streams"] = "2"
    done = plan("--lag-s", "30", "--json")
    told = json.loads(done.stdout)
    assert (told["streams"], told["max_streams"], list(told["p95_lag_s"])) == (2, 2, ["2"])
    assert "later than refuse_lag_s (4 s)" in done.stderr
    done = plan("--lag-s", "4")
    assert "2 live streams, as many as max_streams of speech allows" in done.stdout
    assert "refuse_lag_s" not in done.output


@pytest.mark.parametrize("most", [2, 4096])
def test_the_command_that_shows_it_on_a_server(own: dict[str, dict[str, str]], most: int) -> None:
    own["speech"]["max_streams"] = str(most)
    shown = plan("--lag-s", "2.3", "--profile", "cpu").stdout
    held = int(shown.split()[0])
    words = shlex.split(shown.partition("Served: trimodal ")[2])
    group = typer.main.get_command(app)
    for name in ("bench", "speech"):
        assert words.pop(0) == name
        group = group.commands[name]  # type: ignore[attr-defined]
    options = group.make_context("speech", words).params
    assert list(options["streams"]) == [n for n in (held, held + 1) if 0 < n <= most]
    assert options["profile"] == "cpu"
    assert parse_slo(options["slo"]).text == "p95_lag_ms<=2300"
    # As many as a server can be told to take.
    assert group.make_context("speech", ["--streams", "4096"]).params["streams"]


def test_a_recogniser_that_hears_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, 48_000).astype(np.float32)
    monkeypatch.setattr("trimodal.bench.common.samples.speak", lambda *_, **__: Recording(noise, ""))
    done = CliRunner().invoke(app, ["plan", "speech"])
    assert done.exit_code == 1
    assert "plan: no word was heard in 3 s of speech" in done.output


def test_an_unknown_profile_is_named() -> None:
    done = CliRunner().invoke(app, ["plan", "speech", "--profile", "tpu"])
    assert done.exit_code == 1
    assert "tpu is not a profile" in done.output
