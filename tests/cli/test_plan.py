"""`trimodal plan llm` as it is called: tables, exit codes, sentences."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from tests.plan.model_shapes import LLAMA_8B, LLAMA_70B
from trimodal import build_support
from trimodal.cli.app import app


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", "llm", *map(str, arguments)])


def test_tables(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_support.console, "width", 160)
    one = run(config, "--card", "H100")
    assert one.exit_code == 0, one.output
    assert "8,030,261,248" in one.output
    assert "131,072" in one.output
    every = run(config)
    assert every.exit_code == 0
    assert "A100 40GB" in every.output


def test_what_does_not_fit_says_the_remedies_and_fails(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    result = run(tmp_path, "--card", "H200")
    assert result.exit_code == 0
    result = run(tmp_path, "--card", "H100", "--max-num-tokens", "2048", "--max-batch-size", "64")
    assert result.exit_code == 1
    assert "H100: it fits with --precision fp8 --kv-precision auto or with --tp 2 --pp 1" in result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--tp", "3"), "--tp 3 does not divide the 32 attention heads"),
        (("--card", "V100"), "--card V100: known are"),
    ],
)
def test_bad_options_are_one_sentence(config: Path, arguments: tuple[str, ...], sentence: str) -> None:
    result = run(config, *arguments)
    assert result.exit_code == 1
    assert sentence in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_hub_id_fetches_config_json_alone(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(repository: str, name: str) -> str:
        asked.append((repository, name))
        if repository == "no/body":
            raise ConnectionError("offline")
        return str(config)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    assert run("meta-llama/Llama-3.1-8B", "--card", "H100").exit_code == 0
    assert asked == [("meta-llama/Llama-3.1-8B", "config.json")]
    assert "the hub did not give config.json of no/body (ConnectionError)" in run("no/body").output
    assert "it is no hub id" in run("not there").output
