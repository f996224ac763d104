"""The threshold rises when the bound is broken, falls on evidence alone, and is nobody else's."""

from __future__ import annotations

import random
import threading

import pytest

from trimodal.cache.audit.promise import LEVELS, NEVER, Group, Promise, Promises
from trimodal.cache.values import Place

FLOOR, MOST, SHARE = 0.9, 0.01, 0.02


def place(tenant: str = "", namespace: str = "default") -> Place:
    return Place("0" * 16, tenant, namespace, "0" * 64)


def raised() -> Promise:
    """One that every audited hit has refuted."""
    promise = Promise(FLOOR, MOST, SHARE)
    for _ in range(200):
        promise.hit(0.95, "disagreed")
    return promise


def test_good_hits_move_nothing() -> None:
    promise = Promise(FLOOR, MOST, SHARE)
    for number in range(5000):
        promise.hit(0.95, "disagreed" if number % 1000 == 999 else "agreed")
    assert promise.threshold == FLOOR
    assert promise.status().false_hits.upper < 0.015


def test_wrong_hits_end_all_hits_where_no_score_keeps_the_bound() -> None:
    assert raised().threshold == NEVER


def test_it_rises_to_the_lowest_level_that_keeps_the_bound() -> None:
    promise, draw = Promise(FLOOR, MOST, SHARE), random.Random(1)
    for _ in range(1500):
        promise.hit(0.99, "agreed")
    while not promise.raised:
        promise.hit(0.91, "disagreed" if draw.random() < 0.5 else "agreed")
    assert promise.threshold == pytest.approx(0.95)
    assert promise.status().false_hits.rate == 0.0


def test_unclear_answers_alone_raise_nothing_and_let_nothing_fall() -> None:
    promise = Promise(FLOOR, MOST, SHARE)
    for _ in range(2000):
        promise.hit(0.95, "unclear")
    assert promise.threshold == FLOOR
    promise = raised()
    for _ in range(3000):
        promise.near_miss(0.95, "unclear", 1.0)
    assert promise.threshold == NEVER


def test_it_falls_to_the_lowest_level_that_held_back_questions_keep_and_never_below_the_floor() -> None:
    promise = raised()
    for _ in range(500):
        promise.near_miss(0.96, "agreed", 1.0)
    assert promise.threshold == NEVER, "so few prove nothing"
    for _ in range(300):
        promise.near_miss(0.96, "agreed", 1.0)
    assert promise.threshold == FLOOR
    for _ in range(3000):
        promise.near_miss(0.5, "agreed", SHARE)
    assert promise.threshold == FLOOR
    assert promise.status().missed_hits.lower > 0.9


def test_it_falls_no_lower_than_the_evidence() -> None:
    promise, draw = raised(), random.Random(2)
    for _ in range(3000):
        promise.near_miss(0.999, "agreed", 1.0)
        promise.near_miss(0.93, "disagreed" if draw.random() < 0.5 else "agreed", 1.0)
    assert 0.93 < promise.threshold <= 0.999


def test_it_rises_again_after_it_fell() -> None:
    promise = raised()
    for _ in range(1000):
        promise.near_miss(0.96, "agreed", 1.0)
    for _ in range(200):
        promise.hit(0.96, "disagreed")
    assert promise.threshold == NEVER


def test_a_hit_of_a_lower_threshold_than_now_counts_no_more() -> None:
    promise = raised()
    promise.hit(0.95, "agreed")
    assert promise.status().false_hits.samples == 0


def test_the_levels_halve_the_distance_to_one() -> None:
    thresholds = Promise(FLOOR, MOST, SHARE)._thresholds
    assert thresholds[:3] == pytest.approx([0.9, 0.95, 0.975])
    assert len(thresholds) == LEVELS + 1
    assert thresholds == sorted(thresholds)


def test_a_floor_that_only_certainty_reaches_has_levels_too() -> None:
    promise = Promise(1.0, MOST, SHARE)
    for _ in range(300):
        promise.hit(1.0, "disagreed")
    assert promise.threshold == NEVER


def flood(promises: Promises, where: Place, *, agreed: bool) -> None:
    for _ in range(1000):
        promises.near_miss(where, 0.96, "agreed" if agreed else "disagreed", 1.0)
        promises.hit(where, 0.96, "agreed" if agreed else "disagreed")


def test_no_tenant_lowers_or_raises_anothers_threshold() -> None:
    promises = Promises(FLOOR, MOST, SHARE)
    victim, other = place("victim"), place("other")
    flood(promises, victim, agreed=False)
    assert promises.threshold(victim) == NEVER
    flood(promises, other, agreed=True)
    assert (promises.threshold(victim), promises.threshold(other)) == (NEVER, FLOOR)
    flood(promises, other, agreed=False)
    assert promises.threshold(place("third")) == FLOOR
    assert promises.threshold(place("victim", "faq")) == FLOOR
    assert promises.status(Group("third", "default")).false_hits.samples == 0


def test_a_flood_of_tenants_makes_no_raised_threshold_forgotten() -> None:
    promises = Promises(FLOOR, MOST, SHARE, groups=3)
    flood(promises, place("victim"), agreed=False)
    for number in range(50):
        promises.hit(place(f"t{number}"), 0.95, "agreed")
    assert promises.threshold(place("victim")) == NEVER
    assert len(promises._kept) == 3


def test_beyond_the_bound_of_raised_groups_there_are_no_hits() -> None:
    promises = Promises(FLOOR, MOST, SHARE, groups=2)
    for tenant in ("one", "two"):
        flood(promises, place(tenant), agreed=False)
    assert promises.threshold(place("three")) == NEVER
    assert not promises.hit(place("three"), 0.95, "agreed")
    for _ in range(3):  # until what disagreed is forgotten
        flood(promises, place("one"), agreed=True)
    assert promises.threshold(place("three")) == FLOOR


def test_the_least_recently_audited_goes() -> None:
    promises = Promises(FLOOR, MOST, SHARE, groups=2)
    for tenant in ("one", "two", "one", "three"):
        promises.hit(place(tenant), 0.95, "agreed")
    assert {group.tenant for group in promises._kept} == {"one", "three"}


def test_threads_lose_no_audit() -> None:
    promises = Promises(FLOOR, MOST, SHARE)

    def take() -> None:
        for _ in range(100):
            promises.hit(place("acme"), 0.95, "agreed")
            promises.threshold(place("acme"))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert promises.status(Group("acme", "default")).false_hits.samples == 400
