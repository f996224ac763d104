"""The commands for versions and for loading again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.doubles.http_server import Asked, answering
from tests.gateway.conftest import fake_triton
from trimodal.cli.app import app
from trimodal.cli.operate import versions as module
from trimodal.client import Client

TOLD = CliRunner()


def test_a_share_and_the_way_back(tmp_path: Path) -> None:
    file = str(tmp_path / "routes.toml")

    def said(*arguments: str) -> str:
        done = TOLD.invoke(app, ["route", "llm", "--routes", file, *arguments])
        return done.output.strip().removeprefix("trimodal route: ")

    assert said() == "llm: the highest version has all"
    assert said("--to", "2=5%").startswith("whose are the other 95 % of llm?")
    assert said("--to", "1=100%") == "llm: version 1 100 %"
    assert said("--to", "2=5%") == "llm: version 1 95 %, version 2 5 %"
    assert said() == "llm: version 1 95 %, version 2 5 %"
    assert said("--to", "9=50", "--to", "10=50") == "llm: version 9 50 %, version 10 50 %"
    assert "version 2 is there twice" in said("--to", "2=5", "--to", "2=95")
    assert said("--off") == "llm: the highest version has all"
    assert "write it as 2=5%" in said("--to", "2:5")


def test_versions_are_listed_with_their_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "routes.toml"
    TOLD.invoke(app, ["route", "llm", "--routes", str(file), "--to", "1=100"])
    monkeypatch.setattr(module, "connect", lambda url, silence: Client(transport=fake_triton()))
    lines = TOLD.invoke(app, ["versions", "--routes", str(file)]).output.splitlines()
    assert [line.split() for line in lines if line.startswith("llm")] == [
        ["llm", "1", "0", "requests", "100", "%"]
    ]


@pytest.fixture
def triton() -> Iterator[tuple[int, list[tuple[str, str | None]]]]:
    """The port of a repository API that loads one model, and what it was asked: path and key."""
    asked: list[tuple[str, str | None]] = []

    def answer(request: Asked) -> tuple[int, bytes]:
        asked.append((request.path, request.headers["trimodal-operator-key"]))
        return (200, b"") if "llm" in request.path else (400, b'{"error": "no such model"}')

    with answering(answer) as port:
        yield port, asked


def test_a_model_is_loaded_again(triton: tuple[int, list[tuple[str, str | None]]]) -> None:
    port, asked = triton
    environment = {"TRIMODAL_OPERATOR_KEY": "secret"}
    done = TOLD.invoke(app, ["reload", "llm", "--http-port", str(port)], env=environment)
    assert done.output.startswith("llm is as its files say")
    assert asked == [("/v2/repository/models/llm/load", "secret")]
    done = TOLD.invoke(app, ["reload", "lim", "--http-port", str(port)], env=environment)
    assert (done.exit_code, done.output.strip()) == (
        1, "trimodal reload: model lim was not loaded: no such model"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "This API is restricted, expecting header 'trimodal-operator-key'",
            "the server wants its operator's key: --operator-key-file FILE, or TRIMODAL_OPERATOR_KEY",
        ),
        ("failed to load 'llm', failed to poll from model repository", "`trimodal check` names the line"),
        (
            "load failed for model 'llm': version 1 is at UNAVAILABLE state: Internal: SettingsError: "
            "llm/config.pbtxt: unknown parameter 'max_num_seq' (did you mean max_num_seqs?)\n\nAt:\n"
            "  /trimodal/settings.py(64): parse_parameters\n;\n",
            "llm/config.pbtxt: unknown parameter 'max_num_seq' (did you mean max_num_seqs?)",
        ),
    ],
)
def test_why_a_model_was_not_loaded(told: str, said: str) -> None:
    with answering(lambda _: (400, json.dumps({"error": told}).encode())) as port:
        done = TOLD.invoke(
            app, ["reload", "llm", "--http-port", str(port)], env={"TRIMODAL_OPERATOR_KEY": ""}
        )
    assert done.exit_code == 1
    assert said in done.output
    assert "At:" not in done.output
