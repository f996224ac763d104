"""Runs HAProxy with a configuration of deploy/; skips the test where there is none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "scripts" / "ci" / "haproxy"
_BOUND_S = 120.0  # the first time it is fetched
_UNAVAILABLE = 69  # scripts/ci/haproxy: there is none, and none could be fetched


@contextmanager
def haproxy(
    config: Path, log: Path, environment: Mapping[str, str], answers: Callable[[], bool]
) -> Iterator[None]:
    """HAProxy in the foreground while the block lasts, from when it `answers`; what it says goes to `log`."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [PROGRAM, "-db", "-f", config], stdout=out, stderr=out, env={**os.environ, **environment}
        )
    try:
        wait_until(lambda: process.poll() is not None or answers(), "HAProxy's answer", _BOUND_S)
        told = log.read_text(errors="replace")
        if process.poll() == _UNAVAILABLE:
            pytest.skip(f"no haproxy here: {told[-200:]}")
        assert process.poll() is None, told
        yield
    finally:
        process.kill()
        process.wait(_BOUND_S)
