"""Messages between the server's process and the engine's process."""

from __future__ import annotations

from dataclasses import dataclass

from trimodal.llm.engines.protocol import EngineInfo, EngineRequest, EngineStats, Output


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
