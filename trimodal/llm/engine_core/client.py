"""Starts an engine's process, sends it commands and receives its steps."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import socket
import threading
import time

from trimodal.errors import OperatorError
from trimodal.llm.engine_core.messages import Cancel, Close, Connection, Failed, Stepped
from trimodal.llm.engine_core.process import EngineProcess
from trimodal.llm.engines.protocol import EngineCall, EngineInfo, EngineRequest
from trimodal.llm.settings import LlmSettings

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10.0
_OPEN_SECONDS = 1800.0  # the largest checkpoint from the slowest disk; a GPU that hangs would take for ever
_GLANCE_SECONDS = 1.0
_CALL_SECONDS = 600.0  # an adapter from a slow disk, weights that come back: no step tells of them


class EngineCoreClient:
    """Sends commands to a running engine and receives its steps, without ever waiting for it to read.

    Args:
        process: None where a test runs it in a thread.
        stall_s: an engine that has work and tells nothing for so many seconds is given up; 0: never.
    """

    def __init__(
        self, connection: Connection, process: EngineProcess | None = None, stall_s: float = 0.0
    ) -> None:
        self._connection = connection
        self._process = process
        self._stall_s = stall_s
        # Commands put, and what the last step told: of them taken, and whether there is work.
        self._given, self._taken, self._working = 0, 0, False
        self._moved = time.monotonic()  # when the last step came, or work to an idle engine
        self._calls: set[int] = set()  # of operators, that have not ended
        self._commands: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._abandoned = False
        self._receiving = threading.Lock()  # held while the connection is read
        self.info = self._await_opened()
        self._writer = threading.Thread(target=self._write, name="llm-engine-writer", daemon=True)
        self._writer.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def add(self, request: EngineRequest) -> None:
        """Hands a sequence over; never waits, not even for an engine that reads nothing during a step."""
        self._give(request)

    def call(self, call: EngineCall) -> None:
        """Has the engine do what an operator wants; never waits."""
        self._calls.add(call.id)
        self._give(call)

    def cancel(self, id: int) -> None:
        """Drops a sequence; never waits."""
        self._give(Cancel(id))

    def receive(self) -> Stepped | None:
        """Waits for the next step; None when the engine is gone. Called by one thread."""
        if self._abandoned:
            return None
        try:
            with self._receiving:
                message = self._receive()
            if message is None:
                return None
            assert isinstance(message, Stepped)
            self._taken, self._working, self._moved = message.taken, message.working, time.monotonic()
            self._calls.difference_update(output.id for output in message.outputs)
        except Exception:
            # Without its steps no request would ever end: an engine that cannot be read is a lost one.
            logger.exception("the engine's message cannot be read")
            self.abandon()
            return None
        return message

    def abandon(self) -> None:
        """Gives the engine up: its process is killed, `receive` returns None from now on."""
        self._abandoned = True
        if self._process:
            self._process.kill()

    def close(self) -> None:
        """Ends the engine and waits for it, by force when it does not end by itself."""
        self._commands.put(Close())
        self._commands.put(None)
        self._reap()
        self._writer.join(_CLOSE_SECONDS)
        if self._receiving.acquire(timeout=_CLOSE_SECONDS):
            self._connection.close()
            self._receiving.release()

    def _give(self, command: EngineRequest | EngineCall | Cancel) -> None:
        if not self._busy:
            self._moved = time.monotonic()
        self._given += 1
        self._commands.put(command)

    @property
    def _busy(self) -> bool:
        return self._working or self._taken < self._given

    def _stalls(self) -> bool:
        return bool(self._stall_s) and self._busy and time.monotonic() - self._moved > self._patience

    @property
    def _patience(self) -> float:
        return max(self._stall_s, _CALL_SECONDS if self._calls else 0.0)

    def _write(self) -> None:
        # The owner holds its lock while it adds. Were the pipe written there, a full one would stop
        # every request until the step ends, and for good if the engine waits for our reader by then.
        while command := self._commands.get():
            try:
                self._connection.send(command)
            except OSError:
                return  # `receive` notices a dead engine

    def _reap(self) -> int:
        """Waits for the process to end, by force when it does not; its exit status."""
        return self._process.end(_CLOSE_SECONDS) if self._process else 0

    def _await_opened(self) -> EngineInfo:
        message = self._receive(time.monotonic() + _OPEN_SECONDS)
        if message is None:
            # What it wrote to stderr before is in the same log: an ImportError, or the library's own words.
            raise OperatorError(
                f"the engine's process ended with status {self._reap()} while it opened: "
                "the lines above this one in Triton's log say why"
            )
        if isinstance(message, Failed):
            raise OperatorError(message.error)
        assert isinstance(message, EngineInfo)
        return message

    def _receive(self, until: float = math.inf) -> object | None:
        """The next message; None when the engine is gone, or given up: nothing came `until` then."""
        try:
            while not self._connection.poll(_GLANCE_SECONDS):
                if time.monotonic() > until:
                    logger.error("the engine did not open within %g s: it is ended", _OPEN_SECONDS)
                    self.abandon()
                    return None
                # A child of a dead engine may hold the connection open: its end alone says too little.
                if self._process and self._process.exited() and not self._connection.poll():
                    return None
                if self._stalls():
                    logger.error("the engine made no step for %g s: it is ended", self._patience)
                    self.abandon()
                    return None
            message: object = self._connection.recv()
        except (EOFError, OSError):
            return None
        return message


def start_process(settings: LlmSettings) -> EngineCoreClient:
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
        with contextlib.suppress(OSError):  # it ended already: the client says so when it opens
            connection.send(settings)
        return EngineCoreClient(connection, process, settings.stall_timeout_s)
    except BaseException:
        connection.close()
        process.kill()
        process.end(_CLOSE_SECONDS)
        raise
