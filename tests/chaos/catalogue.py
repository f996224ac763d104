"""Lists all faults by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests.chaos.faults.base import Fault
from tests.chaos.faults.connections import IdleConnections, SlowReaders
from tests.chaos.faults.outside import ClockJump, FrozenRedis
from tests.chaos.faults.processes import HARMS, Kill, Stop
from tests.chaos.faults.repositories import BUILT, changes_while_loading, corrupt
from tests.chaos.faults.resources import FullDisk, FullSharedMemory, OutOfDescriptors, OutOfMemory
from tests.chaos.faults.storms import storm
from tests.chaos.faults.vanish import vanish
from tests.chaos.judge import Row
from tests.chaos.under_load import under_load

VANISHING = 10_000
# Makes it in a server of its own; the flag: on the demo engines.
Make = Callable[[Path, bool], Awaitable[Row]]


def _loaded(make: Callable[[], Fault]) -> Make:
    async def run(directory: Path, real: bool) -> Row:
        return await under_load(make(), directory, real=real)

    return run


def faults(vanishing: int = VANISHING) -> dict[str, Make]:
    """Name → fault, in the order of the table. `vanishing`: clients that vanish."""
    loaded: list[Callable[[], Fault]] = []
    for part in HARMS:
        loaded.append(lambda part=part: Kill(part))
    for seconds in (0.5, 3.0):
        for part in HARMS:
            loaded.append(lambda part=part, seconds=seconds: Stop(part, seconds))
    loaded += [FullDisk, FullSharedMemory, FrozenRedis, IdleConnections, SlowReaders]
    loaded.append(lambda: SlowReaders(slow=False))
    for part in ("tritonserver", "launcher", "llm", "vision"):
        loaded.append(lambda part=part: OutOfDescriptors(part))
    for part in ("vision", "llm", "engine", "speech", "tritonserver"):
        loaded.append(lambda part=part: OutOfMemory(part))
    loaded += [lambda: ClockJump(48), lambda: ClockJump(-48)]
    found = {make().name: _loaded(make) for make in loaded}
    for moment in ("loading", "serving", "draining"):
        found[f"sigterm-storm-{moment}"] = _of(storm, moment)
    for artefact in BUILT:
        found[f"corrupt-{artefact.partition('/')[0]}"] = _of(corrupt, artefact)
    found["repository-changed"] = _of(changes_while_loading)
    found["vanish"] = _of(vanish, vanishing)
    return found


def _of(make: Callable[..., Awaitable[Row]], *arguments: object) -> Make:
    """One that starts servers by itself."""

    async def run(directory: Path, real: bool) -> Row:
        return await make(*arguments, directory, real=real)

    return run


def named(prefixes: Sequence[str]) -> list[str]:
    """The faults of which a name begins so; all without prefixes."""
    return [name for name in faults() if any(map(name.startswith, prefixes or [""]))]
