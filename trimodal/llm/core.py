"""The loop that owns an engine: takes commands between steps, steps while there is work, sends what came out.

It runs in a process of its own (`python -m trimodal.llm FD`), because a step
holds Python's global lock from its first to its last instruction: beside it in the
model's process no request could be read, cancelled or answered until the step ends.
It knows neither text nor clients.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection

from trimodal.errors import OperatorError
from trimodal.llm.engine import Engine, EngineInfo, EngineRequest, EngineStats, Output, open_engine
from trimodal.llm.settings import LlmSettings


@dataclass(frozen=True)
class Add:
    request: EngineRequest


@dataclass(frozen=True)
class Cancel:
    id: int


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Opened:
    info: EngineInfo


@dataclass(frozen=True)
class Failed:
    """The engine could not be opened, or a step failed; one sentence."""

    error: str


@dataclass(frozen=True)
class Stepped:
    outputs: list[Output]
    stats: EngineStats


def run_engine(engine: Engine, connection: Connection) -> None:
    """Serves `engine` over `connection` until Close, or until the other side is gone."""
    try:
        connection.send(Opened(engine.info))
        while True:
            refused: list[Output] = []
            changed = False
            while connection.poll(None if not (engine.has_work() or changed) else 0):
                command = connection.recv()
                if isinstance(command, Close):
                    return
                changed = True
                refused += _obey(engine, command)
            outputs = refused + (engine.step() if engine.has_work() else [])
            connection.send(Stepped(outputs, engine.stats()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the model's process is gone; so are its clients
    finally:
        engine.close()


def _obey(engine: Engine, command: object) -> list[Output]:
    if isinstance(command, Cancel):
        engine.cancel(command.id)
    elif isinstance(command, Add):
        try:
            engine.add(command.request)
        except Exception as error:
            # One sequence that the engine will not take must not take the others down.
            print(f"trimodal: engine refused a sequence: {error}", file=sys.stderr, flush=True)
            return [Output(command.request.id, [], "error", error="the engine refused this prompt")]
    return []


def main() -> None:
    """Entry of the engine's process: the first message is the settings."""
    # A Ctrl-C reaches every process of the terminal, systemd's SIGTERM every process of the service.
    # The server drains on them; this process ends when it is told to, or when its connection ends.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    settings: LlmSettings = connection.recv()
    try:
        engine = open_engine(settings)
    except OperatorError as error:
        connection.send(Failed(str(error)))
        return
    except ImportError as error:
        connection.send(Failed(f"engine '{settings.engine}' is not installed: {error}"))
        return
    except Exception as error:
        # A runtime's own message has several lines, the last one says what is wrong.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
        connection.send(Failed(f"engine '{settings.engine}' did not open: {reason}"))
        return
    run_engine(engine, connection)
