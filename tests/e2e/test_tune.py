"""`trimodal tune` on real servers: each setting has one of its own, and none is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import fakes
from tests.e2e.conftest import BOUND, MODEL_REPOSITORY, TEST_REPOSITORY, wait_until

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
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number, output
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


MIX = (
    "llm@6:p95_ttft_ms<=2000,p95_itl_ms<=5000",
    "vision@4:p99_ms<=9000",
    "speech@2:p99_ms<=9000",
)
MIXED = ("llm", "vision", "speech", "speech_recognize")
MIX_BOUND = 360.0  # seconds: 2 edges of up to 10 runs each, on a machine that is busy


@pytest.mark.timeout(400)
def test_a_mix_is_tuned_together_and_what_is_written_passes_the_check(tmp_path: Path) -> None:
    repository, temporary = tmp_path / "models", tmp_path / "tmp"
    temporary.mkdir()
    for name in MIXED:
        built = shutil.ignore_patterns("openvino-*", "onnx-*", "ctranslate2-*")
        shutil.copytree(MODEL_REPOSITORY / name, repository / name, ignore=built)
    # One answer at a time, 20 ms a token: the answers fill it long before anything else is full.
    changes = fakes.changes(tmp_path)
    changes["llm"] = {**changes["llm"], "fake_step_ms": "20", "max_num_seqs": "1"}
    changed = [f"{model}.{name}={value}" for model in MIXED for name, value in changes[model].items()]
    arguments = [
        *(part for one in MIX for part in ("--mix", one)),
        *(part for one in changed for part in ("--set", one)),
        *("--only", "--knob", "llm.max_num_seqs=1,4", "--pace", "16", "--seconds", "2"),
        *("--trials", "2", "--rounds", "1", "--final-rounds", "0", "--write"),
        *("--model-repository", str(repository), "--json", str(tmp_path / "out.json")),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "trimodal.cli.app", "tune", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "200"},
        timeout=MIX_BOUND,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads((tmp_path / "out.json").read_text())
    assert [one["state"] for one in data["trials"]] == ["measured"] * 2
    figures = data["trials"][0]["rounds"][0]["figures"]
    assert {"load", "llm p95_ttft_ms", "llm p95_itl_ms", "vision p99_ms", "speech p99_ms"} <= set(figures)
    assert list(temporary.iterdir()) == []
    assert data["chosen"] == {"llm.max_num_seqs": "4"}
    written = (repository / "llm" / "configs" / "cpu.pbtxt").read_text()
    assert 'key: "max_num_seqs" value { string_value: "4" }' in written
    check = [sys.executable, "-m", "trimodal.cli.app", "check", str(repository), "--profile", "cpu"]
    checked = subprocess.run(check, capture_output=True, text=True, timeout=BOUND)
    assert checked.returncode == 0, checked.stdout + checked.stderr
