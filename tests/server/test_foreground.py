"""A server in the foreground: signals to the last moment of its process, and what systemd hears."""

from __future__ import annotations

import contextlib
import io
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from rich.console import Console

from trimodal.server import foreground as module
from trimodal.server.foreground import ServiceManager, show_summary, wait_for_signal
from trimodal.server.options import ServerOptions
from trimodal.server.supervision import supervisor
from trimodal.server.triton_log import LoadLog

if TYPE_CHECKING:
    from trimodal.server.foreground import Signals
    from trimodal.server.process import TritonServer

# A signal that comes while Python ends, and has given its own handlers back.
PROGRAM = """
import os, sys
from trimodal.server.foreground import Signals

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, {number})

signals, last = Signals(), Last()
{end}
"""


@pytest.mark.parametrize(("end", "status"), [("", -signal.SIGTERM), ("signals.ignore()", 0)])
def test_a_signal_at_the_very_end_changes_no_status(end: str, status: int) -> None:
    program = PROGRAM.format(number=int(signal.SIGTERM), end=end)
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == status


@pytest.mark.parametrize(("before", "count"), [("SIG_DFL", 1), ("SIG_IGN", 0)])
def test_under_nohup_a_terminal_that_is_closed_ends_nothing(before: str, count: int) -> None:
    """Its own handler took the place of nohup's: a logout drained the server."""
    program = f"""
import os, signal
from trimodal.server.foreground import Signals

signal.signal(signal.SIGHUP, signal.{before})
signals = Signals()
os.kill(os.getpid(), signal.SIGHUP)
print(signals.count)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{count}\n"


def summary(width: int, **changes: object) -> str:
    """What is shown of a server that was started at 100.0."""
    shown = io.StringIO()
    values = dict(
        models={}, load=LoadLog(last="llm"), options=ServerOptions(), log_path=Path("log"),
        began=100.0, launched=100.6, ready=103.5,
        http_url="h:1", grpc_url="g:1", metrics_url="m:1", health_url="h:2",
    )  # fmt: skip
    server = SimpleNamespace(**(values | changes))
    show_summary(cast("TritonServer", server), Console(file=shown, width=width))
    return shown.getvalue()


def test_paths_and_addresses_are_whole_on_a_narrow_terminal() -> None:
    long = Path("/home") / "somebody" / ".cache" / "trimodal" / "logs" / "server-20261126-093212-lophc3bq.log"
    shown = summary(40, options=ServerOptions(engines=long), log_path=long)
    assert f"engines {long}\n" in shown
    assert f"log     {long}\n" in shown


def test_the_summary_says_where_the_seconds_of_the_start_went() -> None:
    """Its own: what was built before, by the same process, is not counted."""
    told = "3.5 s: 0.6 s until tritonserver started, 2.9 s until all models were there, llm last\n"
    assert f"ready   after {told}" in summary(200)


def test_a_clock_that_was_set_while_models_loaded_makes_no_load_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Set back by an hour, a model had taken 82801 seconds: Triton's log tells the time of day."""
    model = SimpleNamespace(engine="fake", artefact="", precision=lambda: "–")
    load = LoadLog(last="llm", seconds={"llm": 1.5, "speech": 82_801.0})
    monkeypatch.setattr(module, "newer_beside", lambda model: "")
    shown = summary(200, models={"llm": model, "speech": model}, load=load)
    assert "1.5 s" in shown
    assert "82801" not in shown


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_states_are_told(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(name if kind == "path" else "\0" + name)
        end.settimeout(5.0)
        manager = ServiceManager({"NOTIFY_SOCKET": name if kind == "path" else "@" + name})
        manager.tell(READY="1", STATUS="serving")
        assert end.recv(1000) == b"READY=1\nSTATUS=serving"


def test_a_sign_of_life_comes_twice_as_often_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(name)
        end.setblocking(False)
        manager = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000"})
        told = []
        for second in range(100):
            now[0] = 100.0 + second
            manager.sign_of_life(lambda second=second: second != 30)  # type: ignore[misc]
            with contextlib.suppress(BlockingIOError):
                told.append((second, end.recv(100)))
        assert told == [(second, b"WATCHDOG=1") for second in (0, 31, 61, 91)]


@pytest.mark.parametrize(
    "environment",
    [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}, {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "soon"}],
)
def test_where_nobody_listens_nothing_happens(environment: dict[str, str]) -> None:
    manager = ServiceManager(environment)
    manager.tell(READY="1")
    manager.sign_of_life(lambda: True)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("can't start new thread"), MemoryError(), OSError(28, "No space left on device")],
    ids=["no thread", "no memory", "full disk"],
)
def test_a_server_is_started_again_until_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """Where no thread could be started `serve --restart` ended with a traceback."""
    monkeypatch.setattr(supervisor, "LONGEST_WAIT_S", 0.0)
    failures, stop = [error, error], threading.Event()

    def restart(**_: object) -> None:
        if failures:
            raise failures.pop()
        stop.set()

    server = SimpleNamespace(
        wait=lambda timeout: 1, new_lines=list, restart=restart, begin_drain=lambda: None,
        options=ServerOptions(),
    )  # fmt: skip
    signals = SimpleNamespace(once=stop.is_set)
    wait_for_signal(cast("TritonServer", server), cast("Signals", signals), verbose=False, restart=True)
    told = capsys.readouterr().err
    assert told.count(f"{str(error) or 'MemoryError'}; starting it again.") == 2
    assert "Ready again after" in told
