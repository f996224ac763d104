"""What must hold before tritonserver is started: one sentence each for what does not. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trimodal.errors import ServerError
from trimodal.server.repository import Model

SHM = Path("/dev/shm")
# Each stub starts with 1 MiB and grows with the tensors that it holds; images need the most.
SHM_PER_INSTANCE = 4 << 20


def check_numpy() -> None:
    """Raises: ServerError when the stub would die on its first string tensor (numpy 2, Triton 2.51)."""
    try:
        found = version("numpy")
    except PackageNotFoundError:
        raise ServerError("numpy is not installed: pip install 'numpy<2'") from None
    if int(found.split(".")[0]) >= 2:
        raise ServerError(
            f"numpy {found} is installed, but this Triton's Python backend needs numpy below 2: "
            "pip install 'numpy<2'"
        )


def check_shared_memory(models: Iterable[Model], directory: Path = SHM) -> None:
    """Raises: ServerError when /dev/shm is missing or has less room than the Python models start with."""
    instances = sum(model.instances for model in models)
    needed = instances * SHM_PER_INSTANCE
    try:
        status = os.statvfs(directory)
    except OSError:
        raise ServerError(
            f"{directory} is missing, which Triton's Python models exchange tensors in"
        ) from None
    free = status.f_bavail * status.f_frsize
    if free < needed:
        total = status.f_blocks * status.f_frsize
        raise ServerError(
            f"{directory} has {free >> 20} MiB free of {total >> 20} MiB, but the Python models "
            f"(instances: {instances}) need {needed >> 20} MiB: enlarge it (docker run --shm-size=1g, or "
            f"mount -o remount,size=1g {directory}) or remove what fills it"
        )
