"""Starts, watches and stops one tritonserver, as a context manager.

with TritonServer(ServerOptions(models=("llm",), http_port=0, grpc_port=0, metrics_port=0)) as server:
    client = InferenceServerClient(server.grpc_url)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from trimodal.errors import ServerError
from trimodal.host import free_room
from trimodal.paths import (
    ADDRESS_VARIABLE,
    OPERATOR_VARIABLE,
    PROFILE_VARIABLE,
    STOP_VARIABLE,
    cache_directory,
)
from trimodal.repository import Model, callers, loaded_last, select_models
from trimodal.server import launch, ports, preflight
from trimodal.server.admin import Api, LoadsInTurn, await_unloaded, drain
from trimodal.server.artefacts import FileCheck
from trimodal.server.installation import Triton, assemble, find_triton
from trimodal.server.options import PORTS, ServerOptions
from trimodal.server.overlay import ServedRepository
from trimodal.server.supervision.health_page import HealthServer
from trimodal.server.supervision.heartbeat import answers_grpc
from trimodal.server.supervision.supervisor import Supervisor
from trimodal.server.triton_log import LoadLog, LogReader

_POLL = 0.05  # seconds
# … while the endpoints open. Until the last models begin to load, Triton says that it is ready.
_SHORT_POLL = 0.002
_ATTEMPTS = 3  # a port that was picked may be taken until Triton binds it, after the models
_LOGS_KEPT = 20
_LEAST_ROOM = 256 << 10  # bytes; a start of all models writes a third of it
_STOP = "stop"  # file in the server's run directory
_FINISH_S = 1.5  # for models without requests to end, and for Triton then
_TELL_S = 1.0  # for the models to end what they still have


class Interrupted(Exception):
    """The caller's `stop` turned true while the server was starting; nothing of it is left."""


class TritonServer:
    """Started by `start` or `with`; after that the attributes say where it is and what it serves."""

    models: dict[str, Model]
    repository: Path  # as it is served: with other settings or engines a copy of links
    log_path: Path
    pid: int  # of tritonserver, which is also its process group
    http_url: str  # host:port, as the others
    grpc_url: str
    metrics_url: str  # the page is /metrics
    health_url: str  # the pages are in supervision/health_page.py
    api: Api
    began: float  # when it began to start, tritonserver was started, all was ready: by the monotonic clock
    launched: float
    ready: float

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.operator_key = options.operator_key or secrets.token_urlsafe(24)
        self.load = LoadLog()
        self.ports: dict[str, int] = {}
        self._child: launch.Child | None = None
        self._files: FileCheck | None = None
        self._aside: Future[object] | None = None
        self._supervisor: Supervisor | None = None
        self._page: HealthServer | None = None

    @property
    def url(self) -> str:
        """For clients: the gRPC endpoint, and the port of the health page that tells them of dead models."""
        return f"{self.grpc_url}:{self.ports['--health-port']}"

    @property
    def waiting(self) -> str:
        """What is still to come of a start."""
        if left := [name for name in self.models if name not in self.load.loaded]:
            return ", ".join(left)
        if self._files and self._files.is_alive():
            return "the check of its files"
        if self._aside and not self._aside.done():
            return "what is prepared beside it"
        return "its endpoints"

    def start(
        self,
        *,
        stop: Callable[[], bool] = lambda: False,
        on_lines: Callable[[list[str]], None] = lambda lines: None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """Checks, starts and waits until every model is ready; `on_lines` gets the lines of Triton's log.

        `meanwhile` is called by a thread while the models load, which takes seconds: for what the caller
        needs only then. What it raises ends the start.

        Raises, with nothing left running:
            ServerError: it cannot start; one sentence, or one line per failed model.
            Interrupted: `stop()`, polled while waiting, turned true.
        """
        self.began = time.monotonic()
        options = self.options
        triton = find_triton()
        triton.stub()
        preflight.check_numpy()
        preflight.check_limits()
        repository = options.repository.absolute()
        self.models = select_models(repository, options.models, options.profile)
        preflight.check_shared_memory(self.models.values())
        for attempt in range(1, _ATTEMPTS + 1):
            self.ports = ports.choose(options.host, options.ports)
            http, grpc, metrics, health = self.ports.values()
            host, health_host = ports.bracketed(options.host), preflight.check_health_host(options)
            self.http_url, self.grpc_url, self.metrics_url = (
                f"{host}:{port}" for port in (http, grpc, metrics)
            )
            self.health_url = f"{ports.bracketed(health_host)}:{health}"
            self.api = Api(options.host, http, metrics, self.operator_key)
            self.log_path = open_log(options.log)
            self.load = LoadLog()
            try:
                self._supervisor = Supervisor(self.api, self.grpc_url, options.hang_timeout)
                last = self._launch(triton)
                with ThreadPoolExecutor(1, "meanwhile") as aside:
                    self._aside = aside.submit(meanwhile)
                    self._wait_ready(last, stop, on_lines)
                self._supervisor.watch(self.pid, self.models)
                self.ready = time.monotonic()
                return
            except ProcessLookupError:
                reason = self._ended()
                self.kill()
                raise ServerError(f"{reason}\nlog: {self.log_path}") from None
            except BaseException:
                lost_race = self.load.port_in_use and 0 in options.ports.values()
                self.kill()
                if not lost_race or attempt == _ATTEMPTS:
                    raise

    def restart(self, *, stop: Callable[[], bool], on_lines: Callable[[list[str]], None]) -> None:
        """Starts a server that ended by itself again, on the same ports and with the same log; as `start`."""
        self.kill()
        ports: dict[str, Any] = dict(zip(PORTS, self.ports.values(), strict=True))
        self.options = replace(self.options, log=self.log_path, **ports)
        self.start(stop=stop, on_lines=on_lines)

    def _launch(self, triton: Triton) -> list[str]:
        """Starts tritonserver. Returns the models that are left to load, in order."""
        options = self.options
        assert self._supervisor
        self._reader = LogReader(self.log_path)
        child = launch.Child(self.log_path)
        self._reader.follow(child.guard.pid)
        run_directory = child.run_directory
        try:
            preflight.check_temporary(run_directory)
            served = ServedRepository(options, run_directory)
            self._page = HealthServer(
                preflight.check_health_host(options),
                self.ports["--health-port"],
                self._supervisor,
                served,
                http_port=self.ports["--http-port"],
                operator_key=self.operator_key,
            )
            self.repository = served.path
            self.models = select_models(self.repository, options.models, options.profile)
            files = preflight.check_models(triton, self.models.values())
            last = loaded_last(self.models)
            backends, environment = assemble(triton, run_directory)
            environment |= {
                ADDRESS_VARIABLE: self.grpc_url,
                PROFILE_VARIABLE: options.profile,
                STOP_VARIABLE: str(run_directory / _STOP),
                # vLLM's sockets and torch's files outlive an engine that is killed: they go with the server.
                "TMPDIR": str(run_directory),
                OPERATOR_VARIABLE: hashlib.sha256(self.operator_key.encode()).hexdigest(),
            }
            command = launch.command_line(
                triton,
                options,
                repository=self.repository,
                backends=backends,
                models=[name for name in self.models if name not in last],
                ports={flag: port for flag, port in self.ports.items() if flag != "--health-port"},
                shm_prefix=child.shm_prefix,
                trace_file=run_directory / "trace",
            )
            child.start(command, environment, operator_key=self.operator_key)
        except BaseException:
            child.kill()
            raise
        self._child = child
        self.pid = self._child.pid
        self.launched = time.monotonic()
        self._files = files
        files.start()
        return last

    def _wait_ready(
        self,
        last: list[str],
        stop: Callable[[], bool],
        on_lines: Callable[[list[str]], None],
    ) -> None:
        assert self._files
        assert self._aside
        began = time.monotonic()
        first = self.models.keys() - set(last)
        loads = LoadsInTurn(self.api, last)
        while True:
            # Asked first, so that the last lines are read below.
            ended, failure, read = not self.alive, loads.failure, not self._files.is_alive()
            late = time.monotonic() - began > self.options.ready_timeout
            if lines := self._reader.read():
                for line in lines:
                    self.load.feed(line)
                on_lines(lines)
            if read and self._files.failure:
                raise ServerError(self._files.failure)
            # A damaged file is the better reason: until all are read, or time is up, no other is given.
            given_up = self.load.given_up or (late and self.load.failures)  # of others no word comes in time
            if (read or late) and (ended or failure or given_up):
                reason = self.load.why() or failure or self._ended()
                # The user knows the repository, not the temporary copy of it.
                reason = reason.replace(str(self.repository), str(self.options.repository))
                raise ServerError(f"{reason}\nlog: {self.log_path}")
            if stop():
                raise Interrupted
            if self._aside.done():
                self._aside.result()
            if self.load.serving and not loads.ident:
                loads.start()
            loaded = loads.ident and not loads.is_alive() and not loads.failure
            prepared = read and self._aside.done()
            if loaded and prepared and self._all_ready():
                return
            if late:
                raise ServerError(
                    f"not ready after {self.options.ready_timeout:g} s (--ready-timeout gives more), "
                    f"waiting for: {self.waiting}\nlog: {self.log_path}"
                )
            opening = self.load.loaded >= first and (not loads.ident if last else prepared)
            time.sleep(_SHORT_POLL if opening else _POLL)

    def _ended(self) -> str:
        return f"tritonserver ended while starting (exit status {self.wait(_POLL)})"

    def _all_ready(self) -> bool:
        return self.api.ready() and all(map(self.api.ready, self.models)) and self.api.shows_metrics()

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.guard.poll() is None

    def answers(self) -> bool:
        """Whether tritonserver answers at all. Loads of models may hold all its HTTP threads, not gRPC's."""
        return self.api.live() or answers_grpc(self.grpc_url, self.api.timeout)

    def wait(self, timeout: float) -> int | None:
        """The exit status of a server that ended by itself; None while it runs after `timeout` seconds."""
        return self._child.wait(timeout) if self._child else 0

    def new_lines(self) -> list[str]:
        """Triton's log lines since the last look."""
        return self._reader.read()

    def stop(
        self, drain_timeout: float | None = None, *, hurry: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Drains for `drain_timeout` seconds (None: the option's) or until `hurry()`, and ends the server.

        Returns the models whose running requests were cut. A second call does nothing.
        """
        limit = self.options.drain_timeout if drain_timeout is None else drain_timeout
        self.begin_drain()
        try:
            if self._child and self.alive and limit > 0:
                return self._drain(self._child, limit, hurry)
            return []
        finally:
            self.kill()

    def begin_drain(self) -> None:
        """From now on the health page says that the server is not ready; it goes on until `stop`."""
        if self._supervisor:
            self._supervisor.drain()

    def _drain(self, child: launch.Child, limit: float, hurry: Callable[[], bool]) -> list[str]:
        cut = drain(self.api, callers(self.models), limit, stop=hurry)
        if cut and self.alive:
            # Their clients get an error before the connections end.
            with contextlib.suppress(OSError):  # it has ended meanwhile, and its folder with it
                (child.run_directory / _STOP).touch()
            drain(self.api, dict.fromkeys(cut, frozenset()), _TELL_S, stop=hurry)
        elif not hurry():
            await_unloaded(self.api, self.models, _FINISH_S)
            time.sleep(_POLL)  # the last bytes of the last response
            if self.options.otlp:  # its last spans go out with Triton's orderly end, which takes a second
                child.terminate()
                child.wait(_FINISH_S)
        return cut

    def kill(self) -> None:
        """Ends every process of the server at once and removes its temporary files."""
        self.begin_drain()  # what ends now is no loss
        if self._child:
            self._child.kill()
            self._child = None
        if self._files:
            self._files.stop()
        if self._supervisor:
            self._supervisor.close()
            self._supervisor = None
        if self._page:
            self._page.close()
            self._page = None

    def __enter__(self) -> TritonServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def open_log(named: Path | None) -> Path:
    """The file of Triton's log: as named, or a new one in the cache, of which only the latest are kept.

    For its user alone: it names clients' requests. Raises: ServerError: it cannot be made, or written.
    """
    directory = named.absolute().parent if named else cache_directory() / "logs"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if named:
            name = str(named.absolute())
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        else:
            for old in sorted(directory.glob("server-*.log"))[:-_LOGS_KEPT]:
                _remove_unused(old)
            start = datetime.now().strftime("server-%Y%m%d-%H%M%S-")
            handle, name = tempfile.mkstemp(prefix=start, suffix=".log", dir=directory)
    except OSError as error:
        raise ServerError(
            f"no log can be written to {named or directory} ({(error.strerror or str(error)).lower()}): "
            "set TRIMODAL_CACHE to a folder that can be written, or name a file with --log"
        ) from None
    try:
        _check_log(handle, name)
    finally:
        os.close(handle)
    return Path(name)


def _check_log(handle: int, name: str) -> None:
    """Raises: ServerError: what Triton tells of its models could not be read from this file."""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise ServerError(
            f"--log {name} is no regular file, from which the progress is read: leave it out; "
            "--verbose shows the log on stderr"
        )
    if free_room(handle) < _LEAST_ROOM:
        raise ServerError(
            f"the disk of {name} is full, so no log can be written: free some, "
            "set TRIMODAL_CACHE to another folder, or name a file elsewhere with --log"
        )


def _remove_unused(log: Path) -> None:
    """Removes an earlier server's log, unless that server still runs and writes to it, or it is another's."""
    with contextlib.suppress(OSError), log.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # a file system without locks
            pass
        log.unlink()
