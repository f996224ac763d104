"""The balancers, and that affinity follows the gateway's own rule."""

from __future__ import annotations

import random

from tests.plan.fleet.given import replica
from trimodal.gateway.upstreams.affinity import most_running, ranked
from trimodal.plan.fleet.balancers import Balancer, Replica
from trimodal.plan.fleet.engine import Engine


def servers(count: int) -> list[Replica]:
    return [Replica(f"replica-{number}:8001", Engine(replica())) for number in range(count)]


def test_least_connections_always_finds_the_least_and_of_equals_the_next_in_turn() -> None:
    rng, able = random.Random(4), servers(7)
    balancer = Balancer("least_connections", able, rng)
    assert [balancer.pick(None) for _ in range(14)] == able * 2
    for _ in range(2000):
        busy = [one for one in able if one.running]
        if busy and rng.random() < 0.5:
            rng.choice(busy).running -= 1
        chosen = balancer.pick(None)
        assert chosen.running == min(one.running for one in able)
        chosen.running += 1


def test_affinity_chooses_as_the_gateway_does() -> None:
    """At any load."""
    rng, able = random.Random(5), servers(20)
    balancer = Balancer("affinity", able, random.Random(6))
    named = {one.address: one for one in able}
    passed_over = 0
    for number in range(2000):
        if number % 3 == 0:
            rng.choice(able).running = rng.randint(0, 8)
        prefix = rng.randrange(60)
        # The gateway's own lines (`trimodal/gateway/upstreams/pool.py`).
        order = [named[address] for address in ranked(str(prefix).encode(), list(named))]
        most = most_running(sum(one.running for one in able), len(able))
        expected = sorted(order, key=lambda one: one.running >= most)[0]
        assert balancer.pick(prefix) is expected
        passed_over += expected is not order[0]
    assert 0 < passed_over < 2000
