from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.check.cases.base import BATCHES, DYNAMIC, EXECUTE
from trimodal.cli.app import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model m without fault."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    (tmp_path / "models" / "m" / "1" / "model.py").write_text(EXECUTE)
    (tmp_path / "models" / "m" / "config.pbtxt").write_text(BATCHES)
    return Path("models")


def write(repository: Path, text: str) -> None:
    (repository / "m" / "config.pbtxt").write_text(text)


def test_a_clean_repository(repository: Path) -> None:
    result = run(repository)
    assert (result.exit_code, result.output) == (0, "nothing found in 1 model, profile default\n")


def test_an_error_is_a_line_with_its_fix_and_exit_code_1(repository: Path) -> None:
    write(repository, DYNAMIC % "preferred_batch_size: [ 16 ]")
    result = run(repository)
    assert result.exit_code == 1
    assert result.output == (
        "models/m/config.pbtxt:6:44: error TRI030 a preferred batch size is 16, max_batch_size is 8\n"
        "    fix: lower it, or raise max_batch_size\n"
        "1 error in 1 model, profile default\n"
    )


def test_a_warning_counts_when_it_is_told_to(repository: Path) -> None:
    write(repository, DYNAMIC % "max_queue_delay_microseconds: 50000")
    assert run(repository).exit_code == 0
    assert run(repository, "--slo-ms", 20).exit_code == 0
    assert run(repository, "--slo-ms", 20, "--strict").exit_code == 1
    assert run(repository, "--slo-ms", 20, "--strict", "--ignore", "TRI034").exit_code == 0
    assert run(repository, "--slo-ms", 20, "--strict", "--select", "TRI00").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("nowhere",), "nowhere is no directory"),
        (("models/m",), "is a model: name the repository"),
        (("empty",), "has no model"),
        (("clone",), "has no model (no */config.pbtxt in it): name clone/model_repository"),
        (("models", "--profile", "gpu"), "no model has configs/gpu.pbtxt: the profiles are default"),
        (("models", "--select", "XYZ"), "XYZ is no rule"),
        (("models", "--triton-version", "latest"), "latest is no version of Triton"),
        (("models", "--format", "xml"), "xml"),
        (("models", "--gpu-memory", "inf"), "--gpu-memory"),
        (("models", "--deployment", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_a_wrong_command_has_exit_code_2(repository: Path, arguments: tuple[str, ...], what: str) -> None:
    Path("empty").mkdir()
    Path("clone", "model_repository").mkdir(parents=True)
    result = run(*arguments)
    assert result.exit_code == 2
    assert what in " ".join(result.output.replace("│", " ").split())


def test_the_version_decides_which_fields_there_are(repository: Path) -> None:
    write(repository, BATCHES + "model_metrics { }\n")
    for version, code in (("24.10", 1), ("2.51", 1), ("24.11", 0), ("2.71.0", 0)):
        assert run(repository, "--triton-version", version).exit_code == code, version


def test_profiles(repository: Path) -> None:
    (repository / "m" / "configs").mkdir()
    (repository / "m" / "configs" / "gpu.pbtxt").write_text(BATCHES + "bogus: 1\n")
    assert run(repository).exit_code == run(repository, "--profile", "gpu").exit_code == 1
    assert run(repository, "--profile", "default").exit_code == 0
    assert run(repository, "--profile", "tensorrt").exit_code == 0  # config.pbtxt, as `trimodal serve` has it


def test_json_names_every_part(repository: Path) -> None:
    write(repository, DYNAMIC % "preferred_batch_size: [ 16 ]")
    result = run(repository, "--format", "json")
    report = json.loads(result.output)
    assert (result.exit_code, report["profiles"]) == (1, ["default"])
    assert report["findings"] == [
        {
            "rule": "TRI030",
            "severity": "error",
            "model": "m",
            "file": "models/m/config.pbtxt",
            "line": 6,
            "column": 44,
            "sentence": "a preferred batch size is 16, max_batch_size is 8",
            "fix": "lower it, or raise max_batch_size",
        }
    ]


def test_our_own_repository_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("--profile", "cpu", "--strict", "--ignore", "TRI027")
    assert (result.exit_code, result.output) == (0, "nothing found in 11 models, profile cpu\n")


def test_the_hook_for_other_repositories_is_a_command_of_ours() -> None:
    file = Path(__file__).parents[3] / ".pre-commit-hooks.yaml"
    (hook,) = yaml.safe_load(file.read_text())
    assert {"id", "name", "entry", "language"} <= hook.keys()
    assert hook["entry"] == "trimodal check"
    files = re.compile(hook["files"])
    for changed in ("models/llm/config.pbtxt", "models/llm/configs/cpu.pbtxt", "models/llm/1/model.py"):
        assert files.search(changed)
    assert not files.search("trimodal/llm/service.py")
    result = run(
        *(arg.replace("model_repository", str(file.parent / "model_repository")) for arg in hook["args"])
    )
    assert result.exit_code == 0
