"""`trimodal gateway` and `trimodal keys`, as commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import requires
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from trimodal.cli.app import app
from trimodal.cli.gateway import PACKAGES, server_of, settings_of
from trimodal.cli.serve import BuiltInGateway, ServeCommand
from trimodal.errors import ServerError
from trimodal.gateway.keys import read_keys
from trimodal.gateway.upstreams.file import read_upstreams

LIMIT_S = 30.0


def command(*arguments: object):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    added = command("keys", "add", "mobile app", "--file", file, "--tier", "premium", "--model", "llm")
    assert added.exit_code == 0
    assert added.output.startswith("tm-")
    (key,) = read_keys(file)
    assert (key.name, key.tier, key.models) == ("mobile app", "premium", ("llm",))
    listed = command("keys", "list", "--file", file).output
    assert "mobile app" in listed
    assert added.output.strip() not in listed
    assert command("keys", "revoke", "mobile app", "--file", file).exit_code == 0
    assert read_keys(file) == []


def test_an_operators_key_is_listed_as_one(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    assert command("keys", "add", "prometheus", "--file", file, "--operator").exit_code == 0
    assert read_keys(file)[0].operator
    assert "(operator)" in command("keys", "list", "--file", file).output


def test_a_place_where_no_responses_can_be_kept_is_one_sentence() -> None:
    result = command("gateway", "--port", 0, "--responses", "notes.txt")
    assert result.exit_code == 1
    assert "responses 'notes.txt': a file whose name ends with .sqlite is needed" in result.output


def test_a_server_is_drained_and_used_again(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.toml"
    file.write_text('[[upstream]]\naddress = "gpu-1:8001"\n[[upstream]]\naddress = "gpu-2:8001"\n')
    done = command("gateway", "drain", "gpu-2:8001", "--upstreams", file)
    assert (done.exit_code, done.output) == (0, "gpu-2:8001 gets no new requests\n")
    assert read_upstreams(file) == {"gpu-1:8001": False, "gpu-2:8001": True}
    assert command("gateway", "resume", "gpu-2:8001", "--upstreams", file).exit_code == 0
    assert read_upstreams(file) == {"gpu-1:8001": False, "gpu-2:8001": False}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("keys", "revoke", "nobody"), "no key is named 'nobody'"),
        (("keys", "add", ""), "name"),
        (("gateway", "--host", "0.0.0.0"), "name a file of --keys"),
        (("gateway", "--keys", "none.toml"), "no such file"),
        (("gateway", "--upstream", "nowhere"), "host:port"),
        (("gateway", "--upstream", "here:99999"), "a port is at most 65535"),
        (("gateway", "--upstreams", "none.toml"), "no such file"),
        (("gateway", "drain", "a:1"), "upstreams.toml: no such file"),
        (("gateway", "drain", "a:1", "--upstreams", "keys.toml"), "upstream"),
        (("gateway", "--port", "70000"), "port"),
        (("gateway", "--max-body-bytes", "1"), "max_body_bytes"),
        (("gateway", "--host", "192.0.2.1", "--without-keys", "--port", "0"), "cannot listen on 192.0.2.1"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keys.toml").write_text("")
    done = command(*arguments)
    assert done.exit_code == 1
    assert message in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_until_a_signal_and_leaves_in_order(name: signal.Signals) -> None:
    arguments = [
        sys.executable,
        "-m",
        "trimodal.cli.app",
        "gateway",
        "--port",
        "0",
        "--upstream",
        "127.0.0.1:1",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as gateway:
        try:
            assert gateway.stdout is not None
            url = gateway.stdout.readline().split()[-1].removesuffix("/v1")
            until = time.monotonic() + LIMIT_S
            while True:
                try:
                    health = httpx.get(f"{url}/health", timeout=5)
                    break
                except httpx.ConnectError:
                    assert time.monotonic() < until
                    time.sleep(0.05)
            assert health.json() == {"status": "ok"}
            ready = httpx.get(f"{url}/ready", timeout=10)
            told = {"ready": False, "models": {}, "versions": {}, "routes": {}}
            assert (ready.status_code, ready.json()) == (503, told)
            gateway.send_signal(name)
            assert gateway.wait(LIMIT_S) == 0
            assert gateway.stdout.read().endswith("Stopped.\n")
        finally:
            gateway.kill()


NOT_INSTALLED = r"^the gateway needs uvicorn: pip install 'trimodal\[gateway\]'$"


def test_a_gateway_that_is_not_installed_says_how_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    settings = settings_of(port=0)
    with pytest.raises(ServerError, match=NOT_INSTALLED):
        server_of(settings)


def test_what_is_looked_for_is_what_the_extra_installs():
    needed = [Requirement(one) for one in requires("trimodal") or ()]
    extra = {one.name for one in needed if one.marker and one.marker.evaluate({"extra": "gateway"})}
    extra -= {one.name for one in needed if not one.marker or one.marker.evaluate({"extra": ""})}
    assert {name.replace("_", "-") for name in PACKAGES} == extra


def test_before_a_server_is_started_it_is_known_that_its_gateway_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ServerError, match=NOT_INSTALLED):
        BuiltInGateway(ServeCommand(gateway_port=0))
