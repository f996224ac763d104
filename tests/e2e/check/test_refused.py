"""Gives the broken repositories of the checker's tests to the real server: what it says of each.

Triton 2.51 may end with signal 11 when a model's instance or warm-up is refused: the instance's thread says
that it failed before it puts the instance back, and `StopBackendThread` reads it from an empty vector. On a
busy machine that meets about one refusal in fifty, so such a server is started again with what is left.
"""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.check.cases.base import BATCHES, EXECUTE, Case
from tests.check.cases.refused import REFUSED
from tests.e2e.conftest import BOUND, wait_until
from trimodal.server import launch, ports
from trimodal.server.installation import assemble, find_triton

pytestmark = pytest.mark.slow
# Their backend is not part of the wheel.
NOT_HERE = ("TRI011-platform", "TRI012")
MOST_STARTS = 12


class Server:
    """One tritonserver on a whole repository, broken models and all."""

    def __init__(self, address: str, log: Path, child: launch.Child) -> None:
        self._address, self._log, self._child = address, log, child

    def index(self) -> dict[str, dict[str, str]]:
        """Model → name, state and reason. Files that the server could not read are not in it."""
        request = urllib.request.Request(f"{self._address}/v2/repository/index", data=b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=BOUND) as answer:
            return {model["name"]: model for model in json.load(answer)}

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._child.guard.poll()

    def answers(self) -> bool:
        try:
            self.index()
        except OSError:
            return False
        return True

    def answers_or_ended(self) -> bool:
        return self.status() is not None or self.answers()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def serving(repository: Path, folder: Path) -> Iterator[Server]:
    """The server goes on after a model that it refuses, so that one start shows all of them."""
    triton = find_triton()
    log = folder.with_suffix(".log")
    child = launch.Child(log)
    backends, environment = assemble(triton, child.run_directory)
    chosen = ports.choose("127.0.0.1", {"--http-port": 0, "--grpc-port": 0, "--metrics-port": 0})
    command = [
        str(triton.binary),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--model-control-mode=none",
        "--exit-on-error=false",
        "--strict-readiness=false",
        *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")),
        *(f"{flag}={port}" for flag, port in chosen.items()),
        f"--backend-config=python,shm-region-prefix-name={child.shm_prefix}",
        "--pinned-memory-pool-byte-size=0",
    ]
    try:
        child.start(command, environment, operator_key="")
        yield Server(f"http://127.0.0.1:{chosen['--http-port']}", log, child)
    finally:
        child.kill()


def refusals(case: Case, log: str) -> list[str]:
    """What the log has on the case's model."""
    return [line for line in log.splitlines() if f"{case.prefix}m" in line]


def test_the_server_refuses_what_the_checker_says_that_it_refuses(tmp_path: Path) -> None:
    log, left, started = "", list(REFUSED), 0
    models: dict[str, dict[str, str]] = {}
    while not models:
        started += 1
        folder = tmp_path / str(started)
        (folder / "repository").mkdir(parents=True)
        for case in left:
            case.write(folder / "repository", broken=True, prefix=case.prefix)
        with serving(folder / "repository", folder / "run") as server:
            wait_until(server.answers_or_ended, "the server's answer")
            log += server.log
            if server.status() is None:
                models = server.index()
            else:
                assert server.status() == 128 + signal.SIGSEGV, server.log
                assert started < MOST_STARTS, server.log
        left = [case for case in left if not any(case.reply in line for line in refusals(case, log))]
    wrong = []
    for case in REFUSED:
        model = models.get(f"{case.prefix}m", {})
        said = [model.get("reason", ""), *refusals(case, log)]
        if model.get("state") == "READY" or not any(case.reply in line for line in said):
            wrong.append(f"{case.id}: {model.get('state')} {said[-1]}, expected: {case.reply}")
    assert not wrong, "\n".join(wrong)
    assert "successfully loaded 'shared'" in log


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
