import subprocess
import sys

import pytest
from typer.testing import CliRunner

from trimodal.cli.app import app


def test_help_imports_nothing_heavy():
    heavy = "numpy, tritonclient, grpc, google, pydantic, torch, PIL, tokenizers, onnxruntime"
    code = f"import sys, trimodal.cli.app; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_help_lists_the_flags():
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    for flag in (
        "--http-port",
        "--grpc-port",
        "--metrics-port",
        "--host",
        "--profile",
        "--set",
        "--drain-timeout",
        "TRIMODAL_LOG_FORMAT",
    ):
        assert flag in shown


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--profile", "tpu"], 2, "tpu is not a profile: cpu, cuda or tensorrt"),
        (["--set", "llm"], 1, "--set llm: write it as model.parameter=value"),
        (["--drain-timeout", "-1"], 2, "drain-timeout"),
        (["--model-repository", "/nonexistent"], 1, "/nonexistent does not exist"),
    ],
)
def test_refusals(arguments, code, sentence):
    done = subprocess.run(
        [sys.executable, "-m", "trimodal.cli.app", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"COLUMNS": "200", "TERM": "dumb", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
