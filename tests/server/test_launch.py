import math
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from trimodal.errors import ServerError
from trimodal.server.installation import Triton
from trimodal.server.launch import Child, command_line
from trimodal.server.options import ServerOptions
from trimodal.server.process import open_log
from trimodal.server.process_guard import HIDDEN

PORTS = {"--http-port": 8000, "--grpc-port": 8001, "--metrics-port": 8002}


@contextmanager
def pipes_closed():
    """Pipes that are opened in the block are closed at its end."""
    opened, pipe = list[int](), os.pipe
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pipe", lambda: opened.extend(ends := pipe()) or ends)
        try:
            yield
        finally:
            assert opened
            for handle in opened:
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.fstat(handle)


def command(**options):
    return command_line(
        Triton(Path("/opt/tritonserver")),
        ServerOptions(repository=Path("/repository"), **options),
        repository=Path("/repository"),
        backends=Path("/run/backends"),
        models=["llm", "vision"],
        ports=PORTS,
        shm_prefix="trimodal-1-",
        trace_file=Path("/run/trace"),
    )


def test_cpu_profile():
    flags = command()
    assert flags[0] == "/opt/tritonserver/bin/tritonserver"
    assert {
        "--model-config-name=cpu",
        "--model-control-mode=explicit",
        "--load-model=llm",
        "--load-model=vision",
        *(f"{flag}={port}" for flag, port in PORTS.items()),
        *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")),
        "--backend-config=python,shm-region-prefix-name=trimodal-1-",
        "--exit-timeout-secs=30",
        # Nothing is offered or filled in that nobody asked for.
        "--disable-auto-complete-config",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        "--exit-on-error=true",
        "--strict-readiness=true",
    } <= set(flags)
    assert "--exit-timeout-secs=2" in command(drain_timeout=1.5)


@pytest.mark.parametrize(("cores", "loads"), [(1, 2), (2, 2), (3, 3), (64, 4)])
def test_as_many_models_load_at_a_time_as_there_are_cores_for(monkeypatch, cores, loads):
    monkeypatch.setattr("trimodal.server.launch.host_cpus", lambda: cores)
    assert f"--model-load-thread-count={loads}" in command()


def test_cuda_profile_reads_its_own_files_and_leaves_the_gpu_to_the_engines():
    flags = command(profile="cuda")
    assert "--model-config-name=cuda" in flags
    assert {"--pinned-memory-pool-byte-size=0", "--allow-gpu-metrics=false"} <= set(flags)
    assert "--enable-peer-access=false" in flags  # each GPU would be opened to let the others in
    pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(16)]
    assert set(pools) <= set(flags)
    assert set(pools) <= set(command(profile="cpu"))
    of_triton = ("pinned", "gpu-metrics", "cuda-memory", "peer-access")
    assert not [flag for flag in command(profile="tensorrt") if any(name in flag for name in of_triton)]


def test_operator_apis_are_restricted_on_both_protocols():
    for start in ("--http-restricted-api=", "--grpc-restricted-protocol="):
        (flag,) = (flag for flag in command() if flag.startswith(start))
        apis, _, header = flag.removeprefix(start).partition(":")
        assert set(apis.split(",")) == {"model-repository", "shared-memory", "trace", "logging"}
        assert header == f"trimodal-operator-key={HIDDEN}"


@pytest.mark.parametrize(
    ("version", "bounded"), [("2.71.0", True), ("2.56.0", True), ("2.55.1", False), ("", False), ("x", False)]
)
def test_kept_responses_are_bounded_where_the_server_can(monkeypatch, version, bounded):
    monkeypatch.setenv("TRITON_SERVER_VERSION", version)
    assert ("--grpc-max-response-pool-size=64" in command()) == bounded


def test_traces_are_sent_where_they_are_wanted():
    none = [flag for flag in command() if flag.startswith("--trace-config")]
    assert none == ["--trace-config=triton,file=/run/trace"]  # where `trimodal explain` may turn it on
    flags = command(otlp="http://collector:4318", otlp_every=10)
    assert "--trace-config=mode=opentelemetry" in flags
    assert "--trace-config=opentelemetry,url=http://collector:4318/v1/traces" in flags
    assert "--trace-config=rate=10" in flags
    assert none[0] not in flags


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(ServerError, match="not a directory.*set TRIMODAL_CACHE .* or name a file with --log"):
        open_log(None)


@pytest.mark.parametrize(("name", "why"), [("folder", "is a directory"), ("file/log", "file exists")])
def test_a_named_log_that_cannot_be_written(tmp_path, name, why):
    """It was a traceback."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match=f"no log can be written to .*{name} \\({why}\\)"):
        open_log(tmp_path / name)


def test_a_named_log_is_appended_to_and_for_its_user_alone(tmp_path):
    file = tmp_path / "new" / "log"
    assert open_log(file) == file
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("of an earlier server\n")
    assert open_log(file).read_text() == "of an earlier server\n"


@pytest.mark.parametrize("timeout", [math.inf, 1e9, 10.0])
def test_a_server_is_waited_for_until_it_ends(tmp_path, timeout):
    """`trimodal demo --keep` waits for ever."""
    child = Child(tmp_path / "log")
    until = f"while [ ! -e {tmp_path / 'over'} ]; do sleep 0.05; done; exit 7"
    child.start(["/bin/sh", "-c", until], {}, operator_key="")
    assert child.wait(-1.0) is None
    (tmp_path / "over").touch()
    assert child.wait(timeout) == 7
    child.kill()


def test_a_guard_that_is_killed_before_its_first_word(tmp_path, monkeypatch):
    guard = tmp_path / "guard.py"
    guard.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr("trimodal.server.launch.guard.__file__", str(guard))
    with pytest.raises(ServerError, match="tritonserver could not be started: see .*log"), pipes_closed():
        Child(tmp_path / "log")


@pytest.mark.parametrize("refused", ["subprocess.Popen", "os.pidfd_open", "Path.open"])
def test_a_guard_that_cannot_be_started_leaves_nothing(tmp_path, monkeypatch, refused):
    """Each try of `serve --restart` kept two descriptors where the system let it have no process."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    refusal = Mock(side_effect=BlockingIOError(11, "Resource temporarily unavailable"))
    monkeypatch.setattr(f"trimodal.server.launch.{refused}", refusal)
    with pytest.raises(BlockingIOError), pipes_closed():
        Child(tmp_path / "log")
    refusal.assert_called_once()
    assert not list(temporary.iterdir())


def test_a_guard_that_is_killed_before_the_start_leaves_no_folder(tmp_path):
    child = Child(tmp_path / "log")
    assert child.run_directory.is_dir()
    os.kill(child.guard.pid, signal.SIGKILL)
    with pytest.raises(ServerError, match="could not be started"):
        child.start(["/bin/true"], {}, operator_key="")
    assert not child.run_directory.exists()
    child.kill()


def test_a_temporary_folder_in_one_of_any_name(tmp_path, monkeypatch):
    odd = tmp_path / "new\nline of mödel"
    odd.mkdir()
    monkeypatch.setenv("TMPDIR", str(odd))
    child = Child(tmp_path / "log")
    assert child.run_directory.parent == odd
    child.kill()
    assert not list(odd.iterdir())


def test_a_killed_guard_s_group_is_killed_once(tmp_path, monkeypatch):
    """Supervisors ask an ended server again after their pause, when its number may be another's."""
    child = Child(tmp_path / "log")
    child.start(["/bin/sh", "-c", "sleep 60 & wait"], {}, operator_key="")
    os.kill(child.guard.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    killed = []
    monkeypatch.setattr(os, "killpg", lambda *asked: killed.append(asked))
    monkeypatch.setattr("trimodal.server.launch.guard.clean", killed.append)
    assert child.wait(0.0) == -signal.SIGKILL
    child.kill()
    assert not killed


def test_a_group_of_another_session_is_not_killed(tmp_path, monkeypatch):
    child, killed = Child(tmp_path / "log"), []
    monkeypatch.setattr(os, "killpg", lambda *asked: killed.append(asked))
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as another:
        try:
            child.pid = another.pid
            child.guard.kill()
            assert child.wait(60) == -signal.SIGKILL
            child.kill()
            assert not killed
        finally:
            another.kill()


@pytest.mark.parametrize("name", ["/dev/null", "/dev/full", "pipe"])
def test_a_log_that_is_no_file_is_refused(tmp_path, monkeypatch, name):
    """Nothing could be read from it: a start was waited for until --ready-timeout."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ServerError, match=f"--log .*{name} is no regular file.*--verbose"):
        open_log(Path(name))
    os.close(reader)


def test_a_log_on_a_full_disk(tmp_path, monkeypatch):
    """A server whose log stayed empty was waited for until --ready-timeout, 300 s."""
    full = SimpleNamespace(f_bavail=1, f_bfree=1, f_blocks=1 << 20, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda handle: full)
    with pytest.raises(ServerError, match="the disk of .*log is full.*free some, set TRIMODAL_CACHE"):
        open_log(tmp_path / "log")


def test_the_log_of_a_server_that_runs_is_kept(tmp_path, monkeypatch):
    """Twenty later starts took it away, and what the server said from then on with it."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path))
    (tmp_path / "logs").mkdir()
    old = [tmp_path / "logs" / f"server-2026010{day}-x.log" for day in range(1, 4)]
    for log in old:
        log.touch()
    monkeypatch.setattr("trimodal.server.process._LOGS_KEPT", 1)
    child = Child(old[0])
    child.start(["/bin/sleep", "60"], {}, operator_key="")
    open_log(None)
    assert [log.exists() for log in old] == [True, False, True]
    child.kill()
    open_log(None)
    assert [log.exists() for log in old] == [False, False, False]
