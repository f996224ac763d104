import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from trimodal.cli.app import app as whole
from trimodal.cli.common import VARIABLE, Config, is_terminal, one_sentence, read_stdin, with_settings


@dataclass(frozen=True)
class Settings:
    size: Annotated[int, typer.Option("--how-large", min=1, rich_help_panel="Measures")] = 3
    names: Annotated[list[str] | None, typer.Option("--name")] = None


def test_the_fields_of_a_dataclass_are_options_and_come_as_one_value():
    got = []
    app = typer.Typer()

    @app.command()
    @with_settings(Settings)
    def command(settings: Settings, place: str = "here") -> None:
        """Does it."""
        got.append((place, settings))

    run = CliRunner().invoke
    assert (
        run(app, []).exit_code == run(app, ["--how-large", "4", "--name", "a", "--place", "x"]).exit_code == 0
    )
    assert got == [("here", Settings()), ("x", Settings(4, ["a"]))]
    assert run(app, ["--how-large", "0"]).exit_code == 2
    shown = run(app, ["--help"], env={"COLUMNS": "100"}).output
    assert "Does it." in shown
    assert "Measures" in shown


@dataclass(frozen=True)
class Served:
    port: Annotated[int, typer.Option(envvar=VARIABLE)] = 1
    names: Annotated[list[str] | None, typer.Option("--name", envvar=VARIABLE)] = None
    loud: Annotated[bool, typer.Option("--loud", envvar=VARIABLE)] = False
    folder_s: Annotated[Path | None, typer.Option("--folder", envvar=VARIABLE)] = None


@pytest.fixture
def run():
    """Runs a command with a file of options; its settings, or what it says."""
    app, got = typer.Typer(), []

    @app.command()
    @with_settings(Served)
    def command(settings: Served, config: Config = None) -> None:
        got.append(settings)

    def run(*arguments: str, **variables: str):
        got.clear()
        done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb", **variables})
        return got[0] if done.exit_code == 0 else done.output

    return run


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(run, tmp_path):
    file = tmp_path / "a b.toml"
    file.write_text('port = 2\nname = ["a b", "c"]\nloud = true\nfolder = "/x y"\n')
    read = Served(2, ["a b", "c"], True, Path("/x y"))
    assert run("--config", str(file)) == run(TRIMODAL_CONFIG=str(file)) == read
    assert run("--config", str(file), TRIMODAL_PORT="3", TRIMODAL_NAME="d e") == replace(
        read, port=3, names=["d", "e"]
    )
    assert run("--config", str(file), "--port", "4", TRIMODAL_PORT="3").port == 4
    assert run(TRIMODAL_FOLDER="/z", TRIMODAL_LOUD="1") == Served(loud=True, folder_s=Path("/z"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 2", "there is no option prot"),
        ("config = 'x'", "there is no option config"),
        ("port = 'x'", "Invalid value for '--port'"),
        ("port = [1]", "port cannot be [1]"),
        ("port = true", "port cannot be True"),  # not 1
        ("name = [true]", "name cannot be [True]"),
        ("[name]\na = 1", "name cannot be {'a': 1}"),
        ("loud = 7", "Invalid value for '--loud'"),
        ("port =", "Invalid value"),
        ("a = [[[[", "options.toml: "),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused_by_name(run, tmp_path, text, told):
    file = tmp_path / "options.toml"
    file.write_text(text)
    assert told in run("--config", str(file))
    assert "No such file" in run("--config", str(tmp_path / "none"))


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_every_option_has_a_variable_of_its_own(command):
    options = typer.main.get_command(whole).commands[command].params
    variables = {option.name: option.envvar for option in options if option.name != "help"}
    assert all(isinstance(one, str) and one.startswith("TRIMODAL_") for one in variables.values()), variables
    assert len(set(variables.values())) == len(variables) > 15
    assert variables["cors_origins"] == "TRIMODAL_CORS_ORIGIN"
    shown = CliRunner().invoke(whole, [command, "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).output
    assert all(name in shown for name in variables.values())


def test_every_variable_has_its_options_name():
    """`doctor` called two of its own TRIMODAL_*, and read neither."""
    waiting = [typer.main.get_command(whole)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        assert [one.name for one in command.params if VARIABLE in str(one.envvar)] == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device", "/tmp/x"), "/tmp/x: no space left on device"),
        (
            OSError(28, "No space left on device", "/from", None, "/tmp/to"),
            "/tmp/to: no space left on device",
        ),
        (PermissionError(13, "Permission denied", b"/keys.toml"), "/keys.toml: permission denied"),
        (
            FileNotFoundError(2, "No such file or directory"),
            "the working directory was removed: change to another",
        ),
        (OSError(24, "Too many open files"), "too many open files"),
        (OSError("a sentence of a library"), "a sentence of a library"),
        (
            RuntimeError("can't start new thread"),
            "no more threads can be started here: raise the limit of processes (ulimit -u, "
            "docker run --pids-limit) or of addresses (ulimit -v)",
        ),
        (
            MemoryError(),
            "no more memory can be had here: end other programs, or serve fewer models with --model",
        ),
    ],
)
def test_what_the_machine_refuses_is_one_sentence(capsys, error, told):
    """It was a traceback."""
    with pytest.raises(typer.Exit) as ended, one_sentence("trimodal x", code=3):
        raise error
    assert ended.value.exit_code == 3
    assert capsys.readouterr().err == f"trimodal x: {told}\n"


@pytest.mark.parametrize(
    "error", [TimeoutError(), OSError("a sentence of a library"), RuntimeError("no plan")]
)
def test_a_bug_of_ours_keeps_its_traceback(monkeypatch, error):
    """A call that no command bounds ended as "trimodal: TimeoutError"."""

    def fail(_):
        raise error

    monkeypatch.setattr("trimodal.host.exempt_loopback", fail)
    assert CliRunner().invoke(whole, ["doctor"]).exception is error


def test_what_the_machine_refuses_before_any_command_is_one_sentence(monkeypatch):
    def refuse(_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("trimodal.host.exempt_loopback", refuse)
    done = CliRunner().invoke(whole, ["doctor"])
    assert (done.exit_code, done.output) == (1, "trimodal: too many open files\n")


def test_a_reader_that_has_ended_is_left_to_typer():
    with pytest.raises(BrokenPipeError), one_sentence():
        raise BrokenPipeError


@pytest.mark.parametrize(
    "arguments", [["doctor"], ["tune", "llm", "--list-knobs"], ["keys", "add", "x", "--file", "k.toml"]]
)
def test_a_disk_without_room(monkeypatch, tmp_path, arguments):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device", str(tmp_path / "k.toml"))

    monkeypatch.chdir(tmp_path)
    opened = os.open
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr(
        os, "open", lambda path, flags, *mode: (refuse if flags & os.O_EXCL else opened)(path, flags, *mode)
    )
    done = CliRunner().invoke(whole, arguments)
    assert done.exit_code == 1
    assert done.output == f"trimodal {arguments[0]}: {tmp_path / 'k.toml'}: no space left on device\n"


@pytest.mark.parametrize(
    "command",
    ["classify {}", "transcribe {}", "regress {}", "check {}", "bench llm --json {}", "ask hi --image {}"],
)
def test_a_name_that_is_too_long_is_one_sentence(command):
    result = CliRunner().invoke(whole, command.format("l" * 300).split())
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code in (1, 2)
    assert "too long" in result.output


def test_a_standard_input_that_is_closed_is_told(monkeypatch):
    """A service's or a shell's `<&-`: it was a traceback."""
    monkeypatch.setattr("sys.stdin", None)
    assert not is_terminal()
    with pytest.raises(typer.BadParameter, match="standard input is closed"):
        read_stdin()
