"""The balancers, and that affinity follows the gateway's own rule."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from trimodal.gateway.upstreams.affinity import most_running, ranked
from trimodal.plan.fleet.policies import POLICIES, Affinity, LeastConnections, RoundRobin, make_balancer


@dataclass(eq=False)
class Server:
    address: str
    running: int = 0


def servers(count: int) -> list[Server]:
    return [Server(f"replica-{number}:8001") for number in range(count)]


@pytest.mark.parametrize("policy", POLICIES)
def test_counts_are_kept_while_servers_come_and_go(policy: str) -> None:
    rng = random.Random(1)
    balancer = make_balancer(policy, random.Random(2))  # type: ignore[arg-type]
    every = servers(6)
    able = every[:4]
    balancer.change(able)
    held: list[Server] = []
    for number in range(3000):
        if number % 500 == 499:
            able = rng.sample(every, rng.randint(1, 6))
            balancer.change(able)
        if held and rng.random() < 0.48:
            one = held.pop(rng.randrange(len(held)))
            balancer.left(one, one in able)
        else:
            chosen = balancer.pick(rng.choice([None, *range(20)]))
            assert chosen in able
            balancer.took(chosen)
            held.append(chosen)  # type: ignore[arg-type]
        assert balancer.total == sum(one.running for one in able)
    assert sum(one.running for one in every) == len(held)


def test_round_robin_goes_in_turn() -> None:
    balancer, able = RoundRobin(), servers(3)
    balancer.change(able)
    assert [balancer.pick(None) for _ in range(6)] == able * 2


def test_least_connections_always_finds_the_least() -> None:
    rng = random.Random(4)
    balancer, able = LeastConnections(), servers(7)
    balancer.change(able)
    for _ in range(2000):
        busy = [one for one in able if one.running]
        if busy and rng.random() < 0.5:
            balancer.left(rng.choice(busy), True)
        chosen = balancer.pick(None)
        assert chosen.running == min(one.running for one in able)
        balancer.took(chosen)


def test_affinity_chooses_as_the_gateway_does() -> None:
    """At any load, and after replicas joined and left."""
    rng = random.Random(5)
    balancer, every = Affinity(random.Random(6)), servers(40)
    able = every[:20]
    balancer.change(able)
    for number in range(4000):
        if number % 400 == 399:
            able = rng.sample(every, rng.randint(2, 40))
            balancer.change(able)
        if number % 3 == 0:
            one = rng.choice(able)
            one.running = rng.randint(0, 8)
            balancer.change(able)
        prefix = rng.randrange(60)
        # The gateway's own lines (`trimodal/gateway/upstreams/pool.py`).
        named = {one.address: one for one in able}
        order = [named[address] for address in ranked(str(prefix).encode(), list(named))]
        most = most_running(sum(one.running for one in able), len(able))
        expected = sorted(order, key=lambda one: one.running >= most)[0]
        assert balancer.pick(prefix) is expected
    assert balancer.kept > 0
    assert balancer.passed_on > 0


def test_of_two_the_one_that_has_less() -> None:
    balancer = make_balancer("random_of_two", random.Random(1))
    full, empty = servers(2)
    full.running = 5
    balancer.change([full, empty])
    picked = [balancer.pick(None) for _ in range(400)]
    assert 60 < picked.count(full) < 140  # drawn twice: a quarter


def test_prompts_of_their_own_are_spread() -> None:
    balancer = Affinity(random.Random(1))
    able = servers(4)
    balancer.change(able)
    picked = [balancer.pick(None) for _ in range(4000)]
    assert all(850 < picked.count(one) < 1150 for one in able)
