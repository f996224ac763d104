"""The simulated engine: batching, chunks, admission, the prefix cache, and runs that are cut short."""

from __future__ import annotations

import random

import pytest

from tests.plan.fleet.given import replica
from trimodal.plan.fleet.engine import Engine, Sequence
from trimodal.plan.fleet.spec import ReplicaFigures


class Driven:
    """An engine that is sent requests at set times; what ended when, by name."""

    def __init__(self, figures: ReplicaFigures) -> None:
        self.engine = Engine(figures)
        self.figures = figures
        self.ended: dict[Sequence, float] = {}

    def run(self, *requests: Sequence) -> None:
        due = sorted(requests, key=lambda one: one.at)
        while due or self.engine.ends is not None:
            if due and (self.engine.ends is None or due[0].at <= self.engine.ends):
                one = due.pop(0)
                one.blocks = self.figures.blocks(one.prompt, one.output)
                self.engine.submit(one, one.at)
            else:
                assert self.engine.ends is not None
                at = self.engine.ends
                for one in self.engine.complete(at):
                    self.ended[one] = at


def test_one_request_alone() -> None:
    """100 prompt tokens and a step, then a step a token."""
    driven, one = Driven(replica()), Sequence(1.0, 100, 5)
    driven.run(one)
    assert one.first == pytest.approx(1.0 + 0.010 + 0.010)
    assert driven.ended[one] == pytest.approx(one.first + 4 * 0.010)


def test_a_long_prompt_is_computed_in_chunks() -> None:
    """600 tokens are steps of 256, 256 and 88."""
    driven, one = Driven(replica()), Sequence(0.0, 600, 1)
    driven.run(one)
    assert driven.ended[one] == pytest.approx(3 * 0.010 + 600e-4)


def test_an_arrival_joins_after_the_step_that_is_made() -> None:
    driven = Driven(replica(prefill_us=0.0))
    one, other = Sequence(0.0, 32, 100), Sequence(0.0333, 32, 1)
    driven.run(one, other)
    assert other.first == pytest.approx(0.050)
    assert driven.ended[one] == pytest.approx(1.0)


def test_room_that_a_step_frees_is_filled_in_the_step_after_the_next() -> None:
    """As in the server: the engine has begun its next step when the service hears of the end."""
    driven = Driven(replica(prefill_us=0.0, max_num_seqs=2))
    long, short, queued = Sequence(0.0, 32, 50), Sequence(0.0, 32, 10), Sequence(0.0, 32, 1)
    driven.run(long, short, queued)
    assert driven.ended[short] == pytest.approx(0.110)  # its prompt came a step after that of `long`
    assert queued.first == pytest.approx(0.130)


def test_the_first_in_line_waits_for_its_blocks_and_none_overtakes_it() -> None:
    driven = Driven(replica(num_kv_blocks=10, prefill_us=0.0))
    one, large, small = Sequence(0.0, 160, 10), Sequence(0.001, 200, 10), Sequence(0.002, 32, 1)
    driven.run(one, large, small)
    assert large.first == pytest.approx(driven.ended[one] + 0.010)
    assert small.first >= large.first


def test_a_full_queue_refuses_unless_there_is_room_at_once() -> None:
    engine = Engine(replica(max_num_seqs=1, max_queue=1))
    requests = [Sequence(0.0, 32, 10) for _ in range(3)]
    for one in requests:
        one.blocks = 2
    taken = []
    for one in requests:
        taken.append(engine.takes(one))
        if taken[-1]:
            engine.submit(one, 0.0)
    assert taken == [True, True, False]
    nothing_waits = Engine(replica(max_queue=0))
    assert nothing_waits.takes(requests[0])


def test_runs_of_steps_are_the_same_as_single_steps() -> None:
    """Arrivals that change nothing for others cut runs short; the times stay."""

    def ends(cut: bool) -> list[float]:
        driven = Driven(replica(max_num_seqs=8))
        rng = random.Random(3)
        requests = [Sequence(rng.random() * 2, rng.randint(1, 700), rng.randint(1, 60)) for _ in range(60)]
        if cut:
            original = driven.engine._begin

            def begin(now: float) -> None:
                original(now)
                if driven.engine.ends is not None:
                    driven.engine._count = 1
                    driven.engine.ends = driven.engine._began + driven.engine._step

            driven.engine._begin = begin  # type: ignore[method-assign]
        driven.run(*requests)
        return [driven.ended[one] for one in requests]

    assert ends(True) == pytest.approx(ends(False))


def test_cached_beginnings_are_not_computed_again() -> None:
    driven = Driven(replica(prefill_us=1000.0))
    first, again = Sequence(0.0, 200, 2, "a", 128), Sequence(5.0, 300, 2, "a", 128)
    whole = Sequence(10.0, 128, 2, "a", 128)
    other = Sequence(15.0, 300, 2, "b", 128)
    driven.run(first, again, whole, other)
    assert [one.cached for one in (first, again, whole, other)] == [0, 128, 127, 0]
    assert again.first - again.at == pytest.approx(0.010 + 0.172)
