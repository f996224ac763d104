"""A server that is none, and a system whose figures are made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trimodal.errors import ServerError
from trimodal.repository import read_model
from trimodal.server.options import ServerOptions
from trimodal.tune.search import Round, TrialError


def parsed(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


class FakeTriton:
    """tritonserver's double: what its repository says counts; `refuse` says why that does not load."""

    running: list[FakeTriton] = []
    starts = 0
    refuse: Callable[[Any], str] = staticmethod(lambda config: "")

    def __init__(self, options: ServerOptions) -> None:
        self.options, self.alive = options, False
        self.grpc_url, self.log_path = "here:1", options.repository / "log"

    def start(self, *, stop: Callable[[], bool]) -> None:
        FakeTriton.starts += 1
        if why := FakeTriton.refuse(self.config("m")):
            raise ServerError(f"model m: {why}\nlog: {self.log_path}")
        assert not FakeTriton.running, "two servers at once"
        assert set(self.options.ports.values()) == {0}, "a port that another server may have"
        self.alive = True
        FakeTriton.running.append(self)

    def config(self, name: str) -> Any:
        return read_model(self.options.repository, name, self.options.profile).config

    def kill(self) -> None:
        self.alive = False
        FakeTriton.running.remove(self)


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

    async def apply(self, setting: dict[str, str]) -> None:
        self.now += 0.5
        self.applied.append(setting)
        if error := self._breaks(setting):
            raise error

    async def measure(self, number: int) -> Round:
        self.now += 1.0
        self.rounds += 1
        setting = self.applied[-1]
        value = self._value(setting) * self._rng.gauss(1.0, self._noise)
        return Round(value, self._violation(setting), {"throughput": value, "p99_ms": 10.0})
