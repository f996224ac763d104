"""Checks the machine: system, memory, /dev/shm, disk, limits and ports."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from trimodal.doctor.values import Check, Group
from trimodal.errors import ServerError
from trimodal.host import host_cpus, host_memory
from trimodal.paths import cache_directory
from trimodal.report.numbers import size
from trimodal.repository import Model
from trimodal.server import ports, preflight
from trimodal.server.admin import Api
from trimodal.server.options import ServerOptions

MACHINE = Group("machine")
LEAST_MEMORY = 2 << 30  # bytes; the starter set takes three quarters of it
LEAST_SHM = 256 << 20  # Docker gives 64 MiB; a batch of large images takes more than is there at the start
LEAST_DISK = 256 << 20  # for logs alone
# A checkpoint of 8B parameters is 16 GB.
ROOM_TO_BUILD = {"cpu": 5 << 30, "cuda": 20 << 30, "tensorrt": 60 << 30}
LEAST_FILES = 4096  # each connection and each stub holds some
UNLIMITED = resource.RLIM_INFINITY


def check_machine(options: ServerOptions, models: Iterable[Model]) -> Iterator[Check]:
    if platform.system() != "Linux":
        found = f"{platform.system()} {platform.machine()}"
        yield MACHINE.error("system", found, "use Linux: there is no tritonserver for other systems")
        return
    yield _system()
    yield _memory()
    yield _shared_memory(list(models))
    yield from _disks(options)
    yield _limits()
    yield _ports(options)


def _system() -> Check:
    cpu = platform.machine()
    found = f"Linux {platform.release()}, {cpu}, {host_cpus()} CPUs"
    remedy = "the wheels of tritonserver and its engines are for x86_64: use NVIDIA's image"
    return MACHINE.warning("system", found, remedy, when=cpu != "x86_64")


def _memory() -> Check:
    total, free = host_memory()
    found = f"{size(free)} of {size(total)} are free"
    remedy = "end other programs, or serve fewer models with --model"
    return MACHINE.warning("memory", found, remedy, when=free < LEAST_MEMORY)


def _shared_memory(models: list[Model]) -> Check:
    try:
        preflight.check_shared_memory(models)
    except ServerError as error:
        return MACHINE.refused("/dev/shm", error)
    status = os.statvfs(preflight.SHM)
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    found = f"{size(free)} of {size(total)} are free"
    remedy = "requests with large tensors will fail: docker run --shm-size=1g"
    return MACHINE.warning("/dev/shm", found, remedy, when=total < LEAST_SHM)


def _disks(options: ServerOptions) -> Iterator[Check]:
    """One line a file system: engines, logs and temporary files often share one."""
    wanted = {
        "engines": options.engines or options.repository,
        "logs": options.log.parent if options.log else cache_directory(),
        "temporary files": Path(tempfile.gettempdir()),
    }
    systems: dict[int, tuple[Path, list[str]]] = {}
    for use, path in wanted.items():
        there = _existing(path.absolute())
        systems.setdefault(there.stat().st_dev, (there, []))[1].append(use)
    for path, uses in systems.values():
        free = shutil.disk_usage(path).free
        found = f"{size(free)} are free on the disk of {path} ({', '.join(uses)})"
        room = ROOM_TO_BUILD[options.profile]
        if free < LEAST_DISK:
            yield MACHINE.error("disk", found, "free some, or name another place (TRIMODAL_CACHE, TMPDIR)")
        else:
            remedy = f"enough to serve; building engines of real models may take {size(room)}"
            yield MACHINE.warning("disk", found, remedy, when="engines" in uses and free < room)


def _existing(path: Path) -> Path:
    return path if os.path.exists(path) else _existing(path.parent)  # Path's raises where it may not look


def _limits() -> Check:
    try:
        preflight.check_limits()
    except ServerError as error:
        return MACHINE.refused("limits", error)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{'unlimited' if files == UNLIMITED else files} (ulimit -n)"
    return MACHINE.warning(
        "open files",
        found,
        "hundreds of streams need more: ulimit -n 65536, or docker run --ulimit nofile=65536 "
        f"(at least {LEAST_FILES})",
        when=files != UNLIMITED and files < LEAST_FILES,
    )


def _ports(options: ServerOptions) -> Check:
    named = ", ".join(str(port) if port else "any" for port in options.ports.values())
    try:
        ports.choose(options.host, options.ports)
    except ServerError as error:
        refused = MACHINE.refused("ports", error)
        api = Api(options.host, options.http_port, options.metrics_port, "")
        if options.http_port and api.ready():
            remedy = "a Triton is ready there already: end it first, or choose others"
            return replace(refused, severity="warning", remedy=remedy)
        return refused
    return MACHINE.ok("ports", f"{named} on {options.host} are free (HTTP, gRPC, metrics, health)")


def check_gateway_port(host: str, port: int) -> Check:
    """A gateway that runs there already is no fault of the machine's."""
    try:
        ports.choose(host, {"--port": port})
    except ports.PortInUse:
        remedy = "unless your gateway has it: trimodal gateway --port, or serve --gateway-port"
        return MACHINE.warning("gateway", f"port {port} on {host} is in use", remedy)
    except ServerError as error:
        return MACHINE.warning("gateway", str(error))
    return MACHINE.ok("gateway", f"{port or 'any'} on {host} is free")
