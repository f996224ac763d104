import re
import subprocess
import sys

import pytest
import typer

from trimodal.cli.app import app
from trimodal.cli.common import OPERATOR_KEY, read_key
from trimodal.errors import SettingsError


def test_help_imports_nothing_heavy():
    heavy = "asyncio, numpy, tritonclient, grpc, google, pydantic, torch, PIL, tokenizers, onnxruntime"
    code = f"import sys, trimodal.cli.app; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--profile", "tpu"], 2, "tpu is not a profile: cpu, cuda or tensorrt"),
        (["--set", "llm"], 1, "--set llm: write it as model.parameter=value"),
        (["--drain-timeout", "-1"], 2, "drain-timeout"),
        (["--drain-timeout", "inf"], 2, "drain-timeout"),
        (["--model-repository", "/nonexistent"], 1, "/nonexistent is no folder"),
        (
            ["--host", "0.0.0.0", "--model-repository", "/nonexistent"],
            1,
            "Triton's ports on 0.0.0.0 ask for no key and bound no body",
        ),
        (["--operator-key-file", "/nonexistent"], 1, "/nonexistent: No such file"),
        (["--operator-key-file", "/dev/null"], 1, "/dev/null has no key of printable ASCII"),
    ],
)
def test_refusals(arguments, code, sentence):
    """In processes of their own: when serve ends it ignores signals, and so would what is started later."""
    done = subprocess.run(
        [sys.executable, "-m", "trimodal.cli.app", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"COLUMNS": "200", "TERM": "dumb", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr


def test_a_key_is_of_the_file_or_the_environment(monkeypatch, tmp_path):
    (tmp_path / "key").write_text("of-the-file\n")
    monkeypatch.setenv(OPERATOR_KEY, "of-the-environment")
    assert read_key(tmp_path / "key", OPERATOR_KEY) == "of-the-file"
    assert read_key(None, OPERATOR_KEY) == "of-the-environment"
    monkeypatch.delenv(OPERATOR_KEY)
    assert read_key(None, OPERATOR_KEY) == ""
    (tmp_path / "key").write_text("two words")
    with pytest.raises(SettingsError, match="no key of printable ASCII"):
        read_key(tmp_path / "key", OPERATOR_KEY)


def test_no_command_takes_a_secret_as_an_argument():
    """Every user of the machine can read the arguments of all processes."""

    def options(command, path):
        for parameter in command.params:
            yield from ((path, flag) for flag in parameter.opts if flag.startswith("--"))
        for name, inner in getattr(command, "commands", {}).items():
            yield from options(inner, f"{path} {name}")

    flags = set(options(typer.main.get_command(app), "trimodal"))
    assert ("trimodal serve", "--operator-key-file") in flags
    secret = re.compile(r"key|password|secret|credential|header")
    named = {flag for _, flag in flags if secret.search(flag)}
    # Files, a number of seconds, and whether to ask for keys at all.
    assert named == {"--operator-key-file", "--api-key-file", "--keys", "--without-keys", "--header-timeout"}
