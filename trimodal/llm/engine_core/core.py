"""Runs the engine's loop: takes commands between steps, steps while there is work, sends what came out.

It runs in a process of its own (`python -m trimodal.llm.engine_core FD`), because a step of OpenVINO GenAI
holds Python's global lock from its first to its last instruction: in the model's process no request could
be read, cancelled or answered until the step ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys

from trimodal.errors import OperatorError, last_line
from trimodal.llm.engine_core.messages import Cancel, Close, Connection, Failed, Stepped
from trimodal.llm.engines.protocol import (
    Engine,
    EngineCall,
    EngineLost,
    EngineRequest,
    EngineStats,
    Output,
    open_engine,
)
from trimodal.llm.settings import LlmSettings
from trimodal.runtimes.heap import give_back_freed

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 0.5


def run_engine(engine: Engine, connection: Connection) -> None:
    """Serves `engine` over `connection` until Close, or until the other side is gone.

    Raises:
        EngineLost: the engine cannot go on.
    """
    try:
        connection.send(engine.info)
        engine.watch(connection.fileno())
        sent = EngineStats()
        taken = 0
        while True:
            refused: list[Output] = []
            changed = False
            while _commands_wait(engine, connection, idle=not (engine.has_work() or changed)):
                command = connection.recv()
                if isinstance(command, Close):
                    return
                changed = True
                taken += 1
                refused += _apply(engine, command)
            outputs = refused + (engine.step() if engine.has_work() else [])
            stats = engine.stats()
            if outputs or changed or stats != sent:  # nothing changed: do not send an empty step
                connection.send(Stepped(outputs, stats, taken, engine.has_work()))
                sent = stats
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the model's process is gone; so are its clients
    except EngineLost as error:
        logger.error("the engine is lost: %s", error)
        connection.close()  # tells the other side, whose clients wait: to close a library takes seconds
        raise
    finally:
        engine.close()


def _commands_wait(engine: Engine, connection: Connection, *, idle: bool) -> bool:
    """Whether there is a command; an engine with nothing else to do waits for one, and is checked."""
    if connection.poll(_CHECK_SECONDS if idle else 0):
        return True
    if idle:
        engine.check()
    return False


def _apply(engine: Engine, command: object) -> list[Output]:
    if isinstance(command, Cancel):
        engine.cancel(command.id)
    elif isinstance(command, EngineCall):
        engine.call(command)
    elif isinstance(command, EngineRequest):
        try:
            engine.add(command)
            logger.debug("sequence %d begins", command.id)
        except Exception as error:
            # One sequence that the engine will not take must not take the others down.
            logger.warning("the engine refused sequence %d: %s", command.id, error)
            if isinstance(error, ValueError):
                return [
                    Output(
                        command.id,
                        [],
                        "refused",
                        error=f"the engine refused this request: {last_line(error)}",
                    )
                ]
            return [Output(command.id, [], "error", error="the engine failed on this request")]
    return []


def main() -> None:
    """Entry of the engine's process: the first message is the settings."""
    # A Ctrl-C reaches every process of the terminal, systemd's SIGTERM every process of the service.
    # The server drains on them; this process ends on Close, or when its connection ends.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # else what the engine starts would keep the connection open
    with Connection(descriptor) as connection:
        settings: LlmSettings = connection.recv()
        if engine := _open(settings, connection):
            try:
                run_engine(engine, connection)
            except EngineLost:
                logging.shutdown()
                os._exit(1)  # an interpreter's own way out waits for threads of a library that is broken


def _open(settings: LlmSettings, connection: Connection) -> Engine | None:
    """Opens the engine; None when it does not open, and the other side knows why."""
    try:
        engine = open_engine(settings)
        give_back_freed()
        return engine
    except OperatorError as error:
        problem = str(error)
    except ImportError as error:
        where = f" in the environment of {settings.python}" if settings.python else ""
        problem = f"engine '{settings.engine}' is not installed{where}: {error}"
    except Exception as error:
        problem = f"engine '{settings.engine}' did not open: {_sentence(error)}"
    connection.send(Failed(problem))
    return None


def _sentence(error: Exception) -> str:
    """What is wrong, in a runtime's own words."""
    if callable(listed := getattr(error, "errors", None)):  # pydantic's, of whichever version is there
        with contextlib.suppress(Exception):
            return "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in listed())
    return last_line(error)
