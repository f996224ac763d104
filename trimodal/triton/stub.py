"""Prepares the process in which Triton's Python backend runs a model (a stub)."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trimodal import logs
from trimodal.errors import SettingsError

_SHM = Path("/dev/shm")


def begin(args: Mapping[str, str], *, alone: bool = False) -> None:
    """Makes the process log as its model, and takes from it and from others what is not theirs.

    To be called first in `initialize`, whose `args` it takes: no request has been there yet. One that is
    `alone` keeps what its requests share, and takes them one by one; the others take batches.

    Raises SettingsError: it has more instances than one, or Triton would refuse each request for its shape.
    """
    logs.configure(args["model_name"])
    command = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    if command[0].endswith(b"triton_python_backend_stub"):
        close_connections()
        # What `ended_if_stalled` ends leaves in the log where each of its threads stands.
        faulthandler.register(signal.SIGALRM, file=2, all_threads=True, chain=True)
    # Requests and answers pass through a region that Triton (2.51) makes 0644, whatever the umask: any user
    # could read prompts. Its name is among the stub's arguments.
    for argument in command:
        region = _SHM / os.fsdecode(argument).lstrip("/")
        if argument and region.parent == _SHM and region.is_file():
            region.chmod(0o600)
    config = json.loads(args["model_config"])
    if alone and (count := count_instances(config.get("instance_group", ()))) > 1:
        raise SettingsError(
            f"{args['model_name']}: instance_group makes {count} instances, but one process keeps what its "
            "requests share: leave one, and run more servers"
        )
    if (most := config.get("max_batch_size")) is not None and alone == (most > 0):
        wanted = "requests come one by one: set it to 0" if alone else "requests are batches: set 1 or more"
        raise SettingsError(f"{args['model_name']}: max_batch_size is {most}, but its {wanted}")


def count_instances(groups: Iterable[Mapping[str, Any]]) -> int:
    """How many instances the `instance_group` of a model configuration makes, as Triton gives it in JSON."""
    return sum(max(1, group.get("count", 1)) * max(1, len(group.get("gpus", ()))) for group in groups)


def close_connections() -> None:
    """Closes the TCP connections of the process.

    A stub inherits those that clients have to Triton's HTTP (2.51): of one that Triton closed its client saw
    no end for as long as the model was loaded.
    """
    for entry in [one for one in Path("/proc/self/fd").iterdir() if one.is_socket()]:
        with socket.socket(fileno=int(entry.name)) as one:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                one.detach()


@contextmanager
def ended_if_stalled(seconds: float) -> Iterator[None]:
    """Ends this process where the block takes longer than so many seconds; 0: it may take any time.

    By the kernel's timer, as a call that never returns from a driver or a library may hold Python's lock:
    no thread of ours runs then. The model is loaded again, and who waits is told, as at any death of its
    process. One block at a time: a process has one such timer.
    """
    before, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, before)
