"""Plays arrivals on the replicas of a fleet, event by event.

Events are arrivals and ends of runs of steps (`trimodal/plan/fleet/engine.py`). A request goes from the
balancer to the queue of one replica; what that refuses goes to the one with the fewest requests that has
room, as with the gateway (`trimodal/gateway/upstreams/failover.py`).

The same fleet, arrivals and seed give the same outcome.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from trimodal.errors import SettingsError
from trimodal.plan.fleet.balancers import Balancer
from trimodal.plan.fleet.engine import Engine, Sequence
from trimodal.plan.fleet.outcome import Objective, Outcome, Tally
from trimodal.plan.fleet.spec import FleetSpec
from trimodal.plan.fleet.workload import Arrival


@dataclass(slots=True, eq=False)
class Replica:
    """One replica; `running`: requests that were sent to it and have not ended."""

    address: str
    engine: Engine
    running: int = 0


def simulate(
    spec: FleetSpec,
    arrivals: list[Arrival],
    objective: Objective,
    *,
    warmup: float = 0.0,
    seed: int = 0,
    addresses: Iterable[str] = (),
) -> Outcome:
    """Plays one fleet to the end of its last request.

    Args:
        warmup: requests that arrive in these first seconds are not counted.
        addresses: of the first replicas, which affinity ranks by; the others are numbered.

    Raises:
        SettingsError: the warm-up is too long.
    """
    seconds = arrivals[-1].at if arrivals else 0.0
    if warmup and not 0 < warmup < seconds:
        raise SettingsError(f"--warmup {warmup:g}: arrivals last {seconds:g} s: less is needed")
    simulation = Simulation(spec, objective, warmup, seed, addresses)
    return simulation.tally.outcome(spec, seconds, simulation.run(arrivals), simulation.slot_s)


class Simulation:
    """One run."""

    def __init__(
        self, spec: FleetSpec, objective: Objective, warmup: float = 0.0, seed: int = 0,
        addresses: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self._figures = spec.replica
        self.tally = Tally(objective, warmup, spec.replica.overhead_ms / 1e3)
        numbered = (f"replica-{number}:8001" for number in itertools.count(1))
        names = itertools.islice(itertools.chain(addresses, numbered), spec.replicas)
        self.replicas = [Replica(name, Engine(spec.replica, self.tally.gap)) for name in names]
        self._balancer = Balancer(spec.policy, self.replicas, random.Random(f"{seed} balancer"))
        # When a replica's run of steps ends, and the engine's version then: a run may be cut short.
        self._heap: list[tuple[float, int, Replica, int]] = []
        self._order = itertools.count()

    @property
    def slot_s(self) -> float:
        """Seconds of taken batch slots, of all replicas."""
        return sum(replica.engine.slot_s for replica in self.replicas)

    def run(self, arrivals: Iterable[Arrival]) -> float:
        """Plays events in the order of time until nothing is left; returns when the last one was."""
        now = 0.0
        for arrival in arrivals:
            while self._heap and self._heap[0][0] < arrival.at:
                now = self._complete(now)
            now = arrival.at
            self._arrive(arrival)
        while self._heap:
            now = self._complete(now)
        return now

    def _arrive(self, arrival: Arrival) -> None:
        self.tally.came(arrival.at)
        sequence = Sequence(*arrival, blocks=self._figures.blocks(arrival.prompt, arrival.output))
        replica: Replica | None = self._balancer.pick(sequence.prefix)
        if replica and not replica.engine.takes(sequence):
            able = (one for one in self.replicas if one.engine.takes(sequence))
            replica = min(able, key=lambda one: one.running, default=None)
        if replica is None or sequence.blocks > self._figures.num_kv_blocks:
            self.tally.refuse(arrival.at)
            return
        replica.running += 1
        if replica.engine.submit(sequence, arrival.at):
            self._push(replica)

    def _complete(self, now: float) -> float:
        """Ends the next run of steps; returns when that was."""
        at, _, replica, version = heappop(self._heap)
        if version != replica.engine.version:
            return now
        for sequence in replica.engine.complete(at):
            replica.running -= 1
            self.tally.end(sequence, at)
        self._push(replica)
        return at

    def _push(self, replica: Replica) -> None:
        engine = replica.engine
        if engine.ends is not None:
            heappush(self._heap, (engine.ends, next(self._order), replica, engine.version))
