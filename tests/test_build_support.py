"""trimodal/build_support.py: sources, tables and errors of the build scripts."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from trimodal.build_support import operator_errors, progress, report, resolve_checkpoint
from trimodal.errors import ArtefactError


def test_a_directory_is_its_own_checkpoint(tmp_path: Path) -> None:
    assert resolve_checkpoint(str(tmp_path)) == tmp_path


def test_a_file_or_a_misspelt_path_is_no_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_text("")
    with pytest.raises(ArtefactError, match="is a file"):
        resolve_checkpoint(str(file))
    with pytest.raises(ArtefactError, match="name an existing directory or a hub id"):
        resolve_checkpoint(str(tmp_path / "nothing"))


def test_a_hub_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def refuse(*_: object, **__: object) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(ArtefactError, match=r"the hub did not give owner/name \(ConnectionError\)"):
        resolve_checkpoint("owner/name")


@pytest.mark.parametrize(
    ("held", "calls"),
    [("model.safetensors", 1), ("model.bin", 1), ("pytorch_model.bin", 2)],
    ids=["safetensors", "CTranslate2", "torch's pickle"],
)
def test_old_weights_are_fetched_where_there_are_no_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: str, calls: int
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked: list[list[str]] = []

    def fetch(source: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        for name in (held, "config.json"):
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (tmp_path / name).touch()
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    assert resolve_checkpoint("owner/name") == tmp_path
    assert (tmp_path / held).is_file()
    assert len(asked) == calls


def test_errors_end_with_one_sentence_and_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, operator_errors():
        raise ArtefactError("no [weights] here")
    assert end.value.code == 1
    assert capsys.readouterr().err == "error: no [weights] here\n"


def test_what_the_machine_refuses_is_one_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, operator_errors():
        raise OSError(28, "No space left on device", "/engines/llm/rank0.engine")
    assert end.value.code == 1
    told = capsys.readouterr().err
    assert told == "error: /engines/llm/rank0.engine: no space left on device\n"


def test_a_package_that_is_not_installed_is_one_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, operator_errors():
        importlib.import_module("no_such_package")
    assert end.value.code == 1
    told = capsys.readouterr().err
    assert told == "error: No module named 'no_such_package': docs/models.md says what each build needs\n"


def test_a_failure_passes_through_the_progress_display() -> None:
    def steps() -> None:
        with progress("working", total=2) as advance:
            advance()
            raise ValueError("inner")

    with pytest.raises(ValueError, match="inner"):
        steps()


def test_report_shows_names_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    report("Figures", {"agreement": 0.98765, "identical": True, "file": "[a]"})
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.strip() == "Figures"
    assert [line.split() for line in lines] == [
        ["agreement", "0.9877"],
        ["identical", "yes"],
        ["file", "[a]"],
    ]


def test_ctrl_c_is_a_word_and_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, operator_errors():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "stopped: the build under way replaced nothing"


# A command that runs a script, which gets so many seconds to remove what it has written, and so many more
# when it is told again.
COMMAND = """
import os, subprocess, sys
from trimodal import build_support
class Told(subprocess.Popen):
    def wait(self, timeout=None):
        os.write(1, b"waits\\n")  # from here on Ctrl-C is heard
        return super().wait(timeout and seconds.pop(0))
build_support.subprocess.Popen = Told
seconds = {seconds}
sys.exit(build_support.run_script([sys.executable, "-c", {script!r}]))
"""
CLEANS_UP = """
import time
try:
    print("building", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("cleaned up", flush=True)
"""
IN_ORDER = "from trimodal.host import end_in_order\nend_in_order()\n"
DEAF = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("building", flush=True)
time.sleep(60)
"""


def ended(
    program: str, *by: signal.Signals, starting: bool = False, group: bool = False, folder: Path | None = None
) -> tuple[int, str]:
    """Exit code and last output of a command that gets these signals, each once it waits for the script.

    Args:
        starting: it gets the first as soon as the script runs.
        group: the script gets them, too.
        folder: where the script makes openvino-int8.
    """
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=group
    ) as running:
        assert running.stdout
        first = {"building\n"} if starting else {"building\n", "waits\n"}
        assert {running.stdout.readline() for _ in first} == first
        assert not folder or [one.name[:15] for one in folder.iterdir()] == [".openvino-int8-"]
        for number, name in enumerate(by):
            if number:
                assert running.stdout.readline() == "waits\n"
            (os.killpg if group else os.kill)(running.pid, name)
        output, _ = running.communicate(timeout=20)  # the end of a pipe that the script holds, too
    return running.returncode, output.replace("waits\n", "")


def interrupted(script: str, *seconds: float, times: int = 1) -> tuple[int, str]:
    return ended(COMMAND.format(seconds=list(seconds), script=script), *[signal.SIGINT] * times)


SLOW_START = """
start = subprocess.Popen._execute_child
def late(self, *arguments):
    start(self, *arguments)
    import time
    time.sleep(1)  # Ctrl-C comes
build_support.subprocess.Popen._execute_child = late
"""


def test_ctrl_c_while_a_script_is_being_started_ends_it_and_is_told() -> None:
    """On a busy machine the script spoke first: the command left with a traceback, and the script ran on."""
    program = COMMAND.format(seconds=[60], script=CLEANS_UP).replace("sys.exit(", SLOW_START + "sys.exit(")
    assert ended(program, signal.SIGINT, starting=True, group=True) == (130, "cleaned up\n")


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_the_command_while_a_script_is_being_started_ends_it_too(name: signal.Signals) -> None:
    """The script ran on, without its command."""
    script = "import time; print('building', flush=True); time.sleep(60)"
    program = COMMAND.format(seconds=[10], script=script).replace("sys.exit(", SLOW_START + "sys.exit(")
    assert ended(IN_ORDER + program, name, starting=True)[0] == 128 + name


AT_ONCE = """
import signal
put = signal.signal
def interrupted(number, handler):
    before = put(number, handler)
    if handler is signal.default_int_handler:
        os.kill(os.getpid(), signal.SIGINT)
    return before
signal.signal = interrupted
"""


def test_ctrl_c_right_after_a_script_was_started_ends_it_too() -> None:
    """The command left with a traceback, and the script ran on with its output."""
    program = COMMAND.format(seconds=[0.1, 0.1], script=DEAF).replace("sys.exit(", AT_ONCE + "sys.exit(")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 130


def test_ctrl_c_for_the_command_alone_reaches_its_script_and_is_told() -> None:
    """The script ran on, and where it ended well the next one began."""
    assert interrupted(CLEANS_UP, 0.1, 60) == (130, "cleaned up\n")


def test_a_script_that_does_not_hear_ctrl_c_is_killed_after_a_while() -> None:
    assert interrupted(DEAF, 0.1, 0.1) == (130, "")


def test_a_second_ctrl_c_kills_the_script() -> None:
    assert interrupted(DEAF, 60, times=2) == (130, "")


def test_a_script_of_a_command_that_ignores_ctrl_c_ignores_it_too() -> None:
    script = "import signal as s; exit(s.getsignal(s.SIGINT) is not s.SIG_IGN)"
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    program = ignoring + COMMAND.format(seconds=[10], script=script)
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_what_ends_the_command_ends_its_script() -> None:
    """As SIGTERM does a demo, by an exception; the signal goes to a process of its own, never to pytest's."""
    ends = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
    script = "import time; print('building', flush=True); time.sleep(60)"
    assert ended(ends + COMMAND.format(seconds=[10], script=script), signal.SIGTERM)[0] == 143


def test_ctrl_c_kills_a_script_that_an_ending_command_waits_for() -> None:
    """It ran on: the wait was left before the script was killed."""
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    script += "print('building', flush=True); time.sleep(60)"
    program = IN_ORDER + COMMAND.format(seconds=[60], script=script)
    assert ended(program, signal.SIGTERM, signal.SIGINT)[0] == 143


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_has_its_script_clean_up(tmp_path: Path, name: signal.Signals) -> None:
    """The script went on without it, for minutes; one that was ended left gigabytes in a hidden folder."""
    target = tmp_path / "openvino-int8"
    script = f"""
import time
from pathlib import Path
from trimodal.build_support import operator_errors
from trimodal.manifest import atomic_directory

with operator_errors(), atomic_directory(Path({str(target)!r})) as work:
    (work / "half").touch()
    print("building", flush=True)
    time.sleep(60)
"""
    program = IN_ORDER + COMMAND.format(seconds=[60, 60], script=script)
    assert ended(program, name, folder=tmp_path)[0] == 128 + name
    assert list(tmp_path.iterdir()) == []
