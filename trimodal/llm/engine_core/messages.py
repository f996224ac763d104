"""Messages between the server's process and the engine's process.

To the engine: an EngineRequest, which it takes in, an EngineCall, Cancel and Close.
From the engine: Failed, or its EngineInfo and then Stepped.
"""

from __future__ import annotations

import select
from dataclasses import dataclass
from multiprocessing.connection import Connection as PipeConnection

from trimodal.llm.engines.protocol import EngineStats, Output


@dataclass(frozen=True)
class Cancel:
    id: int


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Failed:
    """The engine could not be opened; one sentence."""

    error: str


@dataclass(frozen=True)
class Stepped:
    """What came out of steps.

    Attributes:
        taken: commands that the engine has taken so far.
        working: it has sequences to go on with.
    """

    outputs: list[Output]
    stats: EngineStats
    taken: int = 0
    working: bool = False


class Connection(PipeConnection):
    """One end of the pipe; its `poll` makes no selector, as the library's does at every step."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._waiting = select.poll()
        self._waiting.register(descriptor, select.POLLIN)

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Whether there is a message, or the other side is gone; waits for it so many seconds at most."""
        return bool(self._waiting.poll(None if timeout is None else timeout * 1e3))
