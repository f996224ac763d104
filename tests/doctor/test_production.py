"""What is not so of docs/security.md's list is told, one line each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.server.artefacts import add_model, python_model
from trimodal.doctor import production
from trimodal.doctor.production import check_production
from trimodal.gateway.keys import Key, add_key
from trimodal.repository import read_model
from trimodal.server.options import ServerOptions

LIMITS = {"max_streams": 4, "tokens_per_minute": 1000}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One on which all is as it should be."""
    for name in ("shm", "cache"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "ptrace_scope").write_text("1\n")
    monkeypatch.setattr(production, "_SHM", tmp_path / "shm")
    monkeypatch.setattr(production, "_PTRACE", tmp_path / "ptrace_scope")
    monkeypatch.setattr(production, "cache_directory", lambda: tmp_path / "cache")
    add_model(tmp_path / "r", python_model("llm", engine="fake"))
    for name in ("anna", "bert"):
        add_key(tmp_path / "keys.toml", Key(name=name, **LIMITS))
    return tmp_path


def found(
    machine: Path,
    host: str = "127.0.0.1",
    environ: dict[str, str] | None = None,
    repository: str = "r",
    **gateway: Any,
) -> dict[str, str]:
    """Name → how bad it is, of what is not well; but for the version, which is this environment's."""
    gateway = {"keys": machine / "keys.toml", **gateway}
    given = {name: value for name, value in gateway.items() if value is not None}
    options = ServerOptions(repository=machine / "r", host=host)
    models = [read_model(machine / repository, "llm", "cpu")]
    checks = check_production(options, models, given, environ or {})
    return {
        one.place.name: one.severity
        for one in checks
        if one.severity != "ok" and one.place.name not in ("Triton's version", "open files")
    }


def test_all_is_well(machine: Path) -> None:
    assert found(machine) == {}


def test_who_listens_where(machine: Path) -> None:
    assert found(machine, host="0.0.0.0") == {"Triton's ports": "error"}
    assert found(machine, keys=None) == {"keys": "error"}
    assert found(machine, cors_origins=("*",)) == {"gateway": "error"}


def test_the_gateways_own_refusals_are_told(machine: Path) -> None:
    options = ServerOptions(repository=machine / "r")
    for given in ({"host": "0.0.0.0"}, {"keys": machine / "none.toml"}, {"host": "0.0.0.0", "port": -1}):
        checks = {one.place.name: one for one in check_production(options, [], given, {})}
        assert checks["gateway"].severity == "error"


def test_keys_are_private_there_and_limited(machine: Path) -> None:
    file = machine / "keys.toml"
    file.chmod(0o644)
    assert found(machine) == {"keys": "error"}
    file.write_text("")
    file.chmod(0o600)
    assert found(machine) == {"keys": "error"}
    add_key(file, Key(name="at once", max_streams=3))
    assert found(machine) == {"limits": "warning"}


def test_tenants_share_no_prefixes(machine: Path) -> None:
    shared = {"engine": "fake", "prefix_cache_scope": "shared"}
    add_model(machine / "a", python_model("llm", **shared))
    assert found(machine, repository="a") == {"prefix cache": "error"}
    add_model(machine / "b", python_model("llm", **shared, enable_prefix_caching="false"))
    assert found(machine, repository="b") == {}
    add_model(machine / "c", python_model("llm", **shared, enable_prefix_caching="True"))
    assert found(machine, repository="c") == {"prefix cache": "error"}, "as a model reads it"


@pytest.mark.parametrize("name", ["TRIMODAL_OPERATOR_KEY", "TRIMODAL_OPERATOR_KEY_FILE"])
def test_what_others_of_the_machine_may_read(machine: Path, name: str) -> None:
    (machine / "cache").chmod(0o755)
    region = machine / "shm" / "trimodal-server-1"
    region.touch()
    region.chmod(0o644)
    (machine / "ptrace_scope").write_text("2")
    assert found(machine, environ={name: "k"}) == {
        "cache and logs": "warning",
        "/dev/shm": "error",
        "operator key": "error",
    }
    assert os.getuid() == region.stat().st_uid
