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
from trimodal.server.ports import choose

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
    """The port of a repository API that loads its models, and what it was asked: path and key.

    The health page is there, too. `llm` has a semantic cache, `chat` one that asks no model.
    """
    asked: list[tuple[str, str | None]] = []
    caches = {"llm": "semantic", "chat": "exact"}
    index = [{"name": name, "version": "1", "state": "READY"} for name in (*caches, "judge", "vision")]

    def answer(request: Asked) -> tuple[int, bytes]:
        if request.path == "/v2/repository/index":
            return 200, json.dumps(index).encode()
        if request.command == "GET":
            cache = caches.get(request.path.split("/")[3], "off")
            texts = {"cache": cache, "judge": "judge", "embedder": "embedding"}
            parameters = {key: {"string_value": text} for key, text in texts.items()}
            return 200, json.dumps({"parameters": parameters}).encode()
        asked.append((request.path, request.headers["trimodal-operator-key"]))
        return (400, b'{"error": "no such model"}') if "lim" in request.path else (200, b"{}")

    with answering(answer) as port:
        yield port, asked


def test_a_model_is_loaded_again(triton: tuple[int, list[tuple[str, str | None]]]) -> None:
    port, asked = triton
    environment = {"TRIMODAL_OPERATOR_KEY": "secret"}
    ports = ["--http-port", str(port), "--health-port", str(port)]
    done = TOLD.invoke(app, ["reload", "llm", *ports], env=environment)
    assert done.output.startswith("llm is as its files say")
    assert done.output.endswith("nothing else\n")
    # First the copy that the server may read, then the model.
    assert asked == [("/refresh", "secret"), ("/v2/repository/models/llm/load", "secret")]
    done = TOLD.invoke(app, ["reload", "lim", *ports], env=environment)
    assert (done.exit_code, done.output.strip()) == (
        1, "trimodal reload: model lim was not loaded: no such model"
    )  # fmt: skip


def test_without_a_health_page_it_says_that_a_copy_is_as_it_was(
    triton: tuple[int, list[tuple[str, str | None]]],
) -> None:
    port, asked = triton
    closed = str(choose("127.0.0.1", {"--health-port": 0})["--health-port"])
    done = TOLD.invoke(app, ["reload", "llm", "--http-port", str(port), "--health-port", closed])
    assert f"no health page answers on port {closed} (--health-port)" in done.output
    assert [path for path, _ in asked] == ["/v2/repository/models/llm/load"]


@pytest.mark.parametrize("model", ["judge", "embedding"])
def test_what_a_semantic_cache_goes_by_is_not_changed_under_it(
    triton: tuple[int, list[tuple[str, str | None]]], model: str
) -> None:
    port, asked = triton
    ports = ["--http-port", str(port), "--health-port", str(port)]
    done = TOLD.invoke(app, ["reload", model, *ports])
    assert done.exit_code == 1
    assert f"the semantic cache of llm goes by what it knew of {model}" in done.output
    assert not [path for path, _ in asked if path.endswith("load")]


def test_a_copy_that_cannot_be_made_is_told_and_nothing_loaded() -> None:
    with answering(lambda _: (409, b'{"error": "llm/config.pbtxt is not a valid configuration"}')) as port:
        done = TOLD.invoke(app, ["reload", "llm", "--http-port", str(port), "--health-port", str(port)])
    assert "was not loaded: llm/config.pbtxt is not a valid configuration" in done.output


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
    def answer(request: Asked) -> tuple[int, bytes]:
        loads = request.path.endswith("/load")
        return (400, json.dumps({"error": told}).encode()) if loads else (200, b"[]")

    with answering(answer) as port:
        ports = ["--http-port", str(port), "--health-port", str(port)]
        done = TOLD.invoke(app, ["reload", "llm", *ports], env={"TRIMODAL_OPERATOR_KEY": ""})
    assert done.exit_code == 1
    assert said in done.output
    assert "At:" not in done.output
