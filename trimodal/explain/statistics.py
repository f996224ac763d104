"""Reads how long Triton needed for requests from its counters, before and after one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import sub
from typing import Any


@dataclass(frozen=True)
class Counters:
    """Of one model: requests that succeeded, and nanoseconds of all of them."""

    requests: int = 0
    queue: int = 0
    compute_input: int = 0
    compute: int = 0
    compute_output: int = 0
    total: int = 0

    def since(self, before: Counters) -> Counters:
        return Counters(*map(sub, astuple(self), astuple(before)))


class Statistics:
    """The counters of all models of a server."""

    def __init__(self, client: Any) -> None:
        """`client`: tritonclient's for asyncio; it stays its owner's to close."""
        self._client = client

    async def read(self) -> dict[str, Counters]:
        answer = await self._client.get_inference_statistics()
        found = {}
        for one in answer.model_stats:
            times = one.inference_stats
            found[one.name] = Counters(
                times.success.count,
                times.queue.ns,
                times.compute_input.ns,
                times.compute_infer.ns,
                times.compute_output.ns,
                times.success.ns,
            )
        return found

    async def since(self, before: Mapping[str, Counters], expected: str) -> dict[str, Counters]:
        """What was counted since, once there is a request to `expected` in it (it may come a little late)."""
        for _ in range(50):
            now = await self.read()
            changed = {name: one.since(before.get(name, Counters())) for name, one in now.items()}
            changed = {name: one for name, one in changed.items() if one.requests}
            if expected in changed:
                break
            await asyncio.sleep(0.02)
        return changed

    async def config(self, model: str) -> Any:
        """The configuration that the server has of a model."""
        return (await self._client.get_model_config(model)).config


def alone(found: Mapping[str, Counters], models: Sequence[str], requests: int = 1) -> bool:
    """Whether each of these models had exactly so many requests: no other client's are in the figures."""
    return all(name in found and found[name].requests == requests for name in models)
