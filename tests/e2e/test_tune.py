"""`trimodal tune` on real servers: each setting has one of its own, and none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import BOUND, TEST_REPOSITORY, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KNOBS = (
    "--only",
    "--knob",
    "echo.max_queue_delay_microseconds=100,2000",
    "--knob",
    "echo.instance_count=2,3",
)


def start(temporary: Path, *arguments: str) -> subprocess.Popen[str]:
    options = ("--model-repository", str(TEST_REPOSITORY), "--seconds", "0.2")
    return subprocess.Popen(
        [sys.executable, "-m", "trimodal.cli.app", "tune", "echo", *options, *KNOBS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "200"},
    )


def test_ends_with_a_report_and_the_files_as_before(tmp_path: Path) -> None:
    text = (TEST_REPOSITORY / "echo" / "config.pbtxt").read_text()
    process = start(tmp_path, "--trials", "3", "--rounds", "1", "--final-rounds", "1")
    output, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 0, output
    assert "3 of 3" in output
    assert (TEST_REPOSITORY / "echo" / "config.pbtxt").read_text() == text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "--trials", "50", "--rounds", "2", "--final-rounds", "50")
    wait_until(lambda: any(tmp_path.glob("trimodal-tune-*/setting-2")), "a second setting")
    process.send_signal(number)
    output, _ = process.communicate(timeout=BOUND)
    wait_until(lambda: not list(tmp_path.glob("trimodal-server-*")), "the server's end")
    if number == signal.SIGINT:
        assert process.returncode == 130, output
        assert "Interrupted after" in output
        assert list(tmp_path.iterdir()) == []
