"""Prepares the process in which Triton's Python backend runs a model (a stub)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trimodal import logs

_SHM = Path("/dev/shm")


def begin(args: Mapping[str, str]) -> None:
    """Makes the process log as its model, and takes its shared memory from other users of the machine.

    To be called first in `initialize`, whose `args` it takes: no request has been there yet.
    """
    logs.configure(args["model_name"])
    # Requests and answers pass through a region that Triton (2.51) makes 0644, whatever the umask: any user
    # could read prompts. Its name is among the stub's arguments.
    for argument in Path("/proc/self/cmdline").read_bytes().split(b"\0"):
        region = _SHM / os.fsdecode(argument).lstrip("/")
        if argument and region.parent == _SHM and region.is_file():
            region.chmod(0o600)
