"""The guard with a plain shell as its command: no Triton needed."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until
from trimodal.errors import ServerError
from trimodal.server import launch
from trimodal.server.process_guard import HIDDEN, clean

# A leader with one child, like tritonserver with one stub; the child's pid goes to the log.
SHELL = ["/bin/sh", "-c", "sleep 300 & echo $!; wait"]


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as stack:

        def make(command, key=""):
            child = launch.Child(tmp_path / "log")
            stack.callback(child.kill)
            Path(f"/dev/shm/{child.shm_prefix}region").touch()
            child.start(command, os.environ, operator_key=key)
            return child

        yield make


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def grandchild(tmp_path):
    wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"))
    return int((tmp_path / "log").read_text())


def assert_clean(child, tmp_path):
    wait_until(lambda: gone(child.pid) and gone(grandchild(tmp_path)))
    assert not child.run_directory.exists()
    assert not list(Path("/dev/shm").glob(f"{child.shm_prefix}*"))


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda child: child.guard.stdin.close(), 128 + signal.SIGKILL),
        (lambda child: os.kill(child.pid, signal.SIGKILL), 128 + signal.SIGKILL),
        (lambda child: child.guard.kill(), -signal.SIGKILL),
    ],
    ids=["owner gone", "command killed", "guard killed"],
)
def test_whoever_ends_nothing_is_left(start, tmp_path, end, status):
    child = start(SHELL)
    grandchild(tmp_path)
    end(child)
    assert child.wait(20) == status
    assert_clean(child, tmp_path)


def test_a_file_that_comes_while_the_folder_is_removed_goes_with_it(tmp_path, monkeypatch):
    """The launcher's word to the models, of a server that dies while it drains, left its folder."""
    folder = tmp_path / "trimodal-server-x"
    folder.mkdir()
    (folder / "log").touch()
    remove = os.rmdir

    def rmdir(path, **where):
        monkeypatch.setattr(os, "rmdir", remove)
        (folder / "stop").touch()
        remove(path, **where)

    monkeypatch.setattr(os, "rmdir", rmdir)
    clean(folder)
    assert not folder.exists()


def test_terminal_signals_do_not_reach_the_guard(start, tmp_path):
    child = start(SHELL)
    grandchild(tmp_path)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child.guard.send_signal(name)
    assert child.wait(0.3) is None
    child.terminate()
    assert child.wait(20) == 128 + signal.SIGTERM


def test_a_grandchild_in_a_session_of_its_own(start, tmp_path):
    child = start(["/bin/sh", "-c", "setsid sleep 300 & sleep 0.2; echo $!; wait"])
    escaped = grandchild(tmp_path)
    assert os.getpgid(escaped) != child.pid
    child.kill()
    assert gone(escaped)


def test_what_an_escaped_python_left_in_shared_memory_is_removed(start, tmp_path):
    """vLLM's, of a server that was killed."""
    code = """
import os, time
from multiprocessing.shared_memory import SharedMemory
os.setsid()
shared = SharedMemory(create=True, size=1)
print(shared.name, flush=True)
time.sleep(300)
"""
    child = start(["/bin/sh", "-c", f"{sys.executable} -c '{code}' & wait"])
    wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"))
    shared = Path("/dev/shm", (tmp_path / "log").read_text().strip())
    assert shared.exists()
    child.kill()
    assert not shared.exists()


def test_an_orphan_that_ends_is_reaped_while_the_server_runs(start, tmp_path):
    """A worker of vLLM, whose parent was killed, stayed defunct until the server's end."""
    child = start(["/bin/sh", "-c", "(sleep 0.3 & echo $!); exec sleep 300"])
    orphan = grandchild(tmp_path)
    wait_until(lambda: not Path(f"/proc/{orphan}").exists())
    assert child.wait(0) is None
    child.kill()
    assert child.wait(20) == 128 + signal.SIGKILL


@pytest.mark.parametrize(("command", "status"), [(["/bin/sh", "-c", "exit 7"], 7), (["/nonexistent"], 1)])
def test_exit_status_is_passed_on(start, command, status):
    assert start(command).wait(20) == status


def test_without_a_temporary_folder_the_log_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "PREFIX", "none/such-")
    with pytest.raises(ServerError, match="could not be started"):
        launch.Child(tmp_path / "log")
    assert (tmp_path / "log").read_text().startswith("no temporary folder can be made: [Errno 2]")


def test_a_launcher_killed_before_the_command_leaves_nothing(tmp_path):
    """`tune`, killed while it prepared a server's files, left them for ever."""
    code = f"""
import os, signal
from pathlib import Path
from trimodal.server import launch
child = launch.Child(Path({str(tmp_path / "log")!r}))
print(child.run_directory, flush=True)
assert child.run_directory.is_dir()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    wait_until(lambda: not Path(done.stdout.strip()).exists())


def test_who_removes_what_is_old_in_the_temporary_folder_leaves_a_server_s(start):
    """systemd-tmpfiles took the links of one that ran for ten days: no model could be loaded again."""
    child = start(SHELL)
    folder = os.open(child.run_directory, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):  # it passes by a folder that is locked
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)


def test_what_was_killed_as_a_whole_is_cleaned_up_by_the_next_server(start, tmp_path):
    """A container without memory left its regions in /dev/shm at each end, until none could start there."""
    code = f"""
import os, signal
from pathlib import Path
from trimodal.server import launch
child = launch.Child(Path({str(tmp_path / "other")!r}))
child.start({SHELL!r}, os.environ, operator_key="")
Path(f"/dev/shm/{{child.shm_prefix}}region").touch()
print(child.run_directory, flush=True)
for pid in (child.guard.pid, os.getpid()):
    os.kill(pid, signal.SIGKILL)
"""
    runs = start(SHELL)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
    folder = Path(done.stdout.strip())
    region = Path("/dev/shm", f"{folder.name}-region")
    assert folder.exists()
    assert region.exists()
    start(SHELL)
    assert not folder.exists()
    assert not region.exists()
    assert runs.run_directory.exists()
    assert Path("/dev/shm", f"{runs.shm_prefix}region").exists()


# Tells its first argument, its whole command line as others see it, and what its own child inherits.
TELLS = [
    "/bin/sh",
    "-c",
    "echo $0; tr '\\0' ' ' </proc/$$/cmdline; echo; env",
    f"--a=x,{HIDDEN}",
    f"--b={HIDDEN}",
]


def told(log: Path) -> list[str]:
    wait_until(lambda: "PATH=" in log.read_text())
    return log.read_text().splitlines()


def test_the_secret_is_in_the_arguments_and_ps_shows_it_not(start, tmp_path):
    child = start(TELLS, "the-key")
    assert child.wait(20) == 0
    first, line, *environment = told(tmp_path / "log")
    assert first == "--a=x,the-key"
    assert line.endswith(f"--a=x,{HIDDEN} --b={HIDDEN} ")
    assert not [each for each in environment if "the-key" in each]


def test_the_guard_has_the_secret_on_no_command_line(start):
    child = start(["/bin/sh", "-c", "sleep 300", f"--a={HIDDEN}"], "the-key")
    for pid in (child.pid, child.guard.pid):
        assert b"the-key" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_where_ptrace_is_refused_it_serves_and_says_so(tmp_path):
    """A container's seccomp filter may refuse it."""
    code = f"""
import ctypes, os, struct, sys
from pathlib import Path
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
# A filter of BPF: system call 101 (ptrace) fails with EPERM, all others go through.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 101), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
assert libc.prctl(22, 2, program, 0, 0) == 0
from trimodal.server import launch
child = launch.Child(Path({str(tmp_path / "log")!r}))
child.start({TELLS!r}, os.environ, operator_key="the-key")
sys.exit(child.wait(20))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    warning, first, line, *_ = told(tmp_path / "log")
    assert warning == "ptrace is not permitted here: `ps` shows the operator key to this machine's users"
    assert first == "--a=x,the-key"
    assert "the-key" in line
