"""Builds tritonserver's command line and starts it under its guard."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from trimodal.errors import ServerError
from trimodal.host import host_cpus
from trimodal.server import process_guard as guard
from trimodal.server.installation import Triton
from trimodal.server.options import ServerOptions, parse_otlp
from trimodal.server.ports import bracketed

PREFIX = "trimodal-server-"  # of the name of a server's temporary directory
OPERATOR_HEADER = "trimodal-operator-key"
GRPC_OPERATOR_HEADER = f"triton-grpc-protocol-{OPERATOR_HEADER}"  # its name over gRPC
# What only the operator may use. Statistics stay open: clients and benches read them.
RESTRICTED = "model-repository,shared-memory,trace,logging"
SPANS_MS = 500  # how long finished spans are collected before they are sent
MOST_GPUS = 16  # of one machine; Triton (2.51 to 2.71) takes a pool's size for a GPU that is not there
# Models that load at a time, by the cores. Triton's own 4 take turns on two of them, and all are there later.
FEWEST_LOADS, MOST_LOADS = 2, 4
RESPONSE_POOL, RESPONSE_POOL_SINCE = 64, (2, 56)
MOST_POLL_MS = 2**31 - 1  # poll(2) takes an int


def command_line(
    triton: Triton,
    options: ServerOptions,
    *,
    repository: Path,
    backends: Path,
    models: Iterable[str],
    ports: Mapping[str, int],
    shm_prefix: str,
    trace_file: Path,
) -> list[str]:
    """The whole command but the operator key, for which guard.HIDDEN stands."""
    restriction = f"{RESTRICTED}:{OPERATOR_HEADER}={guard.HIDDEN}"
    command = [
        str(triton.binary),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        f"--cache-directory={triton.root / 'caches'}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        # libevhtp and gRPC each have a notation of their own for IPv6.
        f"--http-address={'ipv6:' if ':' in options.host else ''}{options.host}",
        f"--grpc-address={bracketed(options.host)}",
        f"--metrics-address={'ipv6:' if ':' in options.host else ''}{options.host}",
        *(f"{flag}={port}" for flag, port in ports.items()),
        f"--http-restricted-api={restriction}",
        f"--grpc-restricted-protocol={restriction}",
        "--strict-readiness=true",
        f"--model-load-thread-count={min(max(host_cpus(), FEWEST_LOADS), MOST_LOADS)}",
        "--exit-on-error=true",
        # Files say all that a model is: what a backend would fill in by itself could differ between machines.
        "--disable-auto-complete-config",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        # By default three pings within five minutes end a client's connection: many send one a second.
        "--grpc-http2-max-ping-strikes=0",
        f"--exit-timeout-secs={max(1, math.ceil(options.drain_timeout))}",
        f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
    ]
    if options.otlp:
        command += [
            "--trace-config=mode=opentelemetry",
            # Of one request in so many, and of each with a traceparent.
            f"--trace-config=rate={options.otlp_every}",
            "--trace-config=level=TIMESTAMPS",
            "--trace-config=count=-1",
            f"--trace-config=opentelemetry,url={parse_otlp(options.otlp)}",
            "--trace-config=opentelemetry,resource=service.name=trimodal",
            f"--trace-config=opentelemetry,bsp_schedule_delay={SPANS_MS}",
        ]
    else:
        # No request is traced until the trace API says so; it can set everything but the file's name.
        command.append(f"--trace-config=triton,file={trace_file}")
    if options.profile != "tensorrt":
        # config.pbtxt is profile tensorrt. In the others Triton itself uses no GPU (in `cuda` the engines
        # open it), so it gets no pool there and no access from one to another: by default it opens each GPU
        # for both, which takes 0.5 GiB of it.
        command += [
            f"--model-config-name={options.profile}",
            "--pinned-memory-pool-byte-size=0",
            *(f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(MOST_GPUS)),
            "--enable-peer-access=false",
            "--allow-gpu-metrics=false",
        ]
    if triton.release >= RESPONSE_POOL_SINCE:
        # Slots of answers that a slow client left unread: by default all that there ever were are kept.
        command.append(f"--grpc-max-response-pool-size={RESPONSE_POOL}")
    return command


class Child:
    """A tritonserver under its guard, which is its parent.

    The guard runs first: `run_directory` is the server's, for files that its command line names. Whatever
    happens to this process from then on, nothing of the server is left.

    Raises:
        ServerError: the guard ends at once; `log`, which has all output, says why.
        OSError: it cannot be started.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self.pid = 0  # of tritonserver, which is also its process group; 0 before `start`
        self.shm_prefix = ""  # until the guard has told the run directory
        with contextlib.ExitStack() as opened:
            read, write = os.pipe()
            self._report = opened.enter_context(os.fdopen(read, encoding="utf-8"))
            try:
                self.guard = opened.enter_context(_start_guard(log, write))
            finally:
                os.close(write)
            self._end = os.pidfd_open(self.guard.pid)  # tells of the guard's end; -1 once it is known
            opened.pop_all()
        self.run_directory = Path(json.loads(self._read_report()))
        self.shm_prefix = guard.shm_prefix(self.run_directory)

    def start(self, command: list[str], environment: Mapping[str, str], *, operator_key: str) -> None:
        """Executes `command`. Raises: ServerError when the guard ends before it has.

        `operator_key` takes the place of guard.HIDDEN in the arguments, unseen by `ps`.
        """
        told = {"command": command, "environment": dict(environment), "secret": operator_key}
        assert self.guard.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended: its report is empty
            self.guard.stdin.write(json.dumps(told).encode() + b"\n")
            self.guard.stdin.flush()
        self.pid = int(self._read_report())
        self._report.close()

    def _read_report(self) -> str:
        if line := self._report.readline():
            return line.rstrip("\n")
        self._report.close()
        self.guard.communicate()
        self.wait(0.0)
        raise ServerError(f"tritonserver could not be started: see {self._log}")

    def terminate(self) -> None:
        """Triton's own orderly end (SIGTERM)."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float) -> int | None:
        """The exit status once server and guard are gone; None after `timeout` seconds, or never (inf)."""
        if self._end >= 0:
            ends = select.poll()  # `Popen.wait` looks twenty times a second
            ends.register(self._end, select.POLLIN)
            poll_ms = None if timeout == math.inf else min(max(0.0, timeout) * 1000, MOST_POLL_MS)
            if not ends.poll(poll_ms):
                return None
            os.close(self._end)
            self._end = -1
            if self.guard.wait() < 0:  # the guard itself was killed: do its work
                self._kill_group()
                if self.shm_prefix:
                    guard.clean(self.run_directory)
        return self.guard.wait()

    def kill(self) -> None:
        """Ends the group at once and cleans up after it."""
        if self.guard.poll() is None:
            self._kill_group()
        if self.guard.stdin:
            self.guard.stdin.close()  # the guard's sign that its owner is gone
        self._report.close()
        if self.wait(10.0) is None:
            self.guard.kill()
            self.wait(10.0)

    def _kill_group(self) -> None:
        """Kills what is left of the server's group, whose number may be another's once all of it is gone."""
        if self.pid and _is_group_of(self.pid, session=self.guard.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def _start_guard(log: Path, report: int) -> subprocess.Popen[bytes]:
    """Starts one that tells what it does by the descriptor `report`. Raises: OSError."""
    with log.open("ab") as output:
        _keep(output)
        return subprocess.Popen(
            # Isolated and without site-packages: it starts in a few milliseconds.
            [sys.executable, "-I", "-S", guard.__file__, str(report), PREFIX],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[report],
            start_new_session=True,
        )


def _keep(log: BinaryIO) -> None:
    """Locks the log for as long as one of the server's processes has it: `open_log` removes no such one."""
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _is_group_of(group: int, *, session: int) -> bool:
    """Whether a process of this group is there, and of this session."""
    for process in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            after_name = process.read_text(errors="replace").rpartition(")")[2].split()
            if after_name[2:4] == [str(group), str(session)]:
                return True
    return False
