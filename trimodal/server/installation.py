"""Finds tritonserver and what the Python backend needs beside it.

Two layouts are known: the `nvidia-pytriton` wheel's (stubs of several Pythons in
`python_backend_stubs/`, libraries in `nvidia_pytriton.libs/`) and that of
NVIDIA's container (`/opt/tritonserver`, one stub inside `backends/python/`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

from trimodal.errors import ServerError
from trimodal.host import exempt_loopback, settle_python
from trimodal.paths import PACKAGE, expanded
from trimodal.runtimes.gpu_device import DEVICE_ORDER

CONTAINER = Path("/opt/tritonserver")
STUB = "triton_python_backend_stub"
# Bytes. glibc by default gives the memory of every image back to the kernel and has it zeroed again for the
# next: 256 page faults an image. These are the values that it adapts to by itself after one block of 32 MB.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": 32 << 20, "MALLOC_TRIM_THRESHOLD_": 64 << 20}
# Each thread that numpy's OpenBLAS (0.3.23) makes when it is imported spins for 2^26 ticks, some 25 ms, then
# and after each product, on cores where other models load or compute. 2^4 is the least that it takes.
PRODUCTS = {"OPENBLAS_THREAD_TIMEOUT": 4}


@dataclass(frozen=True)
class Triton:
    """A Triton installation: the folder above `bin/tritonserver`."""

    root: Path

    @property
    def binary(self) -> Path:
        return self.root / "bin" / "tritonserver"

    @property
    def is_wheel(self) -> bool:
        return (self.root / "python_backend_stubs").is_dir()

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor number, as (2, 71); (0, 0) where nothing tells it, as for the wheel's (2.51)."""
        # NVIDIA's images say it in their environment.
        match = re.match(
            r"(\d+)\.(\d+)", "" if self.is_wheel else os.environ.get("TRITON_SERVER_VERSION", "")
        )
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def libraries(self) -> Path | None:
        """The wheel's bundled libraries; None in a container, where the loader knows them."""
        directory = self.root.parent.parent / "nvidia_pytriton.libs"
        return directory if self.is_wheel and directory.is_dir() else None

    def stub(self) -> Path:
        """The Python backend's stub for the running Python. Raises: ServerError when there is none."""
        running = f"3.{sys.version_info.minor}"
        if self.is_wheel:
            stub = self.root / "python_backend_stubs" / running / STUB
            if not stub.is_file():
                known = [path.parent.name for path in stub.parents[1].glob(f"*/{STUB}")]
                raise ServerError(_no_stub(running, ", ".join(sorted(known))))
            return stub
        stub = self.root / "backends" / "python" / STUB
        if not stub.is_file():
            raise ServerError(f"{self.root} has no Python backend: install it or set TRIMODAL_TRITONSERVER")
        linked = re.search(rb"libpython(3\.\d+)\.so", stub.read_bytes())
        if linked and linked.group(1).decode() != running:
            raise ServerError(_no_stub(running, linked.group(1).decode()))
        return stub


def _no_stub(running: str, known: str) -> str:
    return (
        f"Python {running} is not supported by this Triton's Python backend (it has {known}): "
        "use a virtual environment of one of those"
    )


def find_triton() -> Triton:
    """TRIMODAL_TRITONSERVER's (binary or folder), the container's or the wheel's. Raises: ServerError."""
    if named := os.environ.get("TRIMODAL_TRITONSERVER"):
        path = expanded(Path(named), "TRIMODAL_TRITONSERVER", ServerError).absolute()
        root = path if path.is_dir() else path.parent.parent
        if not (root / "bin" / "tritonserver").is_file():
            raise ServerError(f"TRIMODAL_TRITONSERVER names {named}, but no bin/tritonserver is there")
        return Triton(root)
    if (CONTAINER / "bin" / "tritonserver").is_file():
        return Triton(CONTAINER)
    # find_spec alone: importing pytriton changes the process (it copies stubs and sets up logging).
    spec = importlib.util.find_spec("pytriton")
    for place in (spec.submodule_search_locations or []) if spec else []:
        root = Path(place) / "tritonserver"
        if (root / "bin" / "tritonserver").is_file():
            return Triton(root)
    raise ServerError(
        "no tritonserver found: install the wheel with pip install 'trimodal[cpu]' (Linux x86-64), "
        "run inside NVIDIA's Triton container, or set TRIMODAL_TRITONSERVER"
    )


def find_libpython() -> Path | None:
    """The shared libpython; None when the system's loader has it. Raises: ServerError when there is none."""
    name = f"libpython3.{sys.version_info.minor}.so.1.0"
    places = [sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"]
    for place in places:
        if place and (library := Path(place) / name).is_file():
            return library
    if find_library(f"python3.{sys.version_info.minor}"):
        return None
    raise ServerError(
        f"{name} is missing, which Triton's Python backend links: install the package "
        f"libpython3.{sys.version_info.minor}, or use a Python built with --enable-shared"
    )


def link_environment(directory: Path) -> Path:
    """Makes `directory` the running virtual environment again, of links: for one whose path is not ASCII.

    The stub's Python has no locale. A .pth file with such a path, as an editable install has one, ends it
    before it has begun, and Triton (2.51) waits for ever.
    """
    packages = Path(sysconfig.get_path("purelib"))
    links = {directory / name: Path(sys.prefix, name) for name in ("bin", "pyvenv.cfg")}
    target = directory / packages.relative_to(sys.prefix)
    target.mkdir(parents=True)
    links[target / PACKAGE.name] = PACKAGE
    links |= {
        target / path.name: path
        for path in packages.iterdir()
        if path.suffix != ".pth" or path.read_bytes().isascii()
    }
    for link, path in links.items():
        link.symlink_to(path)
    return directory


def assemble(triton: Triton, directory: Path) -> tuple[Path, dict[str, str]]:
    """Puts a backend directory together in `directory` (the server's own), by links.

    Returns it, and the environment of tritonserver: its libraries, and PATH and VIRTUAL_ENV such that
    the stub imports from the running environment.
    """
    stub = triton.stub()
    environment = dict(os.environ)
    exempt_loopback(environment)
    environment.pop("TRIMODAL_OPERATOR_KEY", None)  # no model needs it
    libraries = [str(triton.libraries)] if triton.libraries else []
    backends = triton.root / "backends"
    if triton.is_wheel:
        backends = directory / "backends"
        python = backends / "python"
        python.mkdir(parents=True)
        for path in [*(triton.root / "backends" / "python").iterdir(), stub]:
            (python / path.name).symlink_to(path)
        if libpython := find_libpython():
            # A folder with this one library: its own folder may shadow others of the system (conda).
            (directory / "lib").mkdir()
            (directory / "lib" / libpython.name).symlink_to(libpython)
            libraries.append(str(directory / "lib"))
    libraries += filter(None, [environment.get("LD_LIBRARY_PATH")])
    if libraries:
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
    programs = Path(sys.executable).parent
    if sys.prefix != sys.base_prefix:
        environment["VIRTUAL_ENV"] = sys.prefix
        if not f"{sys.prefix}{PACKAGE}".isascii():
            environment["VIRTUAL_ENV"] = str(link_environment(directory / "environment"))
            programs = directory / "environment" / "bin"
    # The system's own come last: Triton (2.51) starts a stub by bash, and without one loads for ever.
    paths = [str(programs), environment.get("PATH", ""), os.defpath]
    environment["PATH"] = ":".join(filter(None, paths))
    if shutil.which("bash", path=environment["PATH"]) is None:
        raise ServerError("there is no bash, by which Triton's Python backend starts the models: install it")
    environment.pop("PYTHONHOME", None)
    settle_python(environment)
    environment.setdefault(*DEVICE_ORDER)
    for name, value in (ALLOCATOR | PRODUCTS).items():
        environment.setdefault(name, str(value))
    return backends, environment
