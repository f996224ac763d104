"""The engine's process: another interpreter, its environment, and that nothing of it stays behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pydantic
import pytest

from tests.doubles.processes import running
from tests.llm.doubles.sinks import eventually
from tests.llm.engine_core.rig import Reader
from trimodal.errors import OperatorError
from trimodal.llm.engine_core import client as client_module
from trimodal.llm.engine_core import family
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


# Plays one that started what MPI does: a process in a session of its own, whose parent is gone at once.
WITH_ORPHAN = """
import os, sys, time
from multiprocessing.connection import Connection
from trimodal.llm.engines.protocol import EngineInfo
descriptor = int(sys.argv[1])
connection = Connection(descriptor)
connection.recv()
told, tell = os.pipe()
if os.fork() == 0:
    os.close(descriptor)
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(tell, str(os.getpid()).encode())
        time.sleep(60)
    os._exit(0)
os.wait()
connection.send(EngineInfo(os.read(told, 32).decode(), 64, 32, 4, 1000))
connection.recv()
"""
# Plays one whose child left the group and overwrote its environment, as a process title does.
WITH_RENAMED = """
import os, subprocess, sys
from multiprocessing.connection import Connection
from trimodal.llm.engines.protocol import EngineInfo
connection = Connection(int(sys.argv[1]))
connection.recv()
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(60)"], env={}, start_new_session=True)
connection.send(EngineInfo(str(child.pid), 64, 32, 4, 1000))
connection.recv()
"""
# Plays vLLM, whose core shares memory with its workers.
WITH_SHARED_MEMORY = """
import os, sys, time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from trimodal.llm.engines.protocol import EngineInfo
connection = Connection(int(sys.argv[1]))
connection.recv()
shared = SharedMemory(create=True, size=1)
if os.fork():
    connection.send(EngineInfo(shared.name, 64, 32, 4, 1000))
time.sleep(60)
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """The interpreter of an environment that has pydantic and not this package."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "env" / "lib" / version / "site-packages"
    ours = Path(pydantic.__file__).parents[1]
    names = ["pydantic", "pydantic_core", "typing_extensions.py", "annotated_types", "typing_inspection"]
    for name in [*names, *(["tomli"] if sys.version_info < (3, 11) else [])]:
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
    (path,) = [one for one in environment if one.startswith(b"PATH=")]
    # Its own ninja is found first; the environment's own folder, and not that of the interpreter's file.
    assert path.startswith(b"PATH=" + os.path.dirname(elsewhere).encode() + b":")
    client.add(EngineRequest(1, [7] * 10, Sampling(5)))
    eventually(lambda: any(output.finish_reason for step in reader.steps for output in step.outputs))
    client.close()


# The interpreter is named by letters, as a config.pbtxt does.
TELLS_PATH = """
import os, sys
from trimodal.llm.engine_core.process import _environment
python = os.fsencode(sys.argv[1]).decode()
print(os.fsencode(_environment(python)["PATH"]).split(b":")[0] == os.path.dirname(python.encode()))
"""


def test_programs_of_an_interpreter_anywhere_are_found_also_without_a_locale_as_in_tritons_stub() -> None:
    """Popen could not encode the variable."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", TELLS_PATH, "/ümgebung/bin/python"],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_an_engine_whose_library_is_not_there_says_where_it_was_looked_for(elsewhere: str) -> None:
    settings = LlmSettings(engine="openvino", python=elsewhere)
    with pytest.raises(OperatorError) as raised:
        start_process(settings)
    assert str(raised.value).startswith(
        f"engine 'openvino' is not installed in the environment of {elsewhere}: "
    )


@pytest.mark.parametrize("python", ["/no/such/python", "/tmp"])
def test_no_interpreter_is_one_sentence_and_leaves_nothing(python: str) -> None:
    gc.collect()  # what other tests left open is not counted
    descriptors, times = len(os.listdir("/proc/self/fd")), 8
    for _ in range(times):
        with pytest.raises(OperatorError, match=f"parameter 'python': {python} is no executable file"):
            start_process(FAKE.model_copy(update={"python": python}))
    # Not even one each; gRPC's threads, which other tests began, may open and close some of their own.
    assert len(os.listdir("/proc/self/fd")) < descriptors + times


def test_the_entry_does_nothing_when_a_spawned_process_imports_it() -> None:
    """multiprocessing and mpi4py import the main module again in their workers, under other names."""
    for name in ("__mp_main__", "__worker__"):
        code = f"import runpy; runpy.run_module('trimodal.llm.engine_core.__main__', run_name={name!r})"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def played(monkeypatch: pytest.MonkeyPatch, engine: str, code: str = WITH_CHILD) -> LlmSettings:
    monkeypatch.setattr(process_module, "command", lambda python, fd: [sys.executable, "-c", code, str(fd)])
    monkeypatch.setattr(client_module, "_GLANCE_SECONDS", 0.05)
    return LlmSettings.model_validate({"engine": engine})


@pytest.mark.parametrize(
    ("engine", "program", "end"),
    [
        ("vllm", WITH_CHILD, "killed"),  # the child holds the connection open: only the engine's end tells
        ("tensorrt_llm_pytorch", WITH_CHILD, "closed"),
        ("tensorrt_llm_pytorch", WITH_ORPHAN, "killed"),  # only what it inherited leads to it
        ("vllm", WITH_RENAMED, "given up"),  # only its parent does
    ],
)
def test_nothing_that_a_gpu_engine_started_outlives_it(
    monkeypatch: pytest.MonkeyPatch, engine: str, program: str, end: str
) -> None:
    """vLLM's core and MPI's ranks hold the GPU's memory, and a new engine needs it."""
    client = start_process(played(monkeypatch, engine, program))
    reader = Reader(client)
    started, pid = int(client.info.name), client.pid or 0
    assert running(started)
    assert (pid in (os.getpgid(started), os.getsid(started))) == (program is WITH_CHILD)
    ends = {
        "killed": lambda: os.kill(pid, signal.SIGKILL),
        "closed": client.close,
        "given up": client.abandon,
    }
    ends[end]()
    assert reader.died.wait(10)
    client.close()
    assert not running(started), "the next engine would open beside it"
    client.close()


def test_what_an_engine_left_in_shared_memory_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end of vLLM (0.32) left some there, of which a container has 64 MiB."""
    client = start_process(played(monkeypatch, "vllm", WITH_SHARED_MEMORY))
    reader, shared = Reader(client), Path("/dev/shm", client.info.name)
    assert shared.exists()
    os.kill(client.pid or 0, signal.SIGKILL)
    assert reader.died.wait(10)
    client.close()
    assert not shared.exists()


def test_processes_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this process, in a session of its own, and of an engine beside it."""
    settings = played(monkeypatch, "tensorrt_llm_pytorch", WITH_ORPHAN)
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    first, second = start_process(settings), start_process(settings)
    readers = [Reader(client) for client in (first, second)]
    try:
        readers[0].close()
        assert not running(int(first.info.name))
        assert running(int(second.info.name))
        assert own.poll() is None
    finally:
        readers[1].close()
        own.kill()
        own.wait()


def test_the_next_engine_waits_until_the_driver_lists_none_of_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = start_process(played(monkeypatch, "vllm"))
    reader = Reader(client)
    child, asked = int(client.info.name), []

    def listed() -> set[int]:
        asked.append(running(child))
        return {child, 1} if len(asked) < 4 else {1}

    monkeypatch.setattr(family, "gpu_pids", listed)
    reader.close()
    assert asked == [False] * 4
    assert not caplog.records
    client.close()
    assert len(asked) == 4, "an engine is ended once"


def test_memory_that_stays_taken_is_told_and_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(family, "_SECONDS", 0.05)
    client = start_process(played(monkeypatch, "vllm"))
    reader, pid = Reader(client), client.pid
    monkeypatch.setattr(family, "gpu_pids", lambda: {pid})
    reader.close()
    assert f"GPU memory of the ended engine is not free, the driver lists [{pid}]" in caplog.text


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
