"""A server's repository API in memory, and a system whose figures are made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trimodal.errors import ServerError
from trimodal.tune.search import Round, TrialError


def parsed(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


class FakeRepository:
    """Models by name; `refuse` says why a configuration does not load, or nothing."""

    def __init__(self, configs: Mapping[str, str], refuse: Callable[[Any], str] = lambda config: "") -> None:
        self.live: dict[str, Any] = {name: parsed(text) for name, text in configs.items()}
        self.refuse = refuse
        self.calls: list[str] = []
        self.down = False

    def config(self, model: str) -> Any:
        if self.down or model not in self.live:
            raise ServerError(f"model {model} is not loaded")
        copy = model_config_pb2.ModelConfig()
        copy.CopyFrom(self.live[model])
        return copy

    def load(self, model: str, config: Any) -> str:
        self.calls.append(f"load {model}")
        if self.down:
            raise ServerError("no server")
        why = self.refuse(config)
        if not why:
            self.live[model] = model_config_pb2.ModelConfig()
            self.live[model].CopyFrom(config)
        return why

    def unload(self, model: str) -> None:
        self.calls.append(f"unload {model}")
        self.live.pop(model, None)

    def ready(self, model: str) -> bool:
        return not self.down and model in self.live


class MadeUpSystem:
    """A system on a clock of its own: `value` of a setting, with noise; a round takes a second.

    Args:
        violation: of the SLO by a setting.
        breaks: raises a TrialError, or anything else, for a setting.
    """

    def __init__(
        self,
        value: Callable[[Mapping[str, str]], float],
        *,
        noise: float = 0.0,
        violation: Callable[[Mapping[str, str]], float] = lambda setting: 0.0,
        breaks: Callable[[Mapping[str, str]], TrialError | None] = lambda setting: None,
        seed: int = 0,
    ) -> None:
        self._value, self._violation, self._breaks = value, violation, breaks
        self._noise, self._rng = noise, random.Random(seed)
        self.now = 0.0
        self.applied: list[dict[str, str]] = []
        self.rounds = 0

    def clock(self) -> float:
        return self.now

    def refusal(self, setting: Mapping[str, str]) -> str:
        return ""

    def canonical(self, setting: dict[str, str]) -> dict[str, str]:
        return setting

    async def apply(self, setting: dict[str, str]) -> None:
        self.now += 0.5
        self.applied.append(setting)
        if error := self._breaks(setting):
            raise error

    async def measure(self) -> Round:
        self.now += 1.0
        self.rounds += 1
        setting = self.applied[-1]
        value = self._value(setting) * self._rng.gauss(1.0, self._noise)
        return Round(value, self._violation(setting), {"throughput": value, "p99_ms": 10.0})
