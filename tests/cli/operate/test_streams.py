"""`trimodal plan speech` on the fake recogniser."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from trimodal.cli.app import app
from trimodal.cli.operate import streams
from trimodal.repository import Model


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped config files with the fake engine, and little speech."""
    given = Model.parameters

    def parameters(model: Model) -> dict[str, str]:
        own = dict(given.fget(model))  # type: ignore[attr-defined]
        return own | {"engine": "fake"} if model.name == "speech_recognize" else own

    monkeypatch.setattr(Model, "parameters", property(parameters))
    monkeypatch.setattr(streams, "HEARD_S", 8.0)


def test_the_streams_that_keep_the_lag_and_one_more() -> None:
    done = CliRunner().invoke(app, ["plan", "speech", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert set(told) == {"streams", "p95_lag_s", "recogniser_s_per_s"}


def test_the_command_that_shows_it_on_a_server() -> None:
    done = CliRunner().invoke(app, ["plan", "speech", "--lag-s", "0.1"])
    assert done.exit_code == 0, done.output
    assert "trimodal bench speech --streams" in done.stdout
    assert "p95_lag_ms<=100" in done.stdout


def test_an_unknown_profile_is_named() -> None:
    done = CliRunner().invoke(app, ["plan", "speech", "--profile", "tpu"])
    assert done.exit_code == 1
    assert "tpu is not a profile" in done.output
