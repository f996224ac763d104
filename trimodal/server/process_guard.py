"""Ends tritonserver and its stubs when their launcher goes away, however that happens.

Run as a file, with the standard library alone: it starts the command in a process
group of its own and ends that whole group, Python stubs included, as soon as
either the launcher goes away (its end of the pipe on stdin closes, which kill -9
does too) or tritonserver does. Should the guard itself be killed, the kernel kills
tritonserver. A stub that is busy loading would not notice its parent's death.

    guard.py PID_FD SHM_PREFIX RUN_DIRECTORY COMMAND…
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import sys
from pathlib import Path

SHM = Path("/dev/shm")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STACK = 1 << 30


def clean(shm_prefix: str, run_directory: str) -> None:
    """Removes what a killed server leaves: its shared-memory regions and its temporary directory."""
    for region in SHM.glob(f"{shm_prefix}*"):
        region.unlink(missing_ok=True)
    shutil.rmtree(run_directory, ignore_errors=True)


def end_orphans() -> None:
    """Kills and reaps what else became this process's child, in whatever process group it is."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(OSError):  # also ChildProcessError: none is left
        while True:
            for pid in own.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)


def deepen_stack() -> None:
    """Lets the server's threads recurse 128 times deeper than usual; the memory is reserved, not used.

    Triton 2.51 reads JSON by recursion: on the usual 8 MiB a body of 150,000 brackets kills it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def main() -> int:
    pid_fd, shm_prefix, run_directory, *command = sys.argv[1:]
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the launcher decides, not the terminal
    exited, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned stubs come here, not to a container's idle process 1
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(int(pid_fd))
        os.setpgid(0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        if os.getppid() != guard:
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        deepen_stack()
        os.execv(command[0], command)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)  # whichever of the two comes first: the group exists from here on
    os.write(int(pid_fd), f"{child}\n".encode())
    os.close(int(pid_fd))
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        ready, _, _ = select.select([sys.stdin.fileno(), exited], [], [])
        if sys.stdin.fileno() in ready:
            break
        os.read(exited, 64)
    # While the leader is unreaped its group's number cannot be given to anyone else.
    os.killpg(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end_orphans()
    clean(shm_prefix, run_directory)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
