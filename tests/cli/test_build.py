"""`trimodal build`: scripts run with their own arguments, a set by recipe, sentences for what is missing."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.server.artefacts import build as made
from trimodal import build_support
from trimodal.cli import build
from trimodal.cli.app import app
from trimodal.paths import ENGINES_VARIABLE, PACKAGES_VARIABLE, data_directory
from trimodal.repository import read_model

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["build", *map(str, arguments)])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """Command and environment of each script; none is run, and nothing is missing."""
    calls: list[tuple[list[str], dict[str, str]]] = []

    def keep(command: list[str], environment: dict[str, str]) -> int:
        calls.append((command, environment))
        return 0

    monkeypatch.setattr(build_support, "run_script", keep)
    monkeypatch.setattr(build, "check_installed", lambda scripts: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # commands set variables for their scripts
    for variable in (ENGINES_VARIABLE, PACKAGES_VARIABLE):
        os.environ.pop(variable, None)
    return calls


def script(name: str) -> str:
    return str(data_directory() / "build" / f"{name}.py")


def test_all_but_our_own_options_go_to_the_script(ran: list[Any]) -> None:
    result = run("llm", "--precision", "int4", "some/checkpoint", "--engines", "/volume", "--ratio", "0.8")
    assert result.exit_code == 0, result.output
    ((command, environment),) = ran
    wanted = ["--precision", "int4", "some/checkpoint", "--ratio", "0.8"]
    assert command == [sys.executable, script("llm_openvino"), *wanted]
    assert environment[ENGINES_VARIABLE] == "/volume"


def test_scripts_find_what_lies_beside_them_and_libraries_their_docstrings(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    assert run("turn", "starter:smart-turn-v3").exit_code == 0
    ((_, environment),) = ran
    assert not {"PYTHONSAFEPATH", "PYTHONOPTIMIZE"} & environment.keys()


@pytest.mark.parametrize("task", build.RUNTIMES)
def test_every_runtime_has_its_script(task: str, ran: list[Any]) -> None:
    for runtime in build.RUNTIMES[task]:
        name = f"{task}_{runtime}"
        assert Path(script(name)).is_file()
        chosen = [] if task in ("embedding", "turn") else ["--runtime", runtime]
        assert run(task, *chosen, "x").exit_code == 0
        assert ran.pop()[0][1:] == [script(name), "x"]


def test_a_recipe_builds_every_task_and_says_how_to_serve(ran: list[Any], tmp_path: Path) -> None:
    own = [argument for task in build.RUNTIMES for argument in (f"--{task}", str(tmp_path))]
    result = run("all", *own, "--recipe", "small", "--engines", "mine")
    assert result.exit_code == 0, result.output
    assert [Path(command[1]).stem for command, _ in ran] == [
        "llm_openvino", "vision_onnx", "speech_ctranslate2", "embedding_onnx", "turn_onnx",
    ]  # fmt: skip
    assert {environment[ENGINES_VARIABLE] for _, environment in ran} == {"mine"}
    *_, serve = result.output.splitlines()
    assert serve.startswith("  trimodal serve --engines mine --set llm.artefact=openvino-int4 ")
    assert "--set vision.artefact=../../vision_classify/1/onnx-fp32" in serve


def test_the_starter_set_is_the_default_and_is_served_as_the_repository_is(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "fetch", lambda sources: None)
    result = run("all", "--packages", "wheels")
    assert result.exit_code == 0, result.output
    assert [(Path(command[1]).stem, command[2]) for command, _ in ran] == [
        ("llm_openvino", "starter:smollm2-135m-instruct"),
        ("vision_onnx", "starter:efficientnet-lite0"),
        ("speech_ctranslate2", "starter:whisper-base"),
        ("embedding_onnx", "starter:minilm-l6-v2"),
        ("turn_onnx", "starter:smart-turn-v3"),
    ]
    assert not any(ENGINES_VARIABLE in environment for _, environment in ran)
    assert {environment[PACKAGES_VARIABLE] for _, environment in ran} == {str(Path("wheels").absolute())}
    assert result.output.splitlines()[-1] == "  trimodal serve"


def test_the_recipe_of_profile_cuda_builds_what_its_configs_name(ran: list[Any], tmp_path: Path) -> None:
    own = [argument for task in build.RUNTIMES for argument in (f"--{task}", str(tmp_path))]
    result = run("all", *own, "--recipe", "cuda", "--engines", "mine")
    assert result.exit_code == 0, result.output
    assert [(Path(command[1]).stem, command[2:]) for command, _ in ran] == [
        ("llm_place", [str(tmp_path), "--copy"]),
        ("vision_onnx", [str(tmp_path), "--precision", "fp16"]),
        ("speech_ctranslate2", [str(tmp_path), "--precision", "float16"]),
        ("embedding_onnx", [str(tmp_path), "--precision", "fp16"]),
        ("turn_onnx", [str(tmp_path)]),
    ]
    assert result.output.splitlines()[-1].split() == [
        *("trimodal", "serve", "--engines", "mine", "--profile", "cuda")
    ]
    for recipe, profile in build.PROFILES.items():
        for task, part in build.RECIPES[recipe].items():
            # vision's engines of all profiles lie in a folder of their own.
            name = "vision" if task == "vision" else build.MODELS[task]
            model = read_model(data_directory() / "model_repository", name, profile)
            named = dict(setting.split("=") for setting in part.settings)
            served = model.version_directory / named.get(f"{name}.artefact", model.artefact)
            *folder, artefact = served.resolve().parts[-3:]
            assert folder == [build.MODELS[task], "1"]
            assert artefact in part.artefacts


def test_what_is_there_from_the_same_checkpoint_can_be_left_alone(ran: list[Any], tmp_path: Path) -> None:
    def there(model: str, artefact: str, task: str, source: str) -> None:
        made(tmp_path / model / artefact, task, "any", source=source)

    there("llm", "checkpoint", "llm", "Qwen/Qwen2.5-0.5B-Instruct")
    there("vision_classify", "onnx-fp16", "vision", "microsoft/resnet-50")
    there("speech_recognize", "ctranslate2-float16", "speech", "openai/whisper-small")
    there("turn", "onnx-int8", "turn", "starter:smart-turn-v3")
    local = tmp_path / "embedder"
    local.mkdir()
    arguments = ["all", "--recipe", "cuda", "--missing", "--engines", tmp_path, "--embedding", local]
    assert run(*arguments, "--speech", local).exit_code == 0
    assert [Path(command[1]).stem for command, _ in ran] == ["speech_ctranslate2", "embedding_onnx"]
    ran.clear()
    there("embedding", "onnx-fp16", "embedding", "embedder")
    there("speech_recognize", "ctranslate2-int8", "speech", "embedder")
    result = run(*arguments, "--speech", "openai/whisper-small")
    assert (result.exit_code, ran) == (0, [])
    assert "all is there; serve it with:" in result.output


@pytest.mark.parametrize(
    ("source", "there"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", True),
        ("/elsewhere/Qwen2.5-0.5B-Instruct", True),
        ("Qwen/Qwen2.5-0.5B", False),  # it is part of the other's name
        (".", False),
    ],
)
def test_a_checkpoint_of_a_similar_name_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, there: bool
) -> None:
    monkeypatch.setenv(ENGINES_VARIABLE, str(tmp_path))
    made(tmp_path / "llm" / "checkpoint", "llm", "any", source="Qwen/Qwen2.5-0.5B-Instruct")
    assert build.is_built("llm", build.RECIPES["cuda"]["llm"], source) == there


def test_a_hub_that_does_not_answer_is_one_sentence_before_anything_is_built(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def refuse(*_: object, **__: object) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    result = run("all", "--recipe", "small")
    assert (result.exit_code, ran) == (1, [])
    sentence = result.output.splitlines()[-1]
    assert "the hub did not give Qwen/Qwen2.5-0.5B-Instruct (ConnectionError)" in sentence
    assert sentence.endswith("trimodal build all --llm DIRECTORY")


@pytest.mark.parametrize("engines", ["", "/my volume"])
def test_the_command_in_a_manifest_builds_the_same_again(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch, engines: str
) -> None:
    """`python build/llm_place.py` is not there beside a wheel, and did not name the engines' own folder."""
    monkeypatch.setenv(ENGINES_VARIABLE, engines)
    monkeypatch.setattr(sys, "argv", ["llm_place.py", "my checkpoint", "--copy"])
    command = shlex.split(build_support.build_command("llm_place"))
    monkeypatch.delenv(ENGINES_VARIABLE)
    assert command[:2] == ["trimodal", "build"]
    result = run(*command[2:])
    assert result.exit_code == 0, result.output
    ((script_command, environment),) = ran
    assert script_command == [sys.executable, script("llm_place"), "my checkpoint", "--copy"]
    assert environment.get(ENGINES_VARIABLE, "") == engines


@pytest.mark.parametrize(("task", "name"), [("llm", "my.gguf"), ("speech", "large-v3.pt")])
def test_a_file_that_a_script_converts_is_its_checkpoint(
    ran: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, name: str
) -> None:
    """`trimodal build llm my.gguf` took it, `trimodal build all --llm my.gguf` did not."""
    fetched: list[str] = []
    monkeypatch.setattr(build_support, "resolve_checkpoint", fetched.append)
    (tmp_path / name).touch()
    result = run("all", f"--{task}", tmp_path / name)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / name) in [command[2] for command, _ in ran]
    assert len(fetched) == len(ran) - 1, "the others are fetched first"


@pytest.mark.parametrize("task", ["llm", "speech", "vision"])
def test_a_home_folder_that_nobody_knows_is_told_with_its_task(ran: list[Any], task: str) -> None:
    result = run("all", f"--{task}", "~nosuch/x")
    assert result.exit_code == 1
    assert f"{task}: the checkpoint ~nosuch/x: no home folder is known for ~nosuch" in result.output
    assert not ran


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(build.NEEDS, "embedding_onnx", ("numpy", "no_such_package"))
    result = run("embedding", "x")
    assert result.exit_code == 1
    assert result.output == "error: not installed: no_such_package; pip install 'trimodal[cpu,build]'\n"


@pytest.mark.parametrize("gpu", [False, True])
def test_torch_comes_first_and_without_cuda_where_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(build, "NVIDIA_DRIVER", tmp_path if gpu else tmp_path / "none")
    steps = run("llm", "x").output.split("; ")[1].strip().split(" && ")
    assert [step.split()[-1] for step in steps] == [
        *([] if gpu else ["https://download.pytorch.org/whl/cpu"]),
        "'trimodal[cpu,build]'",
        "optimum-intel==2.2.0",
    ]


SCRIPT = """
import time
try:
    print("building", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    print("cleaned up", flush=True)
    raise SystemExit(130)
"""


def test_ctrl_c_leaves_a_script_the_time_to_clean_up(tmp_path: Path) -> None:
    """It was killed within 0.25 s, and left gigabytes in a hidden folder."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "slow.py").write_text(SCRIPT)
    code = f"""
import pathlib, sys
from trimodal import paths
from trimodal.cli import build
paths.PACKAGE = pathlib.Path({str(tmp_path / "trimodal")!r})
sys.exit(build.run_script("slow", []))
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as building:
        assert building.stdout
        assert building.stdout.readline() == "building\n"
        os.killpg(building.pid, signal.SIGINT)
        assert building.stdout.readline() == "cleaned up\n"
    assert building.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["llm", "--runtime", "onnx"], "known are openvino, place"),
        (["all", "--recipe", "big"], "known are starter, small, cuda"),
    ],
)
def test_what_is_not_known_is_refused(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_folder_of_engines_whose_home_nobody_knows_is_refused(ran: list[Any]) -> None:
    result = run("llm", "some/checkpoint", "--engines", "~nosuch/x")
    assert result.exit_code == 1
    assert not ran
    assert "--engines ~nosuch/x: no home folder is known for ~nosuch" in result.output
