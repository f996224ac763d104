"""build/demo/build_all.py: which engines are built, and where they go."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.builders.scripts import importable

pytestmark = pytest.mark.build
WRITES = """
import os, pathlib, sys
engines = os.environ.get("TRIMODAL_ENGINES")
pathlib.Path(sys.argv[1]).write_text(f"engines: {engines}")
"""


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """One build, which writes down where engines are to be put."""
    with importable():
        module = importlib.import_module("demo.build_all")
        command = ("-c", WRITES, str(tmp_path / "told"))
        build = module.Build("classifier", "vision", "onnxruntime", ("vision/1/onnx",), None, command)
        monkeypatch.setattr(module, "BUILDS", (build,))
        monkeypatch.setenv("TRIMODAL_ENGINES", "/somebodys/own")
        yield module


@pytest.mark.parametrize("engines", [None, "engines"])
def test_engines_go_into_the_repository_or_where_asked(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["build_all.py", *(["--engines", engines] if engines else [])])
    assert builder.main() == 0
    assert (tmp_path / "told").read_text() == f"engines: {tmp_path / engines if engines else None}"


def test_what_lies_among_the_engines_is_not_built_again(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    monkeypatch.setattr(builder, "read_manifest", lambda place, **_: looked.append(place))
    monkeypatch.setattr(builder, "read_classifier", looked.append)
    monkeypatch.setattr(sys, "argv", ["build_all.py", "--engines", str(tmp_path)])
    assert builder.main() == 0
    assert looked == [tmp_path / "vision" / "onnx"] * 2
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize("options", [["--force"], ["--engines", "engines"], []])
def test_what_is_committed_is_built_where_it_is_missing_alone(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Training the judge takes half an hour: no container and no --force does it by the way."""
    (build,) = builder.BUILDS
    monkeypatch.setattr(builder, "BUILDS", (dataclasses.replace(build, task="judge", committed=True),))
    monkeypatch.setattr(builder, "REPOSITORY", tmp_path)
    monkeypatch.setattr(sys, "argv", ["build_all.py", *options])
    looked = []
    with monkeypatch.context() as patch:
        patch.setattr(builder, "read_manifest", lambda place, **_: looked.append(place))
        assert builder.main() == 0
    assert looked == [tmp_path / "vision/1/onnx"]
    assert not (tmp_path / "told").exists()
    assert builder.main() == 0
    assert (tmp_path / "told").exists(), "it is not there"
