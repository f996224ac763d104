"""Messages between the server's process and the engine's process.

To the engine: an EngineRequest, which it takes in, Cancel and Close.
From the engine: Failed, or its EngineInfo and then Stepped.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    outputs: list[Output]
    stats: EngineStats
