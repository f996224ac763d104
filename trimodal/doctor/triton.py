"""tritonserver and what it needs beside it: Python, its stub, libpython, numpy, backends."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from trimodal.doctor.values import Check, Group
from trimodal.errors import ServerError
from trimodal.repository import Model
from trimodal.runtimes.gpu_libraries import installed
from trimodal.server import installation, preflight
from trimodal.server.installation import Triton

TRITON = Group("triton")


def check_triton(models: Iterable[Model]) -> Iterator[Check]:
    yield TRITON.ok("python", f"{platform.python_version()} in {sys.prefix}")
    yield _try("numpy", preflight.check_numpy, f"{installed('numpy')}, below 2")
    try:
        triton = installation.find_triton()
    except ServerError as error:
        yield TRITON.refused("tritonserver", error)
        return
    yield TRITON.ok("tritonserver", f"{_version(triton)} in {triton.root}")
    yield _try("python backend", triton.stub, "has a stub for this Python")
    if triton.is_wheel:
        yield _try("libpython", installation.find_libpython, "found, the stub links it")
    for model in models:  # one line for each backend that is missing
        if model.backend and model.backend != "python":
            yield _try(
                f"{model.backend} backend",
                partial(preflight.check_backends, triton, [model]),
                f"there, for {model.name}",
            )


def _try(name: str, check: Callable[[], object], found: str) -> Check:
    try:
        check()
    except ServerError as error:
        return TRITON.refused(name, error)
    return TRITON.ok(name, found)


def _version(triton: Triton) -> str:
    if triton.is_wheel:
        return f"of nvidia-pytriton {installed('nvidia-pytriton')}"
    # Set in NVIDIA's images.
    return os.environ.get("TRITON_SERVER_VERSION", "of unknown version")
