"""Harms what a server relies on from outside: the wall clock, Redis."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cache.stores.redis_server import RedisServer, binary
from tests.chaos.faults.base import CannotBeMade, Fault, Needs
from tests.chaos.served import ROOT, Served

CLOCK = Path(__file__).parents[1] / "clock"


class ClockJump(Fault):
    """The wall clock jumps, and back: stored answers have ages by it.

    In all Python processes. tritonserver itself is not reached: libfaketime, which would, makes Python's
    sleep fail (0.9.10, EINVAL).
    """

    holds_s = 3.0

    def __init__(self, hours: int) -> None:
        self.name = f"clock{hours:+}h"
        self._hours = hours
        self._file = Path()

    def needs(self, directory: Path) -> Needs:
        self._file = directory / "clock"
        self._write(0)
        environment = {"CHAOS_CLOCK": str(self._file), "PYTHONPATH": f"{CLOCK}{os.pathsep}{ROOT}"}
        return Needs(environment=environment, changes={"llm": {"cache": "exact"}})

    def inject(self, served: Served) -> None:
        self._write(self._hours * 3600)

    def heal(self, served: Served) -> None:
        self._write(0)

    def _write(self, seconds: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.replace(self._file)


class FrozenRedis(Fault):
    """The cache's Redis keeps its connections and answers nothing."""

    name, holds_s = "redis-frozen", 4.0

    def __init__(self) -> None:
        self._redis: RedisServer | None = None

    def needs(self, directory: Path) -> Needs:
        if binary() is None:
            raise CannotBeMade("no redis-server: install Debian's, or the dev extra")
        self._redis = RedisServer(directory)
        return Needs(changes={"llm": {"cache": "exact", "cache_store": self._redis.url}})

    def inject(self, served: Served) -> None:
        assert self._redis
        self._redis.stop()

    def heal(self, served: Served) -> None:
        assert self._redis
        self._redis.go_on()

    def close(self) -> None:
        if self._redis:
            self._redis.kill()
