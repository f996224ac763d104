"""Gives the broken repositories of the checker's tests to the real server: what it says of each."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.check.cases.base import BATCHES, EXECUTE
from tests.check.cases.refused import REFUSED
from tests.e2e.conftest import BOUND, wait_until
from trimodal.server import launch, ports
from trimodal.server.installation import assemble, find_triton

pytestmark = pytest.mark.slow
# Their backend is not part of the wheel.
NOT_HERE = ("TRI011-platform", "TRI012")


class Server:
    """One tritonserver on a whole repository, broken models and all."""

    def __init__(self, address: str, log: Path) -> None:
        self._address, self._log = address, log

    def index(self) -> dict[str, dict[str, str]]:
        """Model → name, state and reason. Files that the server could not read are not in it."""
        request = urllib.request.Request(f"{self._address}/v2/repository/index", data=b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=BOUND) as answer:
            return {model["name"]: model for model in json.load(answer)}

    def answers(self) -> bool:
        try:
            self.index()
        except OSError:
            return False
        return True

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def serving(repository: Path, folder: Path) -> Iterator[Server]:
    """The server goes on after a model that it refuses, so that one start shows all of them."""
    triton = find_triton()
    folder.mkdir()
    backends, environment = assemble(triton, folder)
    chosen = ports.choose("127.0.0.1", {"--http-port": 0, "--grpc-port": 0, "--metrics-port": 0})
    # Removed with its regions, should one be left, by the guard: the name must be this server's alone.
    shm_prefix = f"trimodal-server-{uuid.uuid4().hex[:8]}-"
    command = [
        str(triton.binary),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--model-control-mode=none",
        "--exit-on-error=false",
        "--strict-readiness=false",
        *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")),
        *(f"{flag}={port}" for flag, port in chosen.items()),
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
        "--pinned-memory-pool-byte-size=0",
    ]
    log = folder.with_suffix(".log")
    child = launch.start(
        command, environment, log, operator_key="", shm_prefix=shm_prefix, run_directory=folder
    )
    try:
        yield Server(f"http://127.0.0.1:{chosen['--http-port']}", log)
    finally:
        child.kill()


def test_the_server_refuses_what_the_checker_says_that_it_refuses(tmp_path: Path) -> None:
    for case in REFUSED:
        case.write(tmp_path / "repository", broken=True, prefix=case.prefix)
    with serving(tmp_path / "repository", tmp_path / "run") as server:
        wait_until(server.answers, "the server's answer")
        models, log = server.index(), server.log
    wrong = []
    for case in REFUSED:
        name = f"{case.prefix}m"
        model = models.get(name, {})
        said = [model.get("reason", ""), *(line for line in log.splitlines() if name in line)]
        if model.get("state") == "READY" or not any(case.reply in line for line in said):
            wrong.append(f"{case.id}: {model.get('state')} {said[-1]}, expected: {case.reply}")
    assert not wrong, "\n".join(wrong)
    assert models["shared"]["state"] == "READY"


def test_the_server_loads_the_repaired_ones(tmp_path: Path) -> None:
    seen: dict[str, str] = {}  # each of these costs a process of the server's
    for case in REFUSED:
        if case.id not in NOT_HERE and seen.setdefault(repr(sorted(case.clean.items())), case.id) == case.id:
            case.write(tmp_path / "repository", broken=False, prefix=case.prefix)
    with serving(tmp_path / "repository", tmp_path / "run") as server:
        wait_until(server.answers, "the server's answer")
        states = {name: model.get("state") for name, model in server.index().items()}
    assert {f"{case.prefix}m" for case in REFUSED if case.id in seen.values()} <= states.keys()
    assert not {name for name, state in states.items() if state != "READY"}


def test_a_missing_model_file_keeps_the_server_from_getting_ready(tmp_path: Path) -> None:
    """TRI025. When this fails, the server has learnt to refuse it: make the rule one of those."""
    for name, text in {"config.pbtxt": BATCHES, "1/other.py": EXECUTE}.items():
        file = tmp_path / "repository" / "m" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with serving(tmp_path / "repository", tmp_path / "run") as server:
        wait_until(lambda: "Python model file not found" in server.log, "the stub's end")
        time.sleep(2)  # other failures are told within milliseconds
        assert not server.answers()
        assert "failed to load 'm'" not in server.log
