"""Plays a workload on the replicas of a plan, event by event.

Events are arrivals, ends of runs of steps (`trimodal/plan/fleet/engine.py`), looks of the autoscaler, starts,
failures and ends of drains. A request goes from the balancer to the queue of one replica. What a replica
refuses, and what it had not told anything of when it died, goes to another one, as with the gateway
(`trimodal/gateway/upstreams/failover.py`), which learns of a death at once.

The same plan, workload and seed give the same outcome.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from trimodal.errors import SettingsError
from trimodal.plan.fleet.engine import Engine, Sequence
from trimodal.plan.fleet.members import Members, Replica
from trimodal.plan.fleet.plans import Failure, Plan
from trimodal.plan.fleet.policies import make_balancer
from trimodal.plan.fleet.scaling import Autoscaler
from trimodal.plan.fleet.tally import Objective, Outcome, Tally
from trimodal.plan.fleet.traces import Arrival
from trimodal.plan.fleet.workload import Workload

_Event = tuple[float, int, Replica | None, int, Callable[[float], None] | None]


def simulate(
    plan: Plan,
    workload: Workload,
    objective: Objective,
    *,
    warmup: float = 0.0,
    seed: int = 0,
    addresses: Iterable[str] = (),
) -> Outcome:
    """Plays one plan to the end of its last request.

    Args:
        warmup: requests that arrive in these first seconds are not counted.
        addresses: of the first replicas, which affinity ranks by; the others are numbered.

    Raises:
        SettingsError: the autoscaler looks at a bound that the objective lacks, or the warm-up is too long.
    """
    return Simulation(plan, workload, objective, warmup, seed, addresses).run()


class Simulation:
    """One run; see `simulate`."""

    def __init__(
        self,
        plan: Plan,
        workload: Workload,
        objective: Objective,
        warmup: float = 0.0,
        seed: int = 0,
        addresses: Iterable[str] = (),
    ) -> None:
        scaling = plan.autoscaler
        if scaling and scaling.metric == "ttft_burn_rate" and objective.ttft == math.inf:
            raise SettingsError(f"plan '{plan.name}': ttft_burn_rate needs --slo with ttft_ms<=…")
        if warmup and not 0 < warmup < workload.seconds:
            raise SettingsError(f"--warmup {warmup:g}: arrivals last {workload.seconds:g} s: less is needed")
        self._plan, self._workload = plan, workload
        self._overhead = plan.replica.overhead_ms / 1e3
        self.tally = Tally(objective, warmup, self._overhead)
        self._scaler = Autoscaler(scaling, objective.ttft) if scaling else None
        self._heap: list[_Event] = []
        self._order = itertools.count()
        self._in_flight = 0
        self._arriving = True
        self._balancer = make_balancer(plan.policy, random.Random(f"{seed} balancer"))
        self._engines: list[Engine] = []
        self._at_end: tuple[float, float, int] | None = None  # what `_work` gave when arrivals ended
        self.members = Members(
            plan, self._balancer, self._make, self._later, self._lost, workload.seconds, addresses
        )

    def run(self) -> Outcome:
        """Plays everything."""
        for failure in self._plan.failure:
            self._later(failure.at, lambda now, failure=failure: self._fail(failure, now))  # type: ignore[misc]
        if self._scaler:
            self._later(self._scaler.scaling.polling_s, self._look)
        now = self._play()
        busy, slots, made = self._at_end or self._work(now)
        self.members.finish(max(now, self._workload.seconds))
        return self.tally.outcome(
            self._plan.name,
            self._workload.seconds,
            price_per_hour=self._plan.replica.price_per_hour,
            busy=busy,
            slots=slots / self._plan.replica.max_num_seqs,
            ready=self.members.ready,
            paid=self.members.paid,
            made=made,
            replicas=self.members.timeline,
        )

    def _play(self) -> float:
        """Returns the time of the last event."""
        arrivals = iter(self._workload)
        coming = next(arrivals, None)
        heap, end = self._heap, self._workload.seconds
        now = 0.0
        while True:
            if coming is not None and (not heap or coming.at <= heap[0][0]):
                now = coming.at
                self._arrive(coming)
                coming = next(arrivals, None)
                if coming is None:
                    self._arriving = False
                continue
            if not heap:
                return now
            at, _, replica, version, action = heappop(heap)
            if self._at_end is None and at > end and coming is None:
                self._at_end = self._work(end)
            if replica is not None:
                if version == replica.engine.version and replica.engine.ends is not None:
                    now = at
                    self._complete(replica, now)
            elif action is not None and (self._in_flight or coming is not None):
                now = at
                action(now)

    def _arrive(self, arrival: Arrival) -> None:
        self.tally.came(arrival.at)
        sequence = Sequence(*arrival)
        sequence.blocks = self._plan.replica.blocks(sequence.prompt, sequence.output)
        if sequence.blocks > self._plan.replica.num_kv_blocks or not self._send(sequence, arrival.at):
            self.tally.refuse(arrival.at)

    def _send(self, sequence: Sequence, now: float) -> bool:
        """Sends a request to a replica; False: none has room."""
        balancer = self._balancer
        if not balancer.able:
            return False
        replica: Replica = balancer.pick(sequence.prefix)  # type: ignore[assignment]
        if not replica.engine.takes(sequence):
            others = (one for one in self.members.serving if one.engine.takes(sequence))
            found = min(others, key=lambda one: one.running, default=None) if self._plan.retry else None
            if found is None:
                return False
            replica = found
            self.tally.again += 1
        balancer.took(replica)
        self._in_flight += 1
        if replica.engine.submit(sequence, now):
            self._push(replica)
        return True

    def _complete(self, replica: Replica, now: float) -> None:
        engine = replica.engine
        ended = engine.complete(now)
        if engine.ends is not None:
            heappush(self._heap, (engine.ends, next(self._order), replica, engine.version, None))
        if ended:
            able = replica.state == "ready"
            for sequence in ended:
                self._balancer.left(replica, able)
                self.tally.end(sequence, now)
            self._in_flight -= len(ended)
            if not replica.running and replica.state == "draining":
                self.members.emptied(replica, now)

    def _lost(self, replica: Replica, sequences: list[Sequence], now: float) -> None:
        """Asks for what a dead replica had not told anything of again, elsewhere; all else is lost."""
        for _ in sequences:
            self._balancer.left(replica, False)
        self._in_flight -= len(sequences)
        for sequence in sequences:
            if sequence.first < 0 and self._plan.retry:
                sequence.started = -1.0
                if self._send(sequence, now):
                    self.tally.again += 1
                    continue
            self.tally.lose(sequence.at)

    def _look(self, now: float) -> None:
        """Lets the autoscaler look, and look again."""
        scaler = self._scaler
        assert scaler
        waits = [now - one.at for replica in self.members.all for one in replica.engine.waiting]
        current = self.members.current
        self.members.scale(scaler.look(now, current, waits, self._in_flight), now)
        self._later(now + scaler.scaling.polling_s, self._look)

    def _fail(self, failure: Failure, now: float) -> None:
        if failure.kind == "dies":
            for replica in self.members.serving[: failure.replicas]:
                self.members.kill(replica, now, restart=failure.restart)
            return
        due = iter(self.members.serving)

        def next_one(now: float) -> None:
            replica = next((one for one in due if one.state == "ready"), None)
            if replica is None:
                return
            renew: Callable[[float], None] = lambda at: self.members.restart(replica, at, next_one)  # noqa: E731
            self._later(now + failure.drain_s, lambda at: self._overdue(replica, renew, at))
            self.members.drain(replica, now, renew)

        for _ in range(failure.replicas):
            next_one(now)

    def _overdue(self, replica: Replica, renew: Callable[[float], None], now: float) -> None:
        """Cuts off what still runs on a replica when its time to drain is over."""
        if replica.state == "draining" and replica.then is renew:
            self.members.kill(replica, now, restart=True)

    def _make(self) -> Engine:
        scaler = self._scaler
        engine = Engine(
            self._plan.replica,
            gaps=self.tally.gap,
            handed=scaler.handed if scaler else None,
            told=self._told if scaler and scaler.scaling.metric == "ttft_burn_rate" else None,
        )
        self._engines.append(engine)
        return engine

    def _told(self, sequence: Sequence) -> None:
        assert self._scaler
        self._scaler.told(sequence.first - sequence.at + self._overhead)

    def _work(self, now: float) -> tuple[float, float, int]:
        """Of all engines until now: seconds in steps, seconds of taken batch slots, and tokens."""
        busy, slots, made = zip(*(one.work(now) for one in self._engines), strict=True)
        return sum(busy), sum(slots), sum(made)

    def _push(self, replica: Replica) -> None:
        engine = replica.engine
        assert engine.ends is not None
        heappush(self._heap, (engine.ends, next(self._order), replica, engine.version, None))

    def _later(self, at: float, action: Callable[[float], None]) -> None:
        heappush(self._heap, (at, next(self._order), None, 0, action))
