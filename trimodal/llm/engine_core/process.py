"""Starts the engine's process, notices its end, and leaves nothing of it behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import trimodal
from trimodal.errors import OperatorError
from trimodal.llm.engine_core.family import MARK, ProcessFamily
from trimodal.llm.settings import GPU_ENGINES, LlmSettings
from trimodal.paths import setting_path
from trimodal.runtimes.jit_tools import search_path

_GLANCE_SECONDS = 0.01
# Another interpreter gets this very package and nothing else of our environment, whose numpy and torch are
# not its own: TensorRT-LLM's container keeps it in a virtual environment.
_BORROWED = """
import importlib.util, os, sys
file = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location(
    "trimodal", file, submodule_search_locations=[os.path.dirname(file)])
sys.modules["trimodal"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from trimodal import logs
from trimodal.llm.engine_core.core import main
logs.configure("llm")
main()
"""


class EngineProcess:
    """Runs an engine. Its end is noticed before it is reaped: until then its number is no other's."""

    def __init__(self, settings: LlmSettings, descriptor: int) -> None:
        """Starts it with `descriptor` as its end of the connection.

        Raises:
            OperatorError: there is no such interpreter.
        """
        # These engines have children (MPI ranks, vLLM's core), which keep the GPU's memory when only their
        # parent is killed. The CPU engines stay in tritonserver's group, which its guard ends as a whole.
        self._family = ProcessFamily() if settings.engine in GPU_ENGINES else None
        self._reaping = threading.RLock()
        environment = _environment(settings.python)
        self._process = subprocess.Popen(
            command(settings.python, descriptor),
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            env=environment | {MARK: self._family.mark} if self._family else environment,
            start_new_session=self._family is not None,
        )
        if self._family:
            self._family.lead(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exited(self) -> bool:
        """Whether it is gone, reaped or not."""
        with self._reaping:
            if self._process.returncode is not None:
                return True
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """Kills it; end() still has to be called."""
        with self._reaping:
            if not self.exited():
                if self._family:
                    self._family.note()
                os.kill(self.pid, signal.SIGKILL)  # Popen's own kill() would reap one that just ended

    def end(self, seconds: float) -> int:
        """Waits for its end, by force after `seconds`; ends what it started as well. Its exit status."""
        deadline = time.monotonic() + seconds
        while not self.exited():
            if time.monotonic() > deadline:
                self.kill()
                break
            time.sleep(_GLANCE_SECONDS)
        with self._reaping:
            family = self._family if self._process.returncode is None else None
            if family:
                family.end()  # while the leader is not reaped its number cannot be given to another group
            status = self._process.wait()
        if family:
            family.await_memory()
        return status


def command(python: str, descriptor: int) -> list[str]:
    """The command line of an engine's process; `python` "" is the interpreter of this environment.

    Raises:
        OperatorError: no interpreter there.
    """
    if not python:
        return [_own_python(), "-m", "trimodal.llm.engine_core", str(descriptor)]
    interpreter = setting_path(python)
    if not os.access(interpreter, os.X_OK) or interpreter.is_dir():
        raise OperatorError(
            f"parameter 'python': {python} is no executable file: name the interpreter of the environment "
            "that has the engine's library, or leave it empty for this one"
        )
    return [str(interpreter), "-c", _BORROWED, str(Path(trimodal.__file__).resolve()), str(descriptor)]


def _environment(python: str) -> dict[str, str]:
    """Ours, with the programs of the interpreter's own environment first: libraries compile with its ninja.

    Another interpreter's packages are its own: what points ours to them would mislead it.
    """
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV") if python else ()
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | {"PATH": search_path(str(setting_path(python)) if python else _own_python())}


def _own_python() -> str:
    """The interpreter of this environment; inside Triton's stub sys.executable may be empty or the stub."""
    candidates = [sys.executable, os.path.join(sys.prefix, "bin", "python3"), shutil.which("python3") or ""]
    for path in candidates:
        if os.path.basename(path).startswith("python") and os.access(path, os.X_OK):
            return path
    raise OperatorError("no Python interpreter found to run the engine in")
