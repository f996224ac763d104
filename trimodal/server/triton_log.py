"""Reads Triton's log: when each model was loaded, and why one was not.

Knows the default log format, in which a message is one line with its newlines escaped:
    E1121 03:31:22.905536 6285 model_lifecycle.cc:642] "failed to load 'llm' version 1: Internal: …"
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

_LINE = re.compile(r"^([A-Z])(\d{4} \d\d:\d\d:\d\d\.\d{6}) \d+ [\w.]+:\d+\] \"?(.*?)\"?$")
_LOADING = re.compile(r"^loading: (\S+):\d+$")
_LOADED = re.compile(r"^successfully loaded '([^']+)'")
_FAILED = re.compile(r"^failed to load '([^']+)' version \d+: [A-Z][\w -]*?: (.*)$")
_UNREADABLE = re.compile(r"^Poll failed for model directory '([^']+)': (.*)$")
_NO_STUB = re.compile(r"^ *Failed to preinitialize Python stub: (.*?([^/']+)/\d+/model\.py.*)$")
_DEPENDS = re.compile(r"ensemble '?([\w.-]+)'? depends on '?([\w.-]+)'? which has no loaded version")
_ERROR = re.compile(r"^error: (.*)$")
_IN_USE = re.compile(r"already in use|[Aa]ddress in use|Failed to bind|unable to bind", re.IGNORECASE)
# Sentences of Triton that say less than ours, or name what no operator can act on.
_INSTEAD = {
    re.compile(r"Stub process '[^']*' is not healthy"): (
        "its Python process died while loading (out of memory, or a crash in a library)"
    ),
    re.compile(r"Unable to initialize shared memory key.*File too large"): (
        "a file may not be as large as its shared memory: ulimit -f unlimited"
    ),
    re.compile(r"Unable to initialize shared memory key"): (
        "/dev/shm is full: enlarge it (docker run --shm-size=1g) or remove what fills it"
    ),
}
# Words of the system, of C++ and of Python that say what there is no more of, but not what can be done.
_EXHAUSTED = {
    re.compile(r"what\(\): +Resource temporarily unavailable|can't start new thread|pthread_create failed"): (
        "no more threads can be started here: raise the limit of processes (ulimit -u, "
        "docker run --pids-limit) or of addresses (ulimit -v)"
    ),
    re.compile(r"Too many open files"): (
        "no more files can be opened here: raise the limit (ulimit -n 65536, docker --ulimit nofile=65536)"
    ),
    re.compile(r"std::bad_alloc|Cannot allocate memory|^MemoryError: "): (
        "no more memory can be had here: end other programs, or serve fewer models with --model"
    ),
}
# Our own errors are sentences; others keep their class, which is part of what they say.
_OWN = re.compile(r"^(?:trimodal\.errors\.)?(?:Operator|Settings|Artefact|Server)Error: ")


def sentence(message: str) -> str:
    """A model's own words out of Triton's message: no traceback, no class name of ours, one line."""
    text = message.replace("\\n", "\n").replace('\\"', '"').replace("\\t", " ")
    text = text.split("\n\nAt:")[0]
    for pattern, told in (_INSTEAD | _EXHAUSTED).items():
        if pattern.search(text):
            return told
    return _OWN.sub("", " ".join(text.split())).rstrip(";").strip()


@dataclass
class LoadLog:
    """What the lines read so far say. Feed it lines in order."""

    started: dict[str, datetime] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    last: str = ""  # the model that was loaded last
    failures: dict[str, str] = field(default_factory=dict)
    error: str = ""  # the last words of a server that did not start
    exhausted: str = ""  # what the system has no more of
    port_in_use: bool = False
    serving: bool = False  # the HTTP endpoint is open
    given_up: bool = False  # it unloads again what did load, which takes seconds

    def feed(self, line: str) -> None:
        if match := _LINE.match(line):
            # The log has no year; only differences are used, and those within one start.
            stamp = datetime.strptime("2000" + match.group(2), "%Y%m%d %H:%M:%S.%f")
            self._event(stamp, match.group(3))
        elif match := _ERROR.match(line):
            self.error = sentence(match.group(1))
        if not self.exhausted:
            self.exhausted = next((told for words, told in _EXHAUSTED.items() if words.search(line)), "")
        if (line.startswith("error:") or line[:1] == "E") and _IN_USE.search(line):
            self.port_in_use = True

    def _event(self, stamp: datetime, text: str) -> None:
        if match := _LOADING.match(text):
            self.started[match.group(1)] = stamp
        elif match := _LOADED.match(text):
            name = match.group(1)
            self.loaded.add(name)
            self.last = name
            self.seconds[name] = (stamp - self.started.get(name, stamp)).total_seconds() % 86400
        elif match := _FAILED.match(text) or _UNREADABLE.match(text):
            self.failures[match.group(1)] = sentence(match.group(2))
        elif match := _NO_STUB.match(text):
            # Its file was removed while it loaded: Triton (2.51) waits for the stub for ever.
            self.failures[match.group(2)] = sentence(match.group(1))
            self.given_up = True
        elif match := _DEPENDS.search(text):
            self.failures.setdefault(match.group(1), f"its step {match.group(2)} did not load")
        elif text.startswith("Waiting for in-flight requests"):
            self.given_up = bool(self.failures)
        elif text.startswith("Started HTTPService"):
            self.serving = True

    def why(self) -> str:
        """One line per failed model, or the server's own last words; empty when the log says nothing."""
        if self.failures:
            return "\n".join(f"model {name}: {text}" for name, text in self.failures.items())
        return self.exhausted or self.error


class LogReader:
    """Follows what is appended to a log file: `read` returns the new complete lines.

    A file that was taken away, emptied or replaced by another (a rotation) is read from its beginning.

    What the file holds already is skipped: it belongs to an earlier server (`--log FILE` is appended to).
    """

    def __init__(self, path: Path) -> None:
        self._path = self._written = path
        self._offset = path.stat().st_size if path.exists() else 0

    def follow(self, writer: int) -> None:
        """Reads the file that is this process's output, also where it was renamed or removed meanwhile."""
        self._written = Path(f"/proc/{writer}/fd/1")

    def read(self) -> list[str]:
        try:
            with self._open() as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                block = file.read()
        except FileNotFoundError:
            self._offset = 0
            return []
        except OSError:  # no descriptor is left: read later
            return []
        complete = block[: block.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.decode(errors="replace").splitlines()

    def _open(self) -> BinaryIO:
        with suppress(OSError):  # the process has ended
            return self._written.open("rb")
        return self._path.open("rb")
