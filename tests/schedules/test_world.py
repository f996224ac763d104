"""The simulation of threads and time itself: what waits, what is chosen, what is told of a deadlock."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.schedules.install import installed
from tests.schedules.play import PACKAGES, Scenario, play
from tests.schedules.world import Finding, World


class Counter(Scenario):
    """Two threads add to a number without a lock."""

    switching = (__name__,)

    def run(self) -> None:
        self.number = 0
        together(self._add, self._add)

    def _add(self) -> None:
        number = self.number
        self.number = number + 1

    def check(self) -> None:
        assert self.number == 2


class Deadlock(Scenario):
    """Two threads take two locks in different orders."""

    def run(self) -> None:
        one, other = threading.Lock(), threading.Lock()

        def take(first: threading.Lock, second: threading.Lock) -> Callable[[], None]:
            def body() -> None:
                with first, second:
                    pass

            return body

        together(take(one, other), take(other, one))

    def check(self) -> None:
        """It ended: all is well."""


def together(*runs: Callable[[], None]) -> None:
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def findings(kind: type[Scenario], count: int) -> list[str]:
    found = []
    for seed in range(count):
        try:
            play(kind, seed)
        except Finding as finding:
            found.append(str(finding))
    return found


def test_a_lost_update_shows_between_two_statements() -> None:
    found = findings(Counter, 100)
    assert 0 < len(found) < 50

    class Whole(Counter):
        switching = ()

    assert not findings(Whole, 100)


def test_a_deadlock_is_told_with_seed_and_stacks() -> None:
    found = findings(Deadlock, 50)
    assert 0 < len(found) < 50
    assert "Deadlock seed" in found[0]
    assert "every thread waits" in found[0]
    assert "test_world.py" in found[0]
    assert "(1 locks)" in found[0]
    assert "its last switches" in found[0]


@pytest.mark.parametrize("seed", range(20))
def test_time_passes_without_being_waited_for(seed: int) -> None:
    with installed(World(seed, stall_s=0.0), PACKAGES) as world:
        began, really = time.monotonic(), world.now
        time.sleep(3600)
        assert 3600 <= time.monotonic() - began == world.now - really < 3601
        with pytest.raises(queue.Empty):
            queue.SimpleQueue().get(timeout=60)  # type: ignore[var-annotated]
        lock = threading.Lock()
        assert lock.acquire()
        assert not lock.acquire(timeout=60)
        assert not threading.Event().wait(60)
        assert time.monotonic() - began >= 3600 + 3 * 60


@pytest.mark.parametrize("seed", range(10))
def test_conditions_and_semaphores_carry_an_executor(seed: int) -> None:
    with installed(World(seed), PACKAGES), ThreadPoolExecutor(2) as executor:
        results = [executor.submit(lambda n=n: (time.sleep(0.01), n)[1]) for n in range(5)]
        assert [one.result(60) for one in results] == [0, 1, 2, 3, 4]


def test_an_error_in_a_thread_fails_the_schedule() -> None:
    def fail() -> None:
        raise ValueError("in a thread")

    with installed(World(1), PACKAGES), pytest.raises(ValueError, match="in a thread"):
        together(fail)


def test_a_thread_that_is_not_of_the_world_is_left_alone() -> None:
    """One that an earlier test left behind runs through the same statements."""
    world = World(1)
    world.spawn("other", lambda: None)
    thread = threading.Thread(target=lambda: [world.line() for _ in range(200)])
    thread.start()
    thread.join(10)
    assert world.switches == 0
    world.stop()


def test_what_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.schedules.world.MOST_SWITCHES", 500)

    def spin() -> None:
        while True:
            time.sleep(0.1)

    with installed(World(1), PACKAGES), pytest.raises(Finding, match="no end after"):
        together(spin, spin)


def test_a_lock_that_is_not_held_is_not_released() -> None:
    with installed(World(1), PACKAGES), pytest.raises(RuntimeError, match="release unlocked lock"):
        threading.Lock().release()
    assert threading.Lock().__class__.__module__ == "_thread", "the stand-ins are gone afterwards"
