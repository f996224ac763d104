"""Lists all faults by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tests.chaos.faults.base import Fault
from tests.chaos.faults.connections import IdleConnections, SlowReaders
from tests.chaos.faults.freezes import freeze
from tests.chaos.faults.outside import ClockJump, FrozenRedis
from tests.chaos.faults.processes import HARMS, Kill, Stop
from tests.chaos.faults.repositories import BUILT, changes_while_loading, corrupt
from tests.chaos.faults.resources import FullDisk, FullSharedMemory, OutOfDescriptors, OutOfMemory
from tests.chaos.faults.storms import storm
from tests.chaos.faults.vanish import vanish
from tests.chaos.judge import Row
from tests.chaos.under_load import under_load

VANISHING, FREEZES = 10_000, 50
Make = Callable[[Path], Awaitable[Row]]  # in a server of its own


def faults(vanishing: int = VANISHING) -> dict[str, Make]:
    """Name → fault, in the order of the table. `vanishing`: clients that vanish, and most freezes."""
    loaded: list[Callable[[], Fault]] = []
    for part in HARMS:
        loaded.append(lambda part=part: Kill(part))
    for seconds in (0.5, 3.0):
        for part in HARMS:
            loaded.append(lambda part=part, seconds=seconds: Stop(part, seconds))
    loaded += [FullDisk, FullSharedMemory, FrozenRedis, IdleConnections, SlowReaders]
    for part in ("tritonserver", "launcher", "llm", "vision"):
        loaded.append(lambda part=part: OutOfDescriptors(part))
    for part in ("vision", "llm", "engine", "speech", "tritonserver"):
        loaded.append(lambda part=part: OutOfMemory(part))
    loaded += [lambda: ClockJump(48), lambda: ClockJump(-48)]
    found: dict[str, Make] = {make().name: partial(_loaded, make) for make in loaded}
    for moment in ("loading", "serving", "draining"):
        found[f"sigterm-storm-{moment}"] = partial(storm, moment)
    for artefact in BUILT:
        found[f"corrupt-{artefact.partition('/')[0]}"] = partial(corrupt, artefact)
    found["repository-changed"] = changes_while_loading
    found["freeze"] = partial(freeze, min(vanishing, FREEZES))
    found["vanish"] = partial(vanish, vanishing)
    return found


async def _loaded(make: Callable[[], Fault], directory: Path) -> Row:
    return await under_load(make(), directory)
