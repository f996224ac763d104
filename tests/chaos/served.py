"""Starts `trimodal serve --gateway --restart` on fake engines as a user would, and finds its processes."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.doubles.processes import running
from tests.e2e import fakes
from trimodal.server import ports
from trimodal.server.supervision.stubs import children, model_of

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("embedding", "llm", "vision", "speech", "speech_recognize", "assistant")
START_S = 90.0
# A stream lasts 0.8 s: at any moment some are under way.
LLM = {**fakes.LLM, "fake_step_ms": "15", "fake_prefill_us": "0", "max_num_seqs": "16"}
_GAUGES = re.compile(
    r"^(trimodal_\w+_(?:active|queued)_requests|trimodal_speech_active_streams|trimodal_llm_kv_usage_ratio)"
    r"\{.*\} (\S+)$",
    re.MULTILINE,
)
_LAST_WORDS = re.compile(r"ended by itself|terminate called|what\(\)|Signal \(\d+\)")


class Gone(Exception):
    """The server ended by itself; the sentence that it said."""


class Served:
    """One server with a folder of its own for cache and log; `stop` or `kill` ends it.

    Args:
        changes: model → parameter → text, beside the fake engines.
        arguments: more of `trimodal serve`.
        prefix: a command that runs the rest of its arguments, such as one that mounts something first.
        real: the starter set's engines in place of the fakes.

    Raises:
        Gone: it did not start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        changes: Mapping[str, Mapping[str, str]] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        models: Sequence[str] = PARTS,
        real: bool = False,
        wait: bool = True,
        restart: bool = True,
    ) -> None:
        self.directory = directory
        self.disk = directory / "disk"  # holds cache and log
        self.disk.mkdir(parents=True, exist_ok=True)
        flags = ("--http-port", "--grpc-port", "--metrics-port", "--health-port", "--gateway-port")
        chosen = ports.choose("127.0.0.1", dict.fromkeys(flags, 0))
        self.http_port, self.grpc_port, self.metrics_port, self.health_port, self.gateway_port = (
            chosen.values()
        )
        settings: fakes.Changes = {}
        if not real:
            place = Path(tempfile.mkdtemp(dir=directory))
            settings = {**fakes.changes(place), "llm": LLM, "assistant": {}}
        for model, parameters in (changes or {}).items():
            settings[model] = {**settings.get(model, {}), **parameters}
        command = [
            *(sys.executable, "-m", "trimodal.cli.app", "serve", "--gateway"),
            *(["--restart"] if restart else []),
            *("--drain-timeout", "10"),
            *("--log", str(self.disk / "log")),
        ]
        for flag, port in chosen.items():
            command += [flag, str(port)]
        for model in models:
            command += ["--model", model]
        for model in settings.keys() & set(models):
            for name, value in settings[model].items():
                command += ["--set", f"{model}.{name}={value}"]
        self.temporary = directory / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._file = directory / f"out-{len(list(directory.glob('out-*')))}"
        self._out = self._file.open("w")
        self.process = subprocess.Popen(
            [*prefix, *command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={
                **os.environ,
                "COLUMNS": "200",
                "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                "TMPDIR": str(self.temporary),
                "TRIMODAL_CACHE": str(self.disk / "cache"),
                **(environment or {}),
            },
        )
        if wait:
            self.wait_ready()

    @property
    def url(self) -> str:
        """For the Python client."""
        return f"127.0.0.1:{self.grpc_port}:{self.health_port}"

    @property
    def gateway(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    def seen(self, path: Path) -> Path:
        """A path as the server sees it, which may have mounts of its own."""
        return Path(f"/proc/{self.process.pid}/root{path}")

    @property
    def output(self) -> str:
        return self._file.read_text()

    def wait_ready(self) -> None:
        """Raises: Gone."""
        deadline = time.monotonic() + START_S
        while "Ready. Press" not in self.output:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Gone(self.output.strip())
            time.sleep(0.02)

    def folders(self) -> list[str]:
        """The names of the temporary folders that servers made here, and so of their shared memory."""
        return [path.name for path in self.temporary.glob("trimodal-server-*")]

    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def restarts(self) -> int:
        """How often tritonserver ended by itself and was started again."""
        return self.output.count("starting it again")

    def came_back(self, restarts: int) -> str:
        """Waits for a tritonserver that ended by itself since there were so many restarts.

        Returns: what its log and `serve` say of the end; empty: it did not end.

        Raises:
            Gone: it does not serve again within `START_S`.
        """
        with contextlib.suppress(OSError):
            self.gauges()
            if self.restarts == restarts:
                return ""
        deadline = time.monotonic() + START_S
        while self.restarts == restarts or self.output.count("Ready again") < self.restarts:
            if not self.alive() or time.monotonic() > deadline:
                raise Gone(self.output.strip())
            time.sleep(0.05)
        lines = self.output.splitlines() + (self.disk / "log").read_text(errors="replace").splitlines()
        return "; ".join(filter(_LAST_WORDS.search, lines))

    def pid(self, part: str) -> int:
        """Of `launcher`, `guard`, `tritonserver`, `engine` (of llm), or a model's process.

        Raises:
            ProcessLookupError: there is none at present.
        """
        launcher = self.process.pid
        if part == "launcher":
            return launcher
        guard = _first(pid for pid in children(launcher) if "process_guard.py" in _line(pid))
        if part == "guard":
            return guard
        triton = _first(pid for pid in children(guard) if "/bin/tritonserver" in _line(pid))
        if part == "tritonserver":
            return triton
        stub = _first(pid for pid in children(triton) if model_of(pid) == part.replace("engine", "llm"))
        return _first(children(stub)) if part == "engine" else stub

    def pids(self) -> set[int]:
        """All processes of the server that run."""
        found, new = set(), {self.process.pid} if self.alive() else set()
        while new:
            found |= new
            new = {child for pid in new for child in children(pid)} - found
        return found

    def gauges(self) -> dict[str, float]:
        """What is under way, by the metrics page: requests, streams of speech, the share of KV blocks."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as page:
            found: dict[str, float] = {}
            for name, value in _GAUGES.findall(page.read().decode()):
                found[name] = found.get(name, 0.0) + float(value)
            return found

    def idle(self, bound: float = 10.0) -> dict[str, float]:
        """The gauges that are not at zero after `bound` seconds; none: nothing is under way."""
        deadline = time.monotonic() + bound
        while (busy := {k: v for k, v in self.gauges().items() if v}) and time.monotonic() < deadline:
            time.sleep(0.05)
        return busy

    def stop(self, bound: float = 40.0) -> float:
        """SIGTERM; the seconds until the last of its processes is gone."""
        began, pids = time.monotonic(), self.pids()
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(bound)
        while any(map(running, pids)) and time.monotonic() - began < bound:
            time.sleep(0.02)
        took = time.monotonic() - began
        self.kill()
        return took

    def kill(self) -> None:
        """Ends what still runs of it; its guard cleans up, unless that stands still."""
        pids, deadline = self.pids(), time.monotonic() + 5.0
        if self.alive():
            self.process.kill()
        self.process.wait()
        while any(map(running, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in filter(running, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._out.close()


def limit(pid: int, kind: int, soft: int | None) -> int:
    """Sets a soft limit of a running process (None: as high as it may be); what it was."""
    was, hard = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (hard if soft is None else soft, hard))
    return was


def _first(found: Iterator[int]) -> int:
    for pid in found:
        return pid
    raise ProcessLookupError("no such process at present")


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
