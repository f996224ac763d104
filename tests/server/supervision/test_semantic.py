"""Models that semantic caches ask, and that have become others meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trimodal.repository import read_model
from trimodal.server.supervision.semantic import AskedModels


class Stubs:
    def __init__(self) -> None:
        self.running = {"llm": {1}}

    def processes(self, model: str) -> set[int]:
        return self.running[model]


class Repository:
    """llm, whose cache asks judge, and what judge is built from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("llm", "config.pbtxt", engine="openvino", artefact="a", cache="semantic", judge="judge@1")
        self.judge(artefact="onnx")
        self.build("old")
        self.callers = ["llm"]

    def write(self, model: str, file: str, **parameters: str) -> None:
        path = self.folder / model / file
        (self.folder / model / "1").mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        told = (
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
            for key, value in parameters.items()
        )
        path.write_text("\n".join([f'name: "{model}"', 'backend: "python"', *told]))

    def judge(self, **parameters: str) -> None:
        """Its config of profile cpu, beside one that is not served."""
        self.write("judge", "config.pbtxt", engine="onnxruntime", artefact="none")
        self.write("judge", "configs/cpu.pbtxt", **{"engine": "onnxruntime", **parameters})

    def build(self, checkpoint: str, artefact: str = "onnx") -> None:
        folder = self.folder / "judge" / "1" / artefact
        folder.mkdir(exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps({"source_sha256": checkpoint}))

    def asked(self) -> AskedModels:
        models = {name: read_model(self.folder, name, "cpu") for name in ("llm", "judge")}
        api: Any = SimpleNamespace(semantic_callers=lambda model: self.callers)
        return AskedModels(api, models, "cpu")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.parametrize("how", ["built", "config", "fake"])
def test_another_checkpoint_is_refused_until_the_cache_knows_it(repository: Repository, how: str) -> None:
    asked, stubs = repository.asked(), Stubs()
    asked.look(stubs)  # type: ignore[arg-type]
    assert asked.refusal("judge") == ""
    if how == "built":
        repository.build("new")
    elif how == "config":
        repository.build("new", "other")
        repository.judge(artefact="other")
    else:
        repository.judge(engine="fake")
    asked.look(stubs)  # type: ignore[arg-type]
    assert asked.refusal("judge").startswith("the semantic cache of llm knows another checkpoint of it: ")
    assert asked.refusal("llm") == ""
    stubs.running["llm"] = {2}  # it was loaded again: it knows the new one
    asked.look(stubs)  # type: ignore[arg-type]
    assert asked.refusal("judge") == ""


def test_a_config_of_the_profile_that_is_new_counts(repository: Repository) -> None:
    (repository.folder / "judge/configs/cpu.pbtxt").unlink()
    repository.write("judge", "config.pbtxt", engine="onnxruntime", artefact="onnx")
    asked = repository.asked()
    asked.look(Stubs())  # type: ignore[arg-type]
    repository.judge(engine="fake")
    assert asked.refusal("judge").startswith("the semantic cache of llm knows another checkpoint of it: ")


def test_where_no_semantic_cache_is_open_any_may_be_loaded(repository: Repository) -> None:
    asked = repository.asked()
    asked.look(Stubs())  # type: ignore[arg-type]
    repository.build("new")
    repository.callers = []
    assert asked.refusal("judge") == ""


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "a loop"])
def test_what_cannot_be_read_is_left_to_the_model_to_say(repository: Repository, content: str) -> None:
    asked = repository.asked()
    asked.look(Stubs())  # type: ignore[arg-type]
    manifest = repository.folder / "judge/1/onnx/manifest.json"
    manifest.write_text(content)
    if content == "a loop":
        repository.judge(artefact="loop")
        (repository.folder / "judge/1/loop").symlink_to("loop")
    assert asked.refusal("judge") == ""
