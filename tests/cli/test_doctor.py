from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.server.artefacts import add_model, build, python_model
from trimodal.cli.app import app
from trimodal.gateway.keys import Key, add_key
from trimodal.repository import select_models

REPOSITORY = Path(__file__).parents[2] / "model_repository"
KINDS = ("http", "grpc", "metrics", "health", "gateway")
PORTS = tuple(word for kind in KINDS for word in (f"--{kind}-port", "0"))


def doctor(*arguments: object):
    """`trimodal doctor …` on a wide terminal without colours."""
    given = ["doctor", *PORTS, *map(str, arguments)]
    return CliRunner().invoke(app, given, env={"COLUMNS": "200", "TERM": "dumb", "TRIMODAL_ENGINES": ""})


@pytest.fixture
def repository(tmp_path):
    """An embedder that this machine can serve without a GPU."""
    version = add_model(
        tmp_path / "r", python_model("embedding", engine="onnxruntime", artefact="onnx-fp32", max_bytes="64")
    )
    build(version / "onnx-fp32", "embedding", "onnxruntime")
    return tmp_path / "r"


def test_a_machine_that_can_serve(repository):
    done = doctor("--model-repository", repository)
    assert done.exit_code == 0, done.output
    lines = [line.rstrip() for line in done.output.splitlines()]
    assert lines[0] == f"profile cpu, models of {repository}"
    for group in ("machine", "triton", "libraries", "models"):
        assert group in lines
    assert "gpu" not in lines
    assert lines[-1].endswith("Next: trimodal serve --profile cpu")


def test_a_port_that_the_gateway_would_not_get_is_told_and_stops_nothing(repository):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = doctor("--model-repository", repository, "--gateway-port", port)
    assert done.exit_code == 0, done.output
    assert f"port {port} on 127.0.0.1 is in use" in done.output
    assert "→ unless your gateway has it: trimodal gateway --port" in done.output


def test_an_engine_that_is_missing(repository):
    done = doctor("--model-repository", repository, "--set", "embedding.artefact=onnx-fp16")
    assert done.exit_code == 1
    command = "trimodal build embedding CHECKPOINT --runtime onnx --precision fp16"
    assert f"→ build one with: {command}" in done.output
    assert "there is no built engine embedding/1/onnx-fp16" in done.output
    assert done.output.rstrip().endswith("the server will not start as it is.")


def test_engines_of_another_place(repository, tmp_path):
    build(tmp_path / "engines" / "embedding" / "onnx-fp16", "embedding", "onnxruntime", precision="fp16")
    changed = ("--model-repository", repository, "--set", "embedding.artefact=onnx-fp16")
    done = doctor(*changed, "--engines", tmp_path / "engines")
    assert done.exit_code == 0, done.output
    assert f"engines of {tmp_path / 'engines'}" in done.output
    assert done.output.rstrip().endswith(f"trimodal serve --profile cpu --engines {tmp_path / 'engines'}")
    assert doctor(*changed).exit_code == 1
    nothing = doctor(*changed, "--engines", tmp_path / "nothing").output
    assert "nothing is no folder" in nothing
    assert re.search(r"^ok +tritonserver ", nothing, re.MULTILINE)


def test_a_deep_look_reads_every_file(repository):
    assert "1 files as they were built" in doctor("--deep", "--model-repository", repository).output


@pytest.mark.parametrize("profile", ["cpu", "cuda", "tensorrt"])
def test_every_profile_of_the_repository_is_understood(profile):
    """Whatever this machine lacks: no traceback, a line for every model, and settings that are all known."""
    done = doctor("--profile", profile, "--model-repository", REPOSITORY)
    assert done.exit_code in (0, 1), done.output
    _, told = done.output.split("\nmodels\n")
    named = re.findall(r"^(?:ok|warning|error) +(\w+)", told, re.MULTILINE)
    assert set(named) == set(select_models(REPOSITORY, (), profile))
    assert "parameter" not in told


def test_a_profile_that_is_none():
    done = doctor("--profile", "tpu")
    assert done.exit_code == 2
    assert "tpu is not a profile: cpu, cuda or tensorrt" in done.output


def test_what_the_gateway_reads_of_the_environment_is_read(repository, tmp_path, monkeypatch):
    keys = tmp_path / "keys.toml"
    add_key(keys, Key(name="a", max_streams=1, tokens_per_minute=1))
    monkeypatch.setenv("TRIMODAL_KEYS", str(keys))
    monkeypatch.setenv("TRIMODAL_CORS_ORIGIN", "*")
    found = doctor("--model-repository", repository, "--production").output
    assert f"1 in {keys}" in found
    assert "pages of every site are let in" in found


def test_a_gateway_without_keys_is_told_of(repository):
    found = doctor(
        "--model-repository", repository, "--production", "--gateway-host", "0.0.0.0", "--without-keys"
    )
    assert "none are asked for" in found.output
