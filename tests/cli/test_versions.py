"""The commands for versions and for loading again."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.doubles.http_server import Asked, answering
from tests.gateway.conftest import fake_triton
from trimodal.cli.app import app
from trimodal.cli.operate import versions as module
from trimodal.client import Client
from trimodal.server.admin import Api
from trimodal.server.ports import choose

TOLD = CliRunner()
Answer = Callable[[Asked], tuple[int, bytes]]


def reload(port: int, page: int | None = None, model: str = "llm", key: str = "") -> Result:
    """`trimodal reload` of a server whose HTTP port and health port these are."""
    ports = ["--http-port", str(port), *(["--health-port", str(page)] if page else [])]
    return TOLD.invoke(app, ["reload", model, *ports], env={"TRIMODAL_OPERATOR_KEY": key})


def reload_from(answer: Answer) -> Result:
    """The same of a double, both of whose ports are one."""
    with answering(answer) as port:
        return reload(port, port)


def copying(copy: Callable[[], tuple[int, bytes]]) -> Answer:
    """A server that reads a copy: `copy` says what it answers to whoever has that made again."""

    def answer(request: Asked) -> tuple[int, bytes]:
        if (request.command, request.path) == ("POST", "/refresh"):
            return copy()
        return 200, b'{"http_port": 8000}' if request.path == "/refresh" else b"[]"

    return answer


def closed() -> int:
    return choose("127.0.0.1", {"": 0})[""]


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

    The health page is there, too; inside its container the server's HTTP port is 8000. `llm` has a semantic
    cache, `chat` one that asks no model. Index and loads are closed to the key `stranger`.
    """
    asked: list[tuple[str, str | None]] = []

    def answer(request: Asked) -> tuple[int, bytes]:
        key = request.headers["trimodal-operator-key"]
        if key == "stranger":
            status = 403 if request.path.startswith("/v2/repository") else 401
            return status, b'{"error": "This API is restricted, expecting header \'trimodal-operator-key\'"}'
        if (request.command, request.path) == ("GET", "/refresh"):
            assert not key, "whose page it is, is not known yet"
            return 200, b'{"http_port": 8000}'
        asked.append((request.path, key))
        return (400, b'{"error": "no such model"}') if "lim" in request.path else (200, b"{}")

    with answering(answer) as port:
        yield port, asked


def test_a_model_is_loaded_again(triton: tuple[int, list[tuple[str, str | None]]]) -> None:
    port, asked = triton
    done = reload(port, port, key="secret")
    assert done.output.startswith("llm is as its files say")
    assert done.output.endswith("nothing else\n")
    # First the copy that the server may read, then the model.
    assert asked == [("/refresh", "secret"), ("/v2/repository/models/llm/load", "secret")]
    done = reload(port, port, "lim", "secret")
    assert done.exit_code == 1
    assert done.output.strip() == "trimodal reload: model lim was not loaded: no such model"


def test_without_a_health_page_it_says_that_a_copy_is_as_it_was(
    triton: tuple[int, list[tuple[str, str | None]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = triton
    nobody = closed()
    told = f"no health page of this server answers on port {nobody} (--health-port)"
    assert told in reload(port, nobody).output
    assert [path for path, _ in asked] == ["/v2/repository/models/llm/load"]
    monkeypatch.setattr(module, "HEALTH_PORT", port)  # of a server beside it
    assert told.replace(str(nobody), str(port)) in reload(port).output
    assert [path for path, _ in asked] == ["/v2/repository/models/llm/load"] * 2


@pytest.mark.parametrize("health_page", [True, False])
def test_a_key_that_is_not_the_servers_changes_nothing(
    triton: tuple[int, list[tuple[str, str | None]]], health_page: bool
) -> None:
    port, asked = triton
    done = reload(port, port if health_page else closed(), key="stranger")
    assert "model llm was not loaded: the key is not the server's: --operator-key-file FILE" in done.output
    assert not asked


def test_a_health_port_that_is_silent_holds_nothing_up(
    triton: tuple[int, list[tuple[str, str | None]]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        page = silent.getsockname()[1]
        assert f"no health page of this server answers on port {page}" in reload(triton[0], page).output


def test_without_a_health_port_the_usual_one_is_asked_if_it_is_this_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def answer(request: Asked) -> tuple[int, bytes]:
        asked.append(f"{request.command} {request.path}")
        own = json.dumps({"http_port": request.server.server_address[1]}).encode()
        return 200, own if request.path == "/refresh" else b"[]"

    with answering(answer) as port:
        monkeypatch.setattr(module, "HEALTH_PORT", port)
        assert reload(port).output.endswith("nothing else\n")
    assert asked == ["GET /refresh", "POST /refresh", "POST /v2/repository/models/llm/load"]


def test_a_page_that_does_not_know_the_key_is_anothers() -> None:
    done = reload_from(copying(lambda: (401, b'{"error": "restricted"}')))
    assert "no health page of this server answers" in done.output


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("told", [b"", b"[]", b"{}", b'{"http_port": null}', b"\xff"])
def test_whoever_else_listens_there_gets_no_key(status: int, told: bytes) -> None:
    with answering(lambda _: (status, told)) as port:
        assert Api("127.0.0.1", 1, 1, "secret").page_of(port) is None


def unloaded(answer: Answer) -> Answer:
    """A server that nobody may have load a model."""

    def checked(request: Asked) -> tuple[int, bytes]:
        assert "/load" not in request.path
        return answer(request)

    return checked


def test_a_copy_that_cannot_be_made_is_told_and_nothing_loaded() -> None:
    why = "llm/config.pbtxt is not a valid configuration"
    done = reload_from(unloaded(copying(lambda: (409, json.dumps({"error": why}).encode()))))
    assert f"was not loaded: {why}" in done.output


def test_a_copy_that_takes_long_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    echo = module.typer.echo

    def tells(message: str, err: bool = False) -> None:
        echo(message, err=err)
        if "copies its repository" in message:
            told.set()

    def copy() -> tuple[int, bytes]:
        assert told.wait(20)
        return 200, b"{}"

    monkeypatch.setattr(module, "TELL_S", 0.0)
    monkeypatch.setattr(module.typer, "echo", tells)
    done = reload_from(copying(copy))
    assert "the server copies its repository" in done.output
    assert done.output.endswith("nothing else\n")


def test_a_copy_that_never_ends_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def copy() -> tuple[int, bytes]:
        ended.wait(20)
        return 200, b"{}"

    monkeypatch.setattr("trimodal.server.admin._COPY_SECONDS", 0.05)
    with answering(unloaded(copying(copy))) as port:
        done = reload(port, port)
        ended.set()
    assert done.exit_code == 1
    assert "model llm was not loaded: the server is still copying its repository after 0.05 s" in done.output


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

    done = reload_from(answer)
    assert done.exit_code == 1
    assert said in done.output
    assert "At:" not in done.output
