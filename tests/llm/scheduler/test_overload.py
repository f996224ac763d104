"""What the scheduler keeps under load in front of a simulated engine, against first in, first out.

`python -m pytest tests/llm/scheduler/test_overload.py -k buys -rP` prints what four of its rules buy.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import lru_cache

import pytest

from tests.llm.scheduler.engine_rig import info, settings
from tests.llm.scheduler.simulation import Client, Pace, Server, poisson
from trimodal.llm.scheduler.waiting_queue import WaitingQueue
from trimodal.llm.tiers import Tier

SECONDS = 30
CAPACITY = 13.0
"""Requests a second that 16 streams can take: answers of 60 tokens on average, 20 ms a step with prompts."""
MIX = {
    "premium": (Tier(priority=10, ttft_deadline_ms=500), 0.1),
    "standard": (Tier(ttft_deadline_ms=1500), 0.6),
    "batch": (Tier(priority=-10, ttft_deadline_ms=5000), 0.3),
}

SHIPPED = {
    "premium": (Tier(priority=10, ttft_deadline_ms=2000), 0.1),
    "standard": (Tier(), 0.6),
    "batch": (Tier(priority=-10, kv_share=0.5), 0.3),
}
"""The tiers of model_repository/llm/tiers.toml."""


def serve(clients: list[Client], pace: Pace | None = None, blocks: int = 2000, **values: object) -> Server:
    values = {"max_num_seqs": 16, "max_queue": 256, **values}
    server = Server(settings(**values), info(blocks, 16), pace)
    server.run(clients, until=1.0 + 2 * SECONDS)
    return server


@lru_cache
def load(factor: float, scheduler: str = "deadline") -> list[Client]:
    clients = poisson(CAPACITY * factor, SECONDS, 1, MIX)
    serve(clients, scheduler=scheduler, max_queue=256 if scheduler == "deadline" else 100_000)
    return clients


def goodput(clients: list[Client]) -> float:
    return sum(client.met for client in clients) / SECONDS


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def errors(clients: list[Client]) -> list[float]:
    known = [client for client in clients if client.ttft < math.inf]
    found = [abs(client.ttft - client.ticket.predicted_ttft) for client in known]
    return [error for error in found if not math.isnan(error)]


@pytest.mark.slow
def test_goodput_at_ten_times_the_capacity_is_that_at_its_peak() -> None:
    peak = max(goodput(load(factor)) for factor in (0.5, 1, 2))
    assert goodput(load(10)) >= 0.9 * peak


@pytest.mark.slow
def test_first_in_first_out_collapses_under_the_same_load() -> None:
    """Twice the capacity is enough for that."""
    assert goodput(load(1, "fifo")) > 0.8 * goodput(load(1))
    assert goodput(load(2, "fifo")) < 0.2 * goodput(load(2))


@pytest.mark.parametrize("factor", [1, 2, 10])
def test_the_highest_tier_is_in_time(factor: float) -> None:
    answered = [
        client.ttft for client in load(factor) if client.done and client.ticket.tier_name == "premium"
    ]
    assert percentile(answered, 0.99) <= 0.5


@pytest.mark.parametrize("factor", [1, 2, 10])
def test_most_of_those_let_in_are_in_time(factor: float) -> None:
    admitted = [
        client for client in load(factor) if not client.refused and client.at > 6
    ]  # it learns at first
    assert sum(client.met for client in admitted) >= 0.9 * len(admitted)
    late = [client for client in admitted if client.done and not client.met]
    assert len(late) <= 0.01 * len(admitted)  # the others left the queue and cost the engine nothing


def test_within_capacity_hardly_anybody_is_refused() -> None:
    refused = [client for client in load(0.5) if client.refused or client.expired]
    assert len(refused) <= 0.01 * len(load(0.5))


@pytest.mark.parametrize(
    ("factor", "p50", "p90"), [(0.5, 0.010, 0.025), (1, 0.050, 0.4), (2, 0.2, 0.6), (10, 0.2, 0.6)]
)
def test_first_texts_come_when_they_are_foreseen(factor: float, p50: float, p90: float) -> None:
    """A step takes 10 to 30 ms, an answer about a second, deadlines are 0.5 to 5 s."""
    found = errors(load(factor))
    assert len(found) > 100
    assert percentile(found, 0.5) <= p50
    assert percentile(found, 0.9) <= p90


def test_what_is_without_a_deadline_waits_but_never_for_ever() -> None:
    """The highest tier alone asks for four times what there is; each 1 s of waiting raises a class by one."""
    mix = {"premium": MIX["premium"], "batch": (Tier(priority=-10), 0.02)}
    clients = poisson(4 * CAPACITY, SECONDS, 1, {"premium": (mix["premium"][0], 0.98), "batch": mix["batch"]})
    serve(clients, ageing_s=1.0)
    batch = [client for client in clients if client.ticket.tier_name == "batch"]
    assert len(batch) > 20
    assert all(client.done for client in batch)
    assert max(client.ttft for client in batch) < 20 * 1.0 + 10  # it is above all newcomers after 20 s


def share_met(clients: list[Client], tier: str) -> float:
    of_tier = [client for client in clients if client.ticket.tier_name == tier]
    return sum(client.met for client in of_tier) / len(of_tier)


@pytest.mark.slow
def test_what_displacement_buys(monkeypatch: pytest.MonkeyPatch) -> None:
    """At twice the capacity, requests without deadlines fill the queue; the highest tier still gets in."""

    def premium() -> float:
        clients = poisson(2 * CAPACITY, 2 * SECONDS, 1, SHIPPED)
        serve(clients, max_queue=64)
        return share_met(clients, "premium")

    displacing = premium()
    monkeypatch.setattr(WaitingQueue, "last", lambda self: None)
    refusing = premium()
    print(f"premium in time at 2x load: {displacing:.1%}; without displacement {refusing:.1%}")
    assert displacing >= 0.95
    assert refusing <= 0.7


@pytest.mark.slow
def test_what_ageing_buys() -> None:
    """At 1.5 times the capacity, 95 % of it premium, a standard request waits for 10 · 5 s and its turn."""

    def begun(ageing_s: float) -> tuple[float, float, float]:
        mix = {"premium": (SHIPPED["premium"][0], 0.95), "standard": (Tier(), 0.05)}
        clients = poisson(1.5 * CAPACITY, 180, 1, mix)
        server = Server(settings(max_num_seqs=16, max_queue=64, ageing_s=ageing_s), info(2000, 16))
        server.run(clients, until=181.0)
        early = [c for c in clients if c.ticket.tier_name == "standard" and c.at < 120]
        waits = [client.ttft for client in early if client.ttft < math.inf]
        return len(waits) / len(early), max(waits), share_met(clients, "premium")

    aged, without = begun(5.0), begun(1e9)
    for name, (share, longest, premium) in (("ageing", aged), ("none", without)):
        print(f"{name}: standard served {share:.0%}, at most {longest:.0f} s; premium in time {premium:.1%}")
    assert aged[0] >= 0.6
    assert aged[1] <= 60
    assert without[0] <= 0.1
    assert aged[2] >= without[2] - 0.05


@pytest.mark.slow
def test_what_boosting_buys() -> None:
    """Half of the requests ask one of ten questions: who joins a lower tier's request keeps its own terms."""

    def premium(boosts: bool) -> float:
        clients = poisson(2 * CAPACITY, 2 * SECONDS, 1, SHIPPED)
        draw = random.Random(5)
        for client in clients:
            client.question = draw.choice([0, 1 + draw.randrange(10)])
        server = Server(settings(max_num_seqs=16, max_queue=64), info(2000, 16))
        server.boosts = boosts
        server.run(clients, until=1.0 + 2 * SECONDS)
        return share_met(clients, "premium")

    with_it, without = premium(True), premium(False)
    print(f"premium in time at 2x load: {with_it:.1%}; in the place of the one it joins {without:.1%}")
    assert with_it >= 0.9
    assert without <= with_it - 0.15


def test_what_turns_buy() -> None:
    """A tenant floods with four times what the engine can take, another asks once in a second or so."""

    def other(tenants: tuple[str, str]) -> tuple[float, float]:
        tiers = {"standard": (Tier(), 1.0)}
        clients = poisson(4 * CAPACITY, SECONDS, 1, tiers)
        few = poisson(0.8, SECONDS, 2, tiers, first_id=10**6)
        for tenant, each in [
            *((tenants[0], each) for each in clients),
            *((tenants[1], each) for each in few),
        ]:
            each.ticket.tenant = tenant
        serve([*clients, *few], max_queue=64)
        served = [each.ttft for each in few if each.ttft < math.inf]
        return len(served) / len(few), percentile(served, 0.95)

    with_it, without = other(("flood", "other")), other(("", ""))
    print(
        f"turns: of another tenant {with_it[0]:.0%} are served, TTFT p95 {with_it[1]:.1f} s; "
        f"without {without[0]:.0%}, {without[1]:.1f} s"
    )
    assert with_it[0] == 1
    assert with_it[1] < 1.0
    assert without[0] < 0.6


def test_a_big_request_is_served_among_small_ones_that_never_cease() -> None:
    clients = poisson(2 * CAPACITY, SECONDS, 1, {"standard": (Tier(ttft_deadline_ms=1500), 1.0)})
    big = poisson(
        1, SECONDS, 2, {"big": (Tier(), 1.0)}, prompt=(2000, 2000), max_tokens=600, first_id=100_000
    )[0]
    serve([*clients, big], blocks=100)  # it takes 82 of them
    assert big.done
    assert big.ttft < 15
    assert goodput(clients) > 4


def test_a_slow_start_is_forgotten() -> None:
    """For 5 s the engine is a hundred times slower than later: on those figures all would be refused."""
    clients = poisson(5, SECONDS, 1, MIX)
    server = Server(settings(max_num_seqs=16), info(2000, 16))
    usual = server.pace

    def slow_at_first() -> None:
        factor = 100 if server.now < 6 else 1
        server.pace = replace(
            usual, base=factor * usual.base, stream=factor * usual.stream, token=factor * usual.token
        )

    slow_at_first()
    server.watch = slow_at_first
    server.run(clients)
    later = [client for client in clients if client.at > 16]
    assert sum(client.met for client in later) >= 0.98 * len(later)


def test_while_the_engine_hangs_nobody_waits_in_vain() -> None:
    """One step takes 6 s, and nothing tells that it will: who comes meanwhile is refused on arrival."""
    clients = poisson(10, SECONDS, 1, MIX)
    server = Server(settings(max_num_seqs=16), info(2000, 16))
    usual, hung = server.pace, []

    def hang_once() -> None:
        server.pace = usual
        if server.now > 15 and not hung:
            hung.append(server.now)
            server.pace = replace(usual, base=6.0)

    server.watch = hang_once
    server.run(clients)
    meanwhile = [
        client
        for client in clients
        if hung[0] + 1.7 < client.at < hung[0] + 5.5 and client.ticket.ttft_deadline - client.at < 2
    ]
    assert len(meanwhile) > 20
    assert sum(not client.refused for client in meanwhile) <= 2  # let in to see whether it goes on
    later = [client for client in clients if client.at > hung[0] + 16]
    assert sum(client.met for client in later) >= 0.95 * len(later)


def test_gaps_of_running_streams_stay_within_their_bound() -> None:
    def gaps(bound: float) -> tuple[float, float]:
        mix = {"chat": (Tier(itl_bound_ms=bound, ttft_deadline_ms=3000), 1.0)}
        clients = poisson(9, SECONDS, 1, mix, prompt=(100, 600))
        serve(clients, Pace(batch=4096), max_num_batched_tokens=4096)
        assert goodput(clients) > 8.5
        found = [gap for client in clients for gap in client.gaps]
        return percentile(found, 0.999), max(found)

    assert gaps(0)[0] > 0.060
    within, longest = gaps(55)
    assert within <= 0.055
    assert longest < gaps(0)[1]


def test_who_comes_again_when_told_to_is_let_in() -> None:
    """A burst of seven times what fits into the deadline, then silence: all get in, after a try or two."""
    clients = poisson(6, 15, 1, MIX)
    burst = poisson(300, 0.5, 2, {"standard": MIX["standard"]}, first_id=10_000, start=16.0)
    for client in burst:
        client.patient = True
    serve([*clients, *burst])
    assert sum(client.tries > 1 for client in burst) > 100
    assert sum(client.met for client in burst) >= 0.9 * len(burst)
    assert sum(client.tries for client in burst) <= 3.5 * len(burst)
