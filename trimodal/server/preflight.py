"""Checks what must hold before tritonserver is started; one sentence for each thing that does not."""

from __future__ import annotations

import os
import resource
import shlex
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from trimodal.errors import ServerError, SettingsError
from trimodal.host import free_room
from trimodal.repository import Model, unfit_metric_tags
from trimodal.runtimes.gpu_device import Gpu, visible_gpus
from trimodal.server.artefacts import FileCheck, check_artefacts
from trimodal.server.installation import Triton
from trimodal.server.options import ServerOptions

SHM = Path("/dev/shm")
# Each stub starts with 1 MiB and grows with the tensors that it holds; images need the most.
SHM_PER_INSTANCE = 4 << 20

LEAST_TEMPORARY = 1 << 20  # bytes; links, the stop file and byte code take a tenth

SOFT, HARD = 0, 1
# What it is called, the limit, which of the two, the least of it, the unit that `ulimit` shows, and how it is
# raised. A thread takes a gigabyte of addresses for its stack (process_guard.deepen_stack); a region of
# shared memory is a file.
LIMITS = (
    ("open files", resource.RLIMIT_NOFILE, HARD, 128, 1, "ulimit -n 65536"),
    ("processes and threads", resource.RLIMIT_NPROC, SOFT, 128, 1, "ulimit -u unlimited"),
    ("addresses in KiB", resource.RLIMIT_AS, SOFT, 24 << 30, 1 << 10, "ulimit -v unlimited"),
    ("a file's size in KiB", resource.RLIMIT_FSIZE, SOFT, 64 << 20, 1 << 10, "ulimit -f unlimited"),
)


def check_numpy() -> None:
    """Raises: ServerError when the stub would die on its first string tensor (numpy 2, Triton 2.51)."""
    installed = version("numpy")
    if int(installed.split(".")[0]) >= 2:
        raise ServerError(
            f"numpy {installed} is installed, but this Triton's Python backend needs numpy below 2: "
            "pip install 'numpy<2'"
        )


def check_limits() -> None:
    """Raises: ServerError when a limit of this process is so low that tritonserver would end or hang.

    The guard raises the soft limit of open files to the hard one. Without any left Triton (2.51) writes a
    gigabyte a minute of that to its log.
    """
    for name, kind, which, least, unit, remedy in LIMITS:
        limit = resource.getrlimit(kind)[which]
        exempt = kind == resource.RLIMIT_NPROC and os.geteuid() == 0
        if resource.RLIM_INFINITY != limit < least and not exempt:
            raise ServerError(
                f"the limit of {name} is {limit // unit}, but tritonserver needs {least // unit}: set it by "
                f"`{remedy}`, or in what starts this (docker --ulimit, systemd, limits.conf)"
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


def check_temporary(directory: Path) -> None:
    """Raises: ServerError when Triton could not start models out of this folder: see `ServedRepository`.

    Stubs keep the byte code of Triton's own module there: of one that did not fit all said "marshal data too
    short".
    """
    if free_room(directory) < LEAST_TEMPORARY:
        raise ServerError(
            f"the disk of the temporary folder {directory} is full: free some, or set TMPDIR to another"
        )
    if shlex.quote(str(directory)) != str(directory):
        raise ServerError(
            f"the temporary folder {directory} has a character that Triton's Python backend does not quote: "
            "set TMPDIR to a path of letters, digits, and any of / . _ -"
        )


def check_health_host(options: ServerOptions) -> str:
    """The address of the health page. Raises: ServerError: clients look for it where gRPC is."""
    host = options.health_host or options.host
    if host not in (options.host, "0.0.0.0", "::"):
        raise ServerError(f"--health-host {host}: give 0.0.0.0 or :: (every address), or leave it at --host")
    return host


def check_models(triton: Triton, models: Iterable[Model]) -> FileCheck:
    """Checks all but the content of the artefacts' files, which the thread that is returned will read.

    Raises: SettingsError or ServerError when one of these models cannot be loaded here as configured.
    """
    models = list(models)
    for model in models:
        if shlex.quote(model.name) != model.name:
            raise ServerError(f"model '{model.name}': its name may hold letters, digits, and any of . _ -")
        check_config(model)
    check_backends(triton, models)
    return check_artefacts(models, check_gpus(models))


def check_config(model: Model) -> None:
    """Refuses what would end the server, and CUDA graphs together with output_copy_stream.

    With these clients would get other clients' answers: Triton's tensorrt backend (26.07, instance_state.cc)
    rotates 3 event sets, each with its graph, over 2 sets of buffers, so half of the batches are computed
    from, and answered with, those of earlier batches.

    Raises: SettingsError: names the file and the key.
    """
    file, cuda = model.config_file.relative_to(model.directory.parent), model.config.optimization.cuda
    if model.backend == "tensorrt" and cuda.graphs and cuda.output_copy_stream:
        raise SettingsError(
            f"{file}: optimization.cuda.output_copy_stream beside graphs makes Triton's TensorRT backend "
            "answer clients with the results of other clients: remove output_copy_stream, or graphs"
        )
    if unfit := unfit_metric_tags(model.config):
        raise SettingsError(
            f"{file}: metric_tags has the key '{unfit[0]}', on which tritonserver ends: use letters of "
            "ASCII, digits, and _ but not first"
        )


def check_backends(triton: Triton, models: Iterable[Model]) -> None:
    """Raises: ServerError when a model needs one of Triton's backends that this installation lacks."""
    for model in models:
        if model.backend and not (triton.root / "backends" / model.backend).is_dir():
            raise ServerError(
                f"model {model.name} needs Triton's {model.backend} backend, which this tritonserver lacks: "
                "run inside NVIDIA's Triton container, or choose --profile cuda"
            )


def check_gpus(models: Iterable[Model]) -> list[Gpu]:
    """The GPUs that can be seen; not asked for when no model wants one. Raises: ServerError without any."""
    wanting = [model.name for model in models if model.wants_gpu]
    if not wanting:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = "the driver has none" if visible is None else f"CUDA_VISIBLE_DEVICES={visible} hides them all"
    try:
        if gpus := visible_gpus():
            return gpus
    except ServerError as error:
        why = str(error)
    want = "want" if len(wanting) > 1 else "wants"
    raise ServerError(f"{', '.join(wanting)} {want} a GPU, but {why}; --profile cpu needs none")
