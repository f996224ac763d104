"""The service's end of an engine: starts its process, sends commands, and hands its steps to a callback.

A second way to start it, in a thread of this process, is for tests and for engines
that release the global lock. It does not restart anything: its owner decides that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe

from trimodal.errors import OperatorError
from trimodal.llm.core import Add, Cancel, Close, Failed, Opened, Stepped, run_engine
from trimodal.llm.engine import Engine, EngineInfo, EngineRequest
from trimodal.llm.settings import LlmSettings

_CLOSE_SECONDS = 10.0


class EngineLink:
    """A running engine loop at the other end of a connection."""

    def __init__(self, connection: Connection, process: subprocess.Popen[bytes] | None = None) -> None:
        self._connection = connection
        self._process = process
        self._sending = threading.Lock()
        self._closing = False
        self._reader: threading.Thread | None = None
        self.info = self._await_opened()

    @property
    def pid(self) -> int | None:
        """Process id of the engine; None when it runs in a thread."""
        return self._process.pid if self._process else None

    def start(self, on_step: Callable[[Stepped], None], on_death: Callable[[], None]) -> None:
        """Begins to read: `on_step` for every step, `on_death` once if the engine is lost.

        Both are called on one reader thread.
        """
        self._reader = threading.Thread(
            target=self._read, args=(on_step, on_death), name="llm-engine-reader", daemon=True
        )
        self._reader.start()

    def add(self, request: EngineRequest) -> None:
        self._send(Add(request))

    def cancel(self, id: int) -> None:
        self._send(Cancel(id))

    def close(self) -> None:
        """Ends the engine and waits for it, by force when it does not end by itself."""
        self._closing = True
        self._send(Close())
        if self._process:
            try:
                self._process.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_CLOSE_SECONDS)
        if self._reader and self._reader is not threading.current_thread():
            self._reader.join(_CLOSE_SECONDS)
        self._connection.close()

    def _send(self, command: object) -> None:
        # A dead engine is noticed by the reader, which fails the requests; nothing to do here.
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(command)

    def _await_opened(self) -> EngineInfo:
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            status = self._process.wait(_CLOSE_SECONDS) if self._process else 0
            raise OperatorError(f"the engine's process ended with status {status} while it opened") from None
        if isinstance(message, Failed):
            raise OperatorError(message.error)
        assert isinstance(message, Opened)
        return message.info

    def _read(self, on_step: Callable[[Stepped], None], on_death: Callable[[], None]) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                break
            on_step(message)
        if not self._closing:
            if self._process:
                self._process.wait(_CLOSE_SECONDS)
            on_death()


def start_process(settings: LlmSettings) -> EngineLink:
    """An engine in its own process; it ends when this process is gone, at the latest after a step.

    Raises:
        OperatorError: it could not be opened; the engine's own sentence.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [_python(), "-m", "trimodal.llm", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    connection = Connection(ours.detach())
    connection.send(settings)
    try:
        return EngineLink(connection, process)
    except BaseException:
        connection.close()
        process.kill()
        process.wait(_CLOSE_SECONDS)
        raise


def start_thread(engine: Engine) -> EngineLink:
    """An engine on a thread of this process."""
    ours, theirs = Pipe()
    threading.Thread(target=_run_and_close, args=(engine, theirs), name="llm-engine", daemon=True).start()
    return EngineLink(ours)


def _run_and_close(engine: Engine, connection: Connection) -> None:
    with connection:
        run_engine(engine, connection)


def _python() -> str:
    """The interpreter of this environment; inside Triton's stub sys.executable may be empty or the stub."""
    candidates = [sys.executable, os.path.join(sys.prefix, "bin", "python3"), shutil.which("python3") or ""]
    for path in candidates:
        if path and os.path.basename(path).startswith("python") and os.access(path, os.X_OK):
            return path
    raise OperatorError("no Python interpreter found to run the engine in")
