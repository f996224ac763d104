"""The whole simulator: closed forms of queueing theory, conservation, policies, determinism."""

from __future__ import annotations

import math
import random
from itertools import accumulate
from typing import Any

import pytest

from tests.plan.fleet.given import Between, Exactly, fleet, played, replica
from trimodal.errors import SettingsError
from trimodal.gateway.upstreams.affinity import ranked
from trimodal.plan.fleet.outcome import Objective, Outcome
from trimodal.plan.fleet.simulation import simulate
from trimodal.plan.fleet.spec import POLICIES
from trimodal.plan.fleet.workload import Arrival, Prefixes, generate

EVENTUALLY = Objective()


def outcome(spec: Any, arrivals: list[Arrival], objective: Objective = EVENTUALLY, **more: Any) -> Outcome:
    return simulate(spec, arrivals, objective, **more)


def poisson(rate: float, count: int, output: Any, seed: int = 1) -> list[Arrival]:
    rng = random.Random(seed)
    times = accumulate(rng.expovariate(rate) for _ in range(count))
    return [Arrival(at, 1, output(rng)) for at in times]


def waits(arrivals: list[Arrival], step: float = 0.010) -> float:
    """The mean wait in the queue, of a run whose latencies are those of one server.

    One request at a time; a request of n answer tokens takes n steps.
    """
    figures = replica(max_num_seqs=1, prefill_us=0.0, step_ms=[[1, 1e3 * step]])
    latencies = played(fleet(figures), arrivals).tally.latency
    services = sum(one.output * step for one in arrivals)
    return (sum(latencies) - services) / len(latencies)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_constant_services_wait_as_m_d_1_says(load: float) -> None:
    """Pollaczek and Khinchine: load × service / (2 × (1 − load))."""
    service = 0.1
    found = waits(poisson(load / service, 60_000, lambda rng: 10))
    assert found == pytest.approx(load * service / (2 * (1 - load)), rel=0.06)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_exponential_services_wait_as_m_m_1_says(load: float) -> None:
    """load × service / (1 − load). Steps of 0.1 ms make answers' lengths as good as continuous."""
    service, step = 0.1, 0.0001

    def output(rng: random.Random) -> int:
        return max(1, math.ceil(rng.expovariate(1 / service) / step))

    found = waits(poisson(load / service, 60_000, output), step)
    assert found == pytest.approx(load * service / (1 - load), rel=0.08)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_request_and_no_token_is_made_or_lost(policy: str) -> None:
    """Also while queues are full."""
    arrivals = generate(120, 60, Between(1, 600), Between(1, 40), prefixes=Prefixes(9, 200, 0.5))
    simulation = played(fleet(replica(max_queue=5), replicas=3, policy=policy), arrivals)
    tally = simulation.tally
    assert tally.requests == len(arrivals) == len(tally.latency) + tally.refused
    assert tally.refused
    assert all(one.running == 0 for one in simulation.replicas)
    assert all((one.engine.slots, one.engine.free_blocks) == (4, 512) for one in simulation.replicas)
    assert not any(one.engine.waiting or one.engine.decoding for one in simulation.replicas)


def test_the_same_seed_gives_the_same_outcome_and_another_one_another() -> None:
    arrivals = generate(50, 20, Between(1, 600), Between(1, 40), seed=5)
    first, again, other = (
        outcome(fleet(replicas=4, policy="affinity"), arrivals, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_affinity_raises_the_prefix_hit_rate() -> None:
    """Together the beginnings are larger than one replica's cache and smaller than that of all."""
    arrivals = generate(30, 60, Exactly(50), Exactly(10), prefixes=Prefixes(60, 640, 1.0, 0.0))
    found = {
        policy: outcome(fleet(replica(num_kv_blocks=600), replicas=4, policy=policy), arrivals)
        for policy in POLICIES
    }
    others = [one.hit_rate for policy, one in found.items() if policy != "affinity"]
    assert found["affinity"].hit_rate > 1.5 * max(others)
    assert found["affinity"].ttft_ms["p50"] < found["round_robin"].ttft_ms["p50"]


def test_affinity_ranks_by_the_addresses_given() -> None:
    """So that a simulation sends each beginning where real servers of these addresses have it."""
    addresses = ["one:1", "two:2", "three:3"]
    arrivals = [Arrival(float(number), 20, 2, f"text {number}", 20) for number in range(30)]
    simulation = played(fleet(replicas=4, policy="affinity"), arrivals, addresses=addresses)
    named = [one.address for one in simulation.replicas]
    assert named == [*addresses, "replica-1:8001"]
    expected = [ranked(str(one.prefix).encode(), named)[0] for one in arrivals]
    for one in simulation.replicas:  # a first token and another: 22 ms with one of four slots
        assert one.engine.slot_s == pytest.approx(0.022 * expected.count(one.address))


def test_what_no_replica_has_room_for_is_refused() -> None:
    figures = replica(max_num_seqs=1, max_queue=1)
    found = outcome(fleet(figures, replicas=3), [Arrival(0.0, 20, 100) for _ in range(9)])
    assert (found.answered, found.refused) == (6, 3)
    # The replica of the beginning is full: another one takes it.
    found = outcome(fleet(figures, replicas=3, policy="affinity"), [Arrival(0.0, 20, 9, "a", 20)] * 3)
    assert (found.answered, found.refused) == (3, 0)


def test_a_request_larger_than_the_kv_cache_is_refused() -> None:
    found = outcome(fleet(replica(num_kv_blocks=4)), [Arrival(0.0, 100, 28), Arrival(0.1, 100, 29)])
    assert (found.answered, found.refused) == (1, 1)


def test_cost_is_of_all_replicas_until_the_last_answer() -> None:
    found = outcome(fleet(replicas=2), [Arrival(float(number), 20, 10) for number in range(101)])
    assert found.cost == pytest.approx(0.2, rel=0.01)  # at 3.6 an hour
    assert found.cost_per_million == pytest.approx(0.2 / 1010 * 1e6, rel=0.01)
    assert found.utilisation == pytest.approx(101 * 0.102 / (2 * 4 * 100), rel=0.01)


def test_what_is_good_keeps_every_bound() -> None:
    arrivals = [Arrival(float(number), 20, 10) for number in range(10)] + [Arrival(9.0, 20, 10)] * 4
    figures = replica(prefill_us=0.0)
    all_good = outcome(fleet(figures), arrivals, Objective(ttft=0.2))
    assert (all_good.good, all_good.attainment) == (14, 1.0)
    # Four have room, the fifth waits.
    assert outcome(fleet(figures), arrivals, Objective(ttft=0.02)).good == 13
    assert outcome(fleet(figures), arrivals, Objective(ttft=0.2, tpot=0.009)).good == 0


def test_the_warm_up_is_not_counted() -> None:
    arrivals = [Arrival(float(number), 20, 10) for number in range(10)]
    found = outcome(fleet(), arrivals, warmup=5.0)
    assert (found.requests, found.answered) == (5, 5)
    with pytest.raises(SettingsError, match="--warmup 9"):
        outcome(fleet(), arrivals, warmup=9.0)
