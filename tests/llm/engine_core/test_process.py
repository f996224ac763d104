"""The engine's process: another interpreter, its environment, and that nothing of it stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pydantic
import pytest

from tests.llm.doubles.sinks import eventually
from tests.llm.engine_core.rig import Reader
from trimodal.errors import OperatorError
from trimodal.llm.engine_core import client as client_module
from trimodal.llm.engine_core import process as process_module
from trimodal.llm.engine_core.client import start_process
from trimodal.llm.engines.protocol import EngineRequest, Sampling
from trimodal.llm.settings import LlmSettings

FAKE = LlmSettings(engine="fake", fake_step_ms=1)
# Plays an engine that started something which holds its connection and outlives it.
WITH_CHILD = """
import os, subprocess, sys
from multiprocessing.connection import Connection
from trimodal.llm.engines.protocol import EngineInfo
descriptor = int(sys.argv[1])
connection = Connection(descriptor)
connection.recv()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[descriptor])
connection.send(EngineInfo(str(child.pid), 64, 32, 4, 1000))
connection.recv()
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """The interpreter of an environment that has pydantic and not this package."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "env" / "lib" / version / "site-packages"
    ours = Path(pydantic.__file__).parents[1]
    for name in ("pydantic", "pydantic_core", "typing_extensions.py", "annotated_types", "typing_inspection"):
        (packages / name).symlink_to(ours / name)
    found = subprocess.run(
        [python, "-I", "-c", "import trimodal"], cwd=tmp_path, capture_output=True, timeout=30
    )
    assert b"No module named 'trimodal'" in found.stderr
    return str(python)


def test_an_engine_runs_in_another_environment_and_borrows_this_package_alone(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nonsense")
    client = start_process(FAKE.model_copy(update={"python": elsewhere}))
    reader = Reader(client)
    executable = os.readlink(f"/proc/{client.pid}/exe")
    assert executable == os.path.realpath(elsewhere)
    assert Path(f"/proc/{client.pid}/cmdline").read_bytes().startswith(elsewhere.encode() + b"\0")
    environment = Path(f"/proc/{client.pid}/environ").read_bytes().split(b"\0")
    assert not [one for one in environment if one.startswith((b"PYTHONPATH=", b"PYTHONHOME="))]
    client.add(EngineRequest(1, [7] * 10, Sampling(5)))
    eventually(lambda: any(output.finish_reason for step in reader.steps for output in step.outputs))
    client.close()


def test_an_engine_whose_library_is_not_there_says_where_it_was_looked_for(elsewhere: str) -> None:
    settings = LlmSettings(engine="openvino", python=elsewhere)
    with pytest.raises(OperatorError) as raised:
        start_process(settings)
    assert str(raised.value).startswith(
        f"engine 'openvino' is not installed in the environment of {elsewhere}: "
    )


@pytest.mark.parametrize("python", ["/no/such/python", "/tmp"])
def test_no_interpreter_is_one_sentence_and_leaves_nothing(python: str) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OperatorError, match=f"parameter 'python': {python} is no executable file"):
        start_process(FAKE.model_copy(update={"python": python}))
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_the_entry_does_nothing_when_a_spawned_process_imports_it() -> None:
    """multiprocessing and mpi4py import the main module again in their workers, under other names."""
    for name in ("__mp_main__", "__worker__"):
        code = f"import runpy; runpy.run_module('trimodal.llm.engine_core.__main__', run_name={name!r})"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def played(monkeypatch: pytest.MonkeyPatch, engine: str) -> LlmSettings:
    monkeypatch.setattr(
        process_module, "command", lambda python, fd: [sys.executable, "-c", WITH_CHILD, str(fd)]
    )
    monkeypatch.setattr(client_module, "_GLANCE_SECONDS", 0.05)
    return LlmSettings.model_validate({"engine": engine})


def running(pid: int) -> bool:
    """A zombie, which an orphan may stay in a container without an init, does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_killed_gpu_engine_started_is_ended_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's core and MPI's ranks hold the GPU's memory, and a new engine needs it."""
    client = start_process(played(monkeypatch, "vllm"))
    reader = Reader(client)
    child, pid = int(client.info.name), client.pid
    assert pid
    assert running(child)
    assert os.getpgid(child) == pid
    os.kill(pid, signal.SIGKILL)
    # The child holds the connection open: only the engine's end tells.
    assert reader.died.wait(10)
    client.close()
    eventually(lambda: not running(child))
    client.close()


def test_a_closed_gpu_engine_leaves_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    client = start_process(played(monkeypatch, "tensorrt_llm"))
    reader = Reader(client)
    child = int(client.info.name)
    reader.close()
    eventually(lambda: not running(child))


def test_a_cpu_engine_stays_in_the_servers_group() -> None:
    client = start_process(FAKE)
    assert os.getpgid(client.pid or 0) == os.getpgid(0)
    client.close()


def test_what_an_engine_starts_does_not_inherit_its_connection() -> None:
    client = start_process(FAKE)
    process = Path(f"/proc/{client.pid}")
    descriptor = process.joinpath("cmdline").read_bytes().rstrip(b"\0").rpartition(b"\0")[2].decode()
    (flags,) = re.findall(r"flags:\s+(\d+)", process.joinpath("fdinfo", descriptor).read_text())
    assert int(flags, 8) & os.O_CLOEXEC
    client.close()
