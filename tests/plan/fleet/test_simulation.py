"""The whole simulator: closed forms of queueing theory, conservation, policies, failures, determinism."""

from __future__ import annotations

import math
import random
from itertools import accumulate
from typing import Any

import pytest

from tests.plan.fleet.given import Between, Exactly, plan, play, replica
from trimodal.errors import SettingsError
from trimodal.gateway.upstreams.affinity import ranked
from trimodal.plan.fleet.policies import POLICIES
from trimodal.plan.fleet.simulation import Simulation, simulate
from trimodal.plan.fleet.tally import Objective
from trimodal.plan.fleet.traces import Arrival
from trimodal.plan.fleet.workload import Generated, Prefixes, Recorded

EVENTUALLY = Objective()


def one_server(**changes: Any) -> Any:
    """One request at a time; a request of n answer tokens takes n steps of 10 ms."""
    return replica(max_num_seqs=1, prefill_us=0.0, prefix_cache_blocks=0, **changes)


def poisson(rate: float, count: int, output: Any, seed: int = 1) -> list[Arrival]:
    rng = random.Random(seed)
    times = accumulate(rng.expovariate(rate) for _ in range(count))
    return [Arrival(at, 1, output(rng)) for at in times]


def waits(arrivals: list[Arrival], step: float = 0.010) -> float:
    """The mean wait in the queue, of a run whose latencies are those of one server."""
    _, simulation = play(plan(one_server(step_ms=[[1, 1e3 * step]])), arrivals, objective=EVENTUALLY)
    latencies = simulation.tally._latency
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
def test_littles_law(policy: str) -> None:
    """Mean requests in the system = rate × mean time in it, counted on their own."""
    arrivals = list(Generated("poisson", 40, 100, Exactly(50), Between(1, 60), seed=3))
    _, simulation = play(plan(replicas=3, policy=policy), arrivals, objective=EVENTUALLY)
    latencies = list(simulation.tally._latency)
    held = _held_over_time(plan(replicas=3, policy=policy), arrivals)
    assert held == pytest.approx(sum(latencies), rel=1e-3)


def _held_over_time(tried: Any, arrivals: list[Arrival]) -> float:
    """The integral over time of the requests in the system, as the simulation itself counts them."""
    simulation = Simulation(tried, Recorded(arrivals), EVENTUALLY)
    total = last = 0.0
    arrive, complete = simulation._arrive, simulation._complete

    def before(now: float) -> None:
        nonlocal total, last
        total += simulation._in_flight * (now - last)
        last = now

    def arriving(arrival: Arrival) -> None:
        before(arrival.at)
        arrive(arrival)

    def completing(replica: Any, now: float) -> None:
        before(now)
        complete(replica, now)

    simulation._arrive, simulation._complete = arriving, completing  # type: ignore[method-assign]
    simulation.run()
    return total


@pytest.mark.parametrize("policy", POLICIES)
def test_no_request_and_no_token_is_made_or_lost(policy: str) -> None:
    """Also while replicas die and restart, queues are full, and an autoscaler is at work."""
    arrivals = list(
        Generated(
            "gamma", 60, 60, Between(1, 600), Between(1, 40), burstiness=0.3, prefixes=Prefixes(9, 200, 0.5)
        )
    )
    tried = plan(
        replica(max_queue=5),
        replicas=3,
        policy=policy,
        autoscaler={"metric": "in_flight", "target": 4, "max": 6, "polling_s": 2, "cooldown_s": 5, "warm": 1},
        failure=[
            {"kind": "dies", "at": 11, "replicas": 2},
            {"kind": "rolling_restart", "at": 25, "drain_s": 0.2},
            {"kind": "dies", "at": 40, "restart": False},
        ],
    )
    found, simulation = play(tried, arrivals, objective=EVENTUALLY)
    assert found.requests == len(arrivals)
    assert found.answered + found.refused + found.lost == len(arrivals)
    assert found.refused
    assert found.lost
    assert found.answered
    assert simulation._in_flight == 0
    assert all(one.held == 0 and one.slots == 4 and one.free_blocks == 512 for one in simulation._engines)
    assert all(one.running == 0 for one in simulation.members.all)


def test_tokens_made_are_those_of_the_answers() -> None:
    arrivals = list(Generated("poisson", 50, 30, Between(1, 600), Between(1, 40)))
    found, simulation = play(plan(replicas=4), arrivals)
    assert found.answered == len(arrivals)
    assert sum(engine.made for engine in simulation._engines) == sum(one.output for one in arrivals)
    assert sum(simulation.tally._gaps.values()) == sum(one.output - 1 for one in arrivals)
    assert simulation.tally.prompt_tokens == sum(one.prompt for one in arrivals)


def test_the_same_seed_gives_the_same_outcome_and_another_one_another() -> None:
    work = Generated("poisson", 50, 20, Between(1, 600), Between(1, 40), seed=5)
    tried = plan(replicas=4, policy="random_of_two", failure=[{"kind": "dies", "at": 5}])
    first, again, other = (simulate(tried, work, EVENTUALLY, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_affinity_raises_the_prefix_hit_rate() -> None:
    """Together the beginnings are larger than one replica's cache and smaller than that of all."""
    work = Generated("poisson", 30, 60, Exactly(50), Exactly(10), prefixes=Prefixes(60, 640, 1.0, 0.0))
    found = {
        policy: play(plan(replica(num_kv_blocks=600), replicas=4, policy=policy), work)[0]
        for policy in POLICIES
    }
    others = [one.hit_rate for policy, one in found.items() if policy != "affinity"]
    assert found["affinity"].hit_rate > 1.5 * max(others)
    assert found["affinity"].ttft_ms["p50"] < found["round_robin"].ttft_ms["p50"]


def test_affinity_ranks_by_the_addresses_given() -> None:
    """So that a simulation sends each beginning where real servers of these addresses have it."""
    addresses = ["one:1", "two:2", "three:3"]
    arrivals = [Arrival(float(number), 20, 2, f"text {number}") for number in range(30)]
    tried = plan(replicas=4, policy="affinity")
    simulation = Simulation(tried, Recorded(arrivals), EVENTUALLY, addresses=addresses)
    assert simulation.run().answered == 30
    members = simulation.members.all
    assert [one.address for one in members] == [*addresses, "replica-1:8001"]
    expected = [ranked(str(one.prefix).encode(), [two.address for two in members])[0] for one in arrivals]
    for one in members:
        assert one.engine.made == 2 * expected.count(one.address)


def test_two_choices_beat_one() -> None:
    """And least connections beats both."""
    work = Generated("poisson", 160, 60, Exactly(20), Between(1, 40))
    p95 = {
        policy: play(plan(replica(prefill_us=0.0), replicas=10, policy=policy), work)[0].ttft_ms["p95"]
        for policy in ("random", "random_of_two", "least_connections")
    }
    assert p95["random"] > 1.2 * p95["random_of_two"]
    assert p95["random_of_two"] >= p95["least_connections"]


def test_a_death_loses_exactly_what_the_replica_had() -> None:
    """Without asking again everything that was there; with it only what had its first token."""
    arrivals = [Arrival(0.01 * number, 20, 100) for number in range(16)]
    # Two replicas of 4 slots: each has 4 that decode and 4 that wait.
    dies = {"failure": [{"kind": "dies", "at": 0.5, "restart": False}], "replicas": 2}
    found, _ = play(plan(retry=False, **dies), arrivals)
    assert (found.lost, found.answered, found.asked_again) == (8, 8, 0)
    found, _ = play(plan(**dies), arrivals)
    assert (found.lost, found.answered, found.asked_again) == (4, 12, 4)


def test_a_replica_that_died_comes_back_after_a_cold_start() -> None:
    arrivals = [Arrival(float(number), 20, 5) for number in range(20)]
    found, simulation = play(plan(replicas=1, failure=[{"kind": "dies", "at": 3.5}]), arrivals)
    assert found.lost == 0
    assert found.refused == 5  # those that arrive from 4 to 8 s: the cold start takes 5 s
    assert simulation.members.timeline == [(0.0, 1, 1), (3.5, 0, 1), (8.5, 1, 1)]


def test_a_rolling_restart_with_time_to_drain_loses_nothing() -> None:
    work = Generated("poisson", 20, 60, Exactly(20), Between(1, 40))
    tried = plan(replicas=3, failure=[{"kind": "rolling_restart", "at": 10, "drain_s": 30}])
    found, simulation = play(tried, work)
    assert (found.lost, found.refused) == (0, 0)
    ready = [count for _, count, _ in simulation.members.timeline]
    assert ready == [3, 2, 3]  # one joins, the next one leaves
    assert found.replicas[1][0] == 10.0
    assert 25.0 < found.replicas[2][0] < 40.0  # three cold starts of 5 s, and what ran


def test_a_rolling_restart_without_time_cuts_off_what_runs() -> None:
    arrivals = [Arrival(0.0, 20, 1000), Arrival(0.0, 20, 1000), Arrival(20.0, 20, 1)]
    tried = plan(replicas=2, failure=[{"kind": "rolling_restart", "at": 1, "drain_s": 2}])
    found, _ = play(tried, arrivals)
    assert (found.lost, found.answered) == (2, 1)


def test_what_no_replica_has_room_for_is_refused() -> None:
    figures = replica(max_num_seqs=1, max_queue=1)
    arrivals = [Arrival(0.0, 20, 100) for _ in range(9)]
    found, _ = play(plan(figures, replicas=3), arrivals)
    assert (found.answered, found.refused) == (6, 3)
    found, _ = play(plan(figures, replicas=3, retry=False, policy="affinity"), [Arrival(0.0, 20, 9, "a")] * 3)
    assert (found.answered, found.refused) == (2, 1)


def test_a_request_larger_than_the_kv_cache_is_refused() -> None:
    found, _ = play(plan(replica(num_kv_blocks=4)), [Arrival(0.0, 100, 28), Arrival(0.1, 100, 29)])
    assert (found.answered, found.refused) == (1, 1)


def test_cost_is_of_the_replicas_that_were_paid_for() -> None:
    arrivals = [Arrival(float(number), 20, 10) for number in range(101)]
    found, _ = play(plan(replicas=2), arrivals)
    assert found.replica_hours == pytest.approx(200 / 3600)
    assert found.cost == pytest.approx(0.2)  # at 3.6 an hour
    assert found.cost_per_million == pytest.approx(0.2 / 1000 * 1e6, rel=0.02)


def test_what_is_good_keeps_every_bound() -> None:
    arrivals = [Arrival(float(number), 20, 10) for number in range(10)] + [Arrival(9.0, 20, 10)] * 4
    figures = replica(prefill_us=0.0)
    all_good, _ = play(plan(figures), arrivals, objective=Objective(ttft=0.2))
    assert (all_good.good, all_good.attainment) == (14, 1.0)
    some, _ = play(plan(figures), arrivals, objective=Objective(ttft=0.02))
    assert some.good == 13  # four have room, the fifth waits
    none, _ = play(plan(figures), arrivals, objective=Objective(ttft=0.2, tpot=0.009))
    assert none.good == 0


def test_the_warm_up_is_not_counted() -> None:
    arrivals = [Arrival(float(number), 20, 10) for number in range(10)]
    found, _ = play(plan(), arrivals, warmup=5.0)
    assert (found.requests, found.answered) == (5, 5)
    with pytest.raises(SettingsError, match="--warmup 9"):
        play(plan(), arrivals, warmup=9.0)


def test_overhead_is_part_of_ttft_and_latency() -> None:
    arrivals = [Arrival(0.0, 100, 5), Arrival(1.0, 100, 5)]
    bare, _ = play(plan(), arrivals)
    found, _ = play(plan(replica(overhead_ms=30)), arrivals)
    assert found.ttft_ms["p50"] == pytest.approx(bare.ttft_ms["p50"] + 30)
    assert found.latency_ms["p50"] == pytest.approx(bare.latency_ms["p50"] + 30)
    assert found.itl_ms == bare.itl_ms


def test_gaps_are_told_within_a_half_per_cent() -> None:
    found, _ = play(plan(), [Arrival(0.0, 100, 50), Arrival(1.0, 100, 50)])
    assert found.itl_ms["p50"] == pytest.approx(10.0, rel=0.005)
