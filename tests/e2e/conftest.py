"""Real servers for end-to-end tests: on loopback and free ports, ended by their own processes only.

    def test_x(serve):
        server = serve(models=("llm",), changes={"llm": {"engine": "fake"}})
        client = tritonclient.grpc.InferenceServerClient(server.grpc_url)

`serve` starts one server per distinct set of arguments and ends it with the module that asked; `fakes` is one
for all modules, every model on its fake engine. `own_server` starts one for a single test, `command` runs
`trimodal serve` as a user would, `no_leftovers` fails a test that leaves a process, a shared-memory region or
a temporary folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.doubles.waiting import wait_until as wait_until
from tests.e2e import fakes as all_fakes
from trimodal.server import ports
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer

TEST_REPOSITORY = Path(__file__).parent / "repository"
MODEL_REPOSITORY = Path(__file__).parents[2] / "model_repository"
BOUND = 60.0  # seconds: no wait in these tests is longer

# Every process that a test starts inherits this mark; the test process itself started without it.
MARK = f"TRIMODAL_TEST_RUN={uuid.uuid4().hex}"

Changes = Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    """Marks all child processes and keeps their logs out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="trimodal-test-") as cache:
        patch.setenv(*MARK.split("=", 1))
        patch.setenv("TRIMODAL_CACHE", cache)
        yield


def options(
    models: tuple[str, ...], changes: Changes, repository: Path | None = None, **more: object
) -> ServerOptions:
    """Free ports and bounded waits. Without a repository: the tests' own, if it has the models, else ours."""
    if repository is None:
        here = all((TEST_REPOSITORY / name).is_dir() for name in models)
        repository = TEST_REPOSITORY if here else MODEL_REPOSITORY
    base: dict[str, object] = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "health_port": 0}
    base |= {"ready_timeout": BOUND, "drain_timeout": 10.0} | more
    return ServerOptions(repository=repository, models=models, changes=changes, **base)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def serve(_environment: None) -> Iterator[Callable[..., TritonServer]]:
    """`serve(models=("echo",), changes={}, repository=None, **ServerOptions)`: a server of this module."""
    servers: dict[str, TritonServer] = {}
    with contextlib.ExitStack() as stack:

        def start(
            models: tuple[str, ...],
            changes: Changes | None = None,
            repository: Path | None = None,
            **more: object,
        ) -> TritonServer:
            wanted = options(models, changes or {}, repository, **more)
            key = repr(wanted)
            if key not in servers or not servers[key].alive:
                servers[key] = TritonServer(wanted)
                stack.callback(servers[key].stop, 0)
                servers[key].start()
            return servers[key]

        yield start


@pytest.fixture(scope="session")
def fakes(_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Every model on its fake engine (tests/e2e/fakes.py). A test leaves it idle, as it found it."""
    changes = all_fakes.changes(tmp_path_factory.mktemp("fakes"))
    server = TritonServer(options(all_fakes.MODELS, changes))
    try:
        server.start()
        yield server
    finally:
        server.stop(0)


@pytest.fixture
def own_server(_environment: None) -> Iterator[Callable[..., TritonServer]]:
    """Like `serve`, for one test that stops or harms its server."""
    with contextlib.ExitStack() as stack:

        def start(models: tuple[str, ...], changes: Changes | None = None, **more: object) -> TritonServer:
            server = TritonServer(options(models, changes or {}, **more))
            stack.callback(server.stop, 0)
            server.start()
            return server

        yield start


@pytest.fixture(scope="session")
def minilm() -> Path:
    """MiniLM's artefact for tests that need real vectors, as `./scripts/test` builds it."""
    return built("embedding", "onnx-fp32")


def built(model: str, name: str) -> Path:
    """An engine of the starter set. Fails with the command that builds it where it is missing."""
    folder = MODEL_REPOSITORY / model / "1" / name
    if not (folder / "manifest.json").is_file():
        pytest.fail(f"no {folder}: build it with `trimodal build all --recipe starter`")
    return folder


class Command:
    """One `trimodal serve …` with its output; its ports are free ones."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        flags = ("--http-port", "--grpc-port", "--metrics-port", "--health-port")
        chosen = ports.choose("127.0.0.1", dict.fromkeys(flags, 0))
        self.http_port, self.grpc_port, self.metrics_port, self.health_port = chosen.values()
        given = [part for flag, port in chosen.items() if flag not in arguments for part in (flag, str(port))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trimodal.cli.app", "serve", *given, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200", **(environment or {})},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, text: str, bound: float = BOUND) -> None:
        """Until the output holds `text`."""
        what = f"{text!r} in the output"
        wait_until(lambda: text in self.output or self.process.poll() is not None, what, bound)
        self._reader.join(0.2 if self.process.poll() is None else BOUND)
        assert text in self.output, self.output

    def finish(self) -> int:
        """The exit code."""
        code = self.process.wait(BOUND)
        self._reader.join(BOUND)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.finish()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def command(_environment: None) -> Iterator[Callable[..., Command]]:
    """`command("--model", "echo", …)` runs `trimodal serve` on the tests' repository and free ports."""
    with contextlib.ExitStack() as stack:

        def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Command:
            repository = (
                () if "--model-repository" in arguments else ("--model-repository", str(TEST_REPOSITORY))
            )
            started = Command(*repository, *arguments, environment=environment)
            stack.callback(started.close)
            return started

        yield run


def run_python(*command: object) -> subprocess.CompletedProcess[str]:
    """A program of this project, or `-m` and a module, to its end."""
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, check=False, timeout=60, encoding="utf-8"
    )


def processes() -> Iterator[tuple[int, str, bool]]:
    """pid, command line, and whether this test session started it, of every running process."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield int(directory.name), line, MARK.encode() in (directory / "environ").read_bytes()


def unsupervised(server: TritonServer) -> TritonServer:
    """The server, of which no model is loaded again when its process dies: as where that fails."""
    assert server._supervisor
    server._supervisor.drain()
    return server


def own_processes(pattern: str = "") -> dict[int, str]:
    """pid → command line of the running processes that this test session started."""
    return {pid: line for pid, line, own in processes() if own and re.search(pattern, line)}


def leftovers() -> set[str]:
    """Processes of this session, and regions and folders of servers that no process of another one uses."""
    running = list(processes())
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    paths = {path for place in places for path in place.glob("trimodal-server-*")}
    others = [line for _, line, own in running if not own]
    return {str(pid) for pid, _, own in running if own} | {
        str(path) for path in paths if not any("-".join(path.name.split("-")[:3]) in line for line in others)
    }


@pytest.fixture
def no_leftovers() -> Iterator[None]:
    """Nothing that the test started may be there 10 s after it. Name it before `command` and `own_server`."""
    before = leftovers()
    yield
    wait_until(lambda: not leftovers() - before, f"the end of {leftovers() - before}", 10.0)
