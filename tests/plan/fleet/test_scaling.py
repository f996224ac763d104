"""The autoscaler: what it wants, its bounds, its cooldown, cold starts and the warm pool."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.plan.fleet.given import Between, Exactly, plan, play, replica
from trimodal.errors import SettingsError
from trimodal.plan.fleet.plans import Scaling
from trimodal.plan.fleet.scaling import Autoscaler
from trimodal.plan.fleet.simulation import Simulation
from trimodal.plan.fleet.tally import Objective
from trimodal.plan.fleet.workload import Generated


def scaler(**fields: Any) -> Autoscaler:
    values = {"metric": "in_flight", "target": 10, "max": 50, "cooldown_s": 0, "down_share": 1.0, **fields}
    return Autoscaler(Scaling.model_validate(values), ttft=0.5)


def test_it_wants_as_many_as_bring_the_metric_to_its_target() -> None:
    assert scaler().look(0.0, 4, [], 60) == 6
    assert scaler().look(0.0, 4, [], 20) == 2
    assert scaler().look(0.0, 4, [], 43) == 4  # within the tolerance


def test_up_it_goes_by_twice_or_four_at_most() -> None:
    assert scaler().look(0.0, 2, [], 1000) == 6
    assert scaler().look(0.0, 20, [], 1000) == 40
    assert scaler(up_share=0.5).look(0.0, 20, [], 1000) == 30
    assert scaler(max=25).look(0.0, 20, [], 1000) == 25


def test_down_it_goes_when_less_was_enough_for_the_whole_cooldown() -> None:
    tried = scaler(cooldown_s=60)
    assert tried.look(0.0, 10, [], 100) == 10
    assert [tried.look(at, 10, [], 40) for at in (15.0, 45.0, 60.0)] == [10, 10, 10]
    assert tried.look(75.0, 10, [], 40) == 4


def test_down_it_goes_by_a_share() -> None:
    assert scaler(down_share=0.1).look(0.0, 20, [], 10) == 18
    assert scaler(down_share=0.1, min=3).look(0.0, 4, [], 0) == 3


def test_queue_seconds_are_of_those_handed_over_and_those_that_wait() -> None:
    tried = scaler(metric="queue_seconds", target=1.0)
    tried.handed(0.5)
    tried.handed(1.5)
    assert tried.look(0.0, 4, [4.0, 2.0], 0) == 8  # a mean of 2 s
    assert tried.look(1.0, 4, [], 0) == 1  # counted anew


def test_the_burn_rate_is_the_share_of_late_ones_over_what_the_objective_allows() -> None:
    tried = scaler(metric="ttft_burn_rate", target=1.0, objective=0.9)
    for number in range(100):
        tried.told(0.6 if number < 20 else 0.4)
    assert tried.look(0.0, 3, [], 0) == 6


@pytest.mark.parametrize(
    ("metric", "target"), [("queue_seconds", 0.05), ("ttft_burn_rate", 1.0), ("in_flight", 3)]
)
def test_it_never_has_more_than_its_maximum_or_fewer_than_its_minimum(metric: str, target: float) -> None:
    """Serving and starting ones; with a warm pool, failures and a load that comes and goes."""
    work = Generated("diurnal", 40, 120, Exactly(50), Between(1, 40), swing=1.0, period=60, seed=2)
    tried = plan(
        replicas=2,
        autoscaler={
            "metric": metric, "target": target, "min": 2, "max": 7, "polling_s": 1, "cooldown_s": 3,
            "warm": 2,
        },
        failure=[{"kind": "dies", "at": 30}, {"kind": "dies", "at": 55, "restart": False}],
    )  # fmt: skip
    seen: list[int] = []
    simulation = Simulation(tried, work, Objective(0.1))
    changed = simulation.members._changed

    def watch(now: float) -> None:
        changed(now)
        seen.append(simulation.members.current)

    simulation.members._changed = watch  # type: ignore[method-assign]
    found = simulation.run()
    assert max(seen) == 7
    assert max(ready for _, ready, _ in found.replicas) <= 7
    assert min(seen) >= 1  # one below the minimum, until it looks again after a death
    assert found.answered + found.lost + found.refused == found.requests


def test_cold_starts_take_their_time_and_warm_ones_less() -> None:
    work = Generated("poisson", 60, 40, Exactly(50), Exactly(20), seed=2)

    def second_ready(warm: int) -> float:
        scaling = {"metric": "in_flight", "target": 2, "max": 2, "polling_s": 2, "warm": warm}
        found, _ = play(plan(replica(), replicas=1, autoscaler=scaling), work)
        return next(at for at, ready, _ in found.replicas if ready == 2)

    assert second_ready(0) == pytest.approx(2.0 + 5.0)
    assert second_ready(1) == pytest.approx(2.0 + 0.5)


def test_the_warm_pool_is_paid_for_and_filled_again() -> None:
    work = Generated("poisson", 60, 40, Exactly(50), Exactly(20), seed=2)
    scaling = {"metric": "in_flight", "target": 2, "max": 3, "polling_s": 2, "warm": 1}
    found, simulation = play(plan(replica(), replicas=1, autoscaler=scaling), work)
    assert found.most_replicas == 4  # three and the pool's one
    assert found.replicas[0] == (0.0, 1, 2)
    assert sum(one.state == "warm" for one in simulation.members.all) == 1


def test_those_that_are_scaled_down_finish_what_they_have() -> None:
    work = Generated("diurnal", 30, 200, Exactly(50), Between(1, 60), swing=1.0, period=200)
    scaling = {"metric": "in_flight", "target": 3, "max": 8, "polling_s": 2, "cooldown_s": 4}
    found, _ = play(plan(replica(cold_start_s=1), replicas=2, autoscaler=scaling), work)
    ready = [count for _, count, _ in found.replicas]
    assert any(later < before for before, later in itertools.pairwise(ready))
    assert (found.lost, found.answered) == (0, found.requests)
    assert found.replica_hours * 3600 < 8 * 200


def test_a_burn_rate_needs_a_bound() -> None:
    scaling = {"metric": "ttft_burn_rate", "target": 1, "max": 3}
    with pytest.raises(SettingsError, match="ttft_burn_rate needs --slo"):
        play(
            plan(autoscaler=scaling),
            Generated("poisson", 1, 5, Exactly(1), Exactly(1)),
            objective=Objective(),
        )
