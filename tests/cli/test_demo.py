"""`trimodal demo`: its last lines. `trimodal init`: what a copy that fails says."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimodal import paths
from trimodal.cli import build
from trimodal.cli.app import app


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree of one model and one sample."""
    for folder in ("model_repository/m", "samples"):
        (tmp_path / "source" / folder).mkdir(parents=True)
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "source" / "trimodal")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "source"


def test_a_file_that_cannot_be_copied_is_named(source: Path) -> None:
    """It said "None: ": what the copy of a folder gathers has neither a name nor a reason of its own."""
    (source / "model_repository" / "m" / "labels.txt").symlink_to("gone")
    done = CliRunner().invoke(app, ["init", "mine"])
    assert done.exit_code == 1
    assert done.output.startswith("trimodal init: [Errno 2] No such file or directory: ")
    assert "labels.txt" in done.output


def test_samples_that_are_a_link_to_those_that_are_copied(source: Path) -> None:
    """It was a traceback."""
    (source / "samples" / "a.wav").touch()
    Path("mine").mkdir()
    Path("mine/samples").symlink_to(source / "samples")
    done = CliRunner().invoke(app, ["init", "mine"])
    told = "trimodal init: mine/samples leads to what is copied: remove the link\n"
    assert (done.exit_code, done.output) == (1, told)
    Path("mine/samples").unlink()
    assert CliRunner().invoke(app, ["init", "mine"]).exit_code == 0, "nothing was left of the first try"
    assert sorted(path.name for path in Path("mine").iterdir()) == ["model_repository", "samples"]


def test_a_place_where_no_folder_can_be(source: Path) -> None:
    Path("file").touch()
    done = CliRunner().invoke(app, ["init", "file"])
    assert done.exit_code == 1
    assert done.output.startswith("trimodal init: file/model_repository cannot be written (")


def test_the_next_command_can_be_pasted(source: Path) -> None:
    done = CliRunner().invoke(app, ["init", "my own $x"])
    assert done.output.endswith("  trimodal serve --model-repository 'my own $x/model_repository'\n")


@pytest.mark.parametrize(
    ("right", "code", "told", "goes_on"),
    [
        (7, 0, "demo: 7 of 7 acts answered\n", True),
        (6, 1, "demo: 6 of 7 acts answered\n", True),
        (0, 1, "demo: 0 of 7 acts answered\n", False),
        (None, 1, "", False),
    ],
)
def test_a_demo_ends_with_what_is_true_of_it(
    monkeypatch: pytest.MonkeyPatch, right: int | None, code: int, told: str, goes_on: bool
) -> None:
    """It advised to go on after a server that had not started, and told how many acts it had answered."""
    monkeypatch.setattr(build, "build_recipe", lambda *_, **__: ([], 0))
    monkeypatch.setattr(build, "put_into", lambda *_: None)
    monkeypatch.setattr("trimodal.demo.run.run", lambda *_, **__: right)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    done = CliRunner().invoke(app, ["demo"])
    assert (done.exit_code, done.output.startswith("Go on with:")) == (code, goes_on)
    assert done.output.endswith(told)
    assert goes_on or done.output == told
