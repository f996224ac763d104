"""Ends tritonserver and its stubs when their launcher goes away, however that happens.

Run as a file, with the standard library alone: it starts the command in a process
group of its own and ends that whole group, Python stubs included, as soon as
either the launcher goes away (its end of the pipe on stdin closes, which kill -9
does too) or tritonserver does. Should the guard itself be killed, the kernel kills
tritonserver. A stub that is busy loading would not notice its parent's death.

    guard.py REPORT_FD PREFIX

It makes the server's temporary directory first, PREFIX and a random end, so that there is no moment at which
a launcher's death leaves one. REPORT_FD gets that directory in one line, JSON, and the command's pid in a
second. In between comes the one line on stdin, JSON: `command`, `environment`, and `secret`, which the
command has wherever its arguments have HIDDEN; who lists the machine's processes sees HIDDEN there.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

SHM = Path("/dev/shm")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PTRACE_TRACEME, PTRACE_PEEKDATA, PTRACE_POKEDATA, PTRACE_DETACH = 0, 2, 5, 17
STACK = 1 << 30
FILES = 65_536
HIDDEN = "********"
TRACKER_S = 2.0
LOCK = "lock"  # end of the name of a file beside the regions, which is locked while the guard lives


def shm_prefix(run_directory: Path) -> str:
    """How the names of the server's shared-memory regions begin."""
    return f"{run_directory.name}-"


def clean(run_directory: Path) -> None:
    """Removes what a killed server leaves: its shared-memory regions and its temporary directory."""
    for region in SHM.glob(f"{shm_prefix(run_directory)}*"):
        region.unlink(missing_ok=True)
    for _ in range(3):  # the launcher may write its word to the models between the last file and the folder
        shutil.rmtree(run_directory, ignore_errors=True)
        if not run_directory.exists():
            return


def hold(run_directory: Path) -> None:
    """Locks what the server has on disk, until this process ends.

    The folder, as systemd-tmpfiles removes from /tmp what was not used for ten days, unless its folder is
    locked: among it the links by which a model is loaded again. And a file beside the regions, for `sweep`.
    """
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(os.open(run_directory, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)
    lock = SHM / f"{shm_prefix(run_directory)}{LOCK}"
    new = SHM / f".{lock.name}"
    with contextlib.suppress(OSError):  # no /dev/shm: the launcher says so
        fcntl.flock(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), fcntl.LOCK_SH)
        new.rename(lock)  # nobody finds it without its lock


def sweep(prefix: str) -> None:
    """Cleans up after servers of this user that were killed together with their guard and launcher.

    So ends a container without memory, or a service of systemd whose launcher was killed. What is in /dev/shm
    stays then: after many such ends no server finds room there.
    """
    for lock in SHM.glob(f"{prefix}*-{LOCK}"):
        with contextlib.suppress(OSError):  # its server lives, or it is another user's
            handle = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle).st_uid == os.geteuid():
                    clean(Path(tempfile.gettempdir(), lock.name.removesuffix(f"-{LOCK}")))
            finally:
                os.close(handle)


def end_orphans() -> None:
    """Kills and reaps what else became this process's child, in whatever process group it is.

    Python's resource tracker, which removes what dead processes left in /dev/shm, may end by itself.
    """
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    spared_until = time.monotonic() + TRACKER_S
    with contextlib.suppress(OSError):  # also ChildProcessError: none is left
        while True:
            for pid in own.read_text().split():
                if time.monotonic() > spared_until or not tracks_resources(pid):
                    os.kill(int(pid), signal.SIGKILL)
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)


def tracks_resources(pid: str) -> bool:
    """Whether it is Python's resource tracker."""
    try:
        return b"multiprocessing.resource_tracker" in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


def reap_orphans(child: int) -> None:
    """Reaps what ended of them, and leaves the leader unreaped: its number stands for the whole group."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(OSError):
        for pid in own.read_text().split():
            if int(pid) != child:
                os.waitpid(int(pid), os.WNOHANG)


def deepen_stack() -> None:
    """Lets the server's threads recurse 128 times deeper than usual; the memory is reserved, not used.

    Triton 2.51 reads JSON by recursion: on the usual 8 MiB a body of 150,000 brackets kills it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def raise_open_files() -> None:
    """Gives the server all descriptors that it may have: without any it takes connections, silently."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def read_line() -> bytes:
    """The one line on stdin; what there is of it where the launcher is gone."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(sys.stdin.fileno(), 65_536)):
        line += part
    return line


def load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong]
    libc.ptrace.restype = ctypes.c_long
    return libc


def start(
    libc: ctypes.CDLL,
    command: list[str],
    environment: dict[str, str],
    secret: str,
    *,
    hide: bool,
    keep_out: int,
) -> int:
    """Forks and executes `command`. Returns its pid, 0 where the secret cannot be hidden but is to be.

    tritonserver takes its keys on the command line alone, which every user may read in /proc/PID/cmdline.
    So they stand in the environment's memory, which only its own user may, and the arguments' pointers are
    turned there before its first instruction. `keep_out` is a descriptor that is not the command's.
    """
    guard = os.getpid()
    plain = [part.replace(HIDDEN, secret) for part in command]
    hidden = {where: part for where, part in enumerate(plain) if part != command[where]}
    hide = hide and bool(hidden)
    child = os.fork()
    if child == 0:
        os.close(keep_out)
        os.setpgid(0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        if os.getppid() != guard:
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        deepen_stack()
        raise_open_files()
        if not hide:
            os.execve(command[0], plain, environment)
        if libc.ptrace(PTRACE_TRACEME, 0, 0, 0) != 0:
            os._exit(1)
        # An argument `--name=text` has the form of a variable.
        os.execve(
            command[0], command, {**environment, **dict(part.split("=", 1) for part in hidden.values())}
        )
    with contextlib.suppress(OSError):
        os.setpgid(child, child)  # whichever of the two comes first: the group exists from here on
    if not hide:
        return child
    stop = os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        if stop is None or stop.si_code != os.CLD_TRAPPED:
            raise OSError("ptrace is not permitted")
        turn_arguments(libc, child, list(hidden))
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return 0
    return child


def turn_arguments(libc: ctypes.CDLL, pid: int, which: list[int]) -> None:
    """Points these arguments of a process stopped at its start to its last variables, and lets it go on."""

    def call(request: int, address: int, value: int = 0) -> int:
        ctypes.set_errno(0)
        result: int = libc.ptrace(request, pid, address, value)
        if ctypes.get_errno():
            raise OSError(ctypes.get_errno(), "ptrace")
        return result & (1 << 64) - 1

    # The stack at a start: argc, the arguments' addresses, 0, those of the variables, 0, the loader's.
    bottom = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[25])
    arguments = bottom + 8
    variables = end = arguments + 8 * (call(PTRACE_PEEKDATA, bottom) + 1)
    while call(PTRACE_PEEKDATA, end):
        end += 8
    first = end - 8 * len(which)
    if first <= variables:
        raise ValueError("no variable is left to stand for those that are taken out")
    for place, argument in zip(range(first, end, 8), which, strict=True):
        call(PTRACE_POKEDATA, arguments + 8 * argument, call(PTRACE_PEEKDATA, place))
        # What it starts itself does not inherit them. The list must keep its length: the loader's follows it.
        call(PTRACE_POKEDATA, place, call(PTRACE_PEEKDATA, variables))
    call(PTRACE_DETACH, 0)


def main() -> int:
    report, prefix = int(sys.argv[1]), sys.argv[2]
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the launcher decides, not the terminal
    sweep(prefix)
    try:
        run_directory = Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        print(f"no temporary folder can be made: {error}", flush=True)
        return 1
    try:
        hold(run_directory)
        with contextlib.suppress(BrokenPipeError):  # the launcher is gone: there is no line to read either
            os.write(report, json.dumps(str(run_directory)).encode() + b"\n")
        line = read_line()
        return run(report, **json.loads(line)) if line.endswith(b"\n") else 1
    finally:
        clean(run_directory)


def run(report: int, command: list[str], environment: dict[str, str], secret: str) -> int:
    """Starts the command, reports its pid and waits for its end or the launcher's. Returns an exit status."""
    exited, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    libc = load_libc()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned stubs come here, not to a container's idle process 1
    child = start(libc, command, environment, secret, hide=True, keep_out=report)
    if not child:
        print("ptrace is not permitted here: `ps` shows the operator key to this machine's users", flush=True)
        child = start(libc, command, environment, secret, hide=False, keep_out=report)
    with contextlib.suppress(BrokenPipeError):
        os.write(report, f"{child}\n".encode())
    os.close(report)
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        ready, _, _ = select.select([sys.stdin.fileno(), exited], [], [])
        if sys.stdin.fileno() in ready:
            break
        os.read(exited, 64)
        reap_orphans(child)
    # While the leader is unreaped its group's number cannot be given to anyone else.
    os.killpg(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end_orphans()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
