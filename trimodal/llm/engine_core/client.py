"""The service's end of an engine: starts its process, sends commands, and hands its steps to a callback.

A second way to start it, in a thread of this process, is for tests and for engines
that release the global lock. It does not restart anything: its owner decides that.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe

from trimodal.errors import OperatorError
from trimodal.llm.engine_core.core import run_engine
from trimodal.llm.engine_core.messages import Add, Cancel, Close, Failed, Opened, Stepped
from trimodal.llm.engine_core.process import EngineProcess
from trimodal.llm.engines.protocol import Engine, EngineInfo, EngineLost, EngineRequest
from trimodal.llm.settings import LlmSettings

_CLOSE_SECONDS = 10.0
_GLANCE_SECONDS = 1.0


class EngineLink:
    """A running engine loop at the other end of a connection."""

    def __init__(self, connection: Connection, process: EngineProcess | None = None) -> None:
        self._connection = connection
        self._process = process
        self._commands: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._closing = False
        self._reader: threading.Thread | None = None
        self.info = self._await_opened()
        self._writer = threading.Thread(target=self._write, name="llm-engine-writer", daemon=True)
        self._writer.start()

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
        """Hands a sequence over; never waits, not even for an engine that reads nothing during a step."""
        self._commands.put(Add(request))

    def cancel(self, id: int) -> None:
        """Drops a sequence; never waits."""
        self._commands.put(Cancel(id))

    def close(self) -> None:
        """Ends the engine and waits for it, by force when it does not end by itself."""
        self._closing = True
        self._end_commands()
        self._reap()
        for thread in (self._reader, self._writer):
            if thread and thread is not threading.current_thread():
                thread.join(_CLOSE_SECONDS)
        self._connection.close()

    def _end_commands(self) -> None:
        self._commands.put(Close())
        self._commands.put(None)

    def _write(self) -> None:
        # The owner holds its lock while it adds. Were the pipe written there, a full one would stop
        # every request until the step ends, and for good if the engine waits for our reader by then.
        while command := self._commands.get():
            try:
                self._connection.send(command)
            except OSError:
                return  # a dead engine is noticed by the reader, whose owner fails the requests

    def _reap(self) -> int:
        """Waits for the process to end, by force when it does not; its exit status."""
        return self._process.end(_CLOSE_SECONDS) if self._process else 0

    def _await_opened(self) -> EngineInfo:
        message = self._receive()
        if message is None:
            raise OperatorError(f"the engine's process ended with status {self._reap()} while it opened")
        if isinstance(message, Failed):
            raise OperatorError(message.error)
        assert isinstance(message, Opened)
        return message.info

    def _read(self, on_step: Callable[[Stepped], None], on_death: Callable[[], None]) -> None:
        try:
            while (message := self._receive()) is not None:
                assert isinstance(message, Stepped)
                on_step(message)
        except Exception:
            # Without a reader no request would ever end: an engine that cannot be followed is a lost one.
            traceback.print_exc(file=sys.stderr)
            if self._process:
                self._process.kill()
        self._end_commands()
        if not self._closing:
            self._reap()
            on_death()

    def _receive(self) -> object | None:
        """The next message; None when the engine is gone."""
        try:
            while not self._connection.poll(_GLANCE_SECONDS):
                # A child of a dead engine may hold the connection open: its end alone says too little.
                if self._process and self._process.exited() and not self._connection.poll():
                    return None
            message: object = self._connection.recv()
        except (EOFError, OSError):
            return None
        return message


def start_process(settings: LlmSettings) -> EngineLink:
    """An engine in its own process; it ends when this process is gone, at the latest after a step.

    Raises:
        OperatorError: it could not be opened; the engine's own sentence.
    """
    ours, theirs = socket.socketpair()
    connection = Connection(ours.detach())
    try:
        with theirs:
            process = EngineProcess(settings, theirs.fileno())
    except BaseException:
        connection.close()
        raise
    try:
        with contextlib.suppress(OSError):  # it ended already: the link says so when it opens
            connection.send(settings)
        return EngineLink(connection, process)
    except BaseException:
        connection.close()
        process.kill()
        process.end(_CLOSE_SECONDS)
        raise


def start_thread(engine: Engine) -> EngineLink:
    """An engine on a thread of this process."""
    ours, theirs = Pipe()
    threading.Thread(target=_run_and_close, args=(engine, theirs), name="llm-engine", daemon=True).start()
    return EngineLink(ours)


def _run_and_close(engine: Engine, connection: Connection) -> None:
    with connection:
        try:
            run_engine(engine, connection)
        except EngineLost as error:
            print(f"trimodal: the engine is lost: {error}", file=sys.stderr, flush=True)
