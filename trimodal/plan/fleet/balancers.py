"""Chooses a replica for each request, as balancers do.

round_robin        in turn
least_connections  the one that has least; of equals the next in turn
affinity           the gateway's rule, by its own code (`trimodal/gateway/upstreams/affinity.py`): prompts
                   that begin alike go to one replica by rendezvous hashing; one that has four requests and
                   1.25 times the mean is passed over
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from trimodal.gateway.upstreams.affinity import most_running, ranked
from trimodal.plan.fleet.engine import Engine
from trimodal.plan.fleet.spec import Policy
from trimodal.plan.fleet.workload import Key


@dataclass(slots=True, eq=False)
class Replica:
    """One replica; `running`: requests that were sent to it and have not ended."""

    address: str
    engine: Engine
    running: int = 0


class Balancer:
    """Picks one of the replicas by a policy."""

    def __init__(self, policy: Policy, replicas: Sequence[Replica], rng: random.Random) -> None:
        self._replicas = list(replicas)
        self._named = {replica.address: replica for replica in replicas}
        self._ranks: dict[Key, list[str]] = {}
        self._policy, self._turn, self._rng = policy, -1, rng

    def pick(self, prefix: Key | None) -> Replica:
        """The replica for a request whose prompt begins with `prefix`; None: a beginning of its own."""
        if self._policy == "affinity":
            return self._near(prefix)
        self._turn = (self._turn + 1) % len(self._replicas)
        if self._policy == "round_robin":
            return self._replicas[self._turn]
        in_turn = self._replicas[self._turn :] + self._replicas[: self._turn]
        return min(in_turn, key=attrgetter("running"))

    def _near(self, prefix: Key | None) -> Replica:
        most = most_running(sum(replica.running for replica in self._replicas), len(self._replicas))
        if prefix is None:  # a beginning of its own ranks the replicas at random
            order = self._rng.sample(self._replicas, len(self._replicas))
        else:
            if prefix not in self._ranks:
                self._ranks[prefix] = ranked(str(prefix).encode(), list(self._named))
            order = [self._named[address] for address in self._ranks[prefix]]
        return next((replica for replica in order if replica.running < most), order[0])
