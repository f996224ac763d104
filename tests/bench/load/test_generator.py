"""The generator on a virtual clock: what it measures is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count, islice, pairwise
from statistics import mean, pstdev
from typing import Any

import pytest

from tests.doubles.virtual_clock import run_virtually
from trimodal.bench.load import generator
from trimodal.bench.load.generator import Closed, LoadRun, Send, poisson, run
from trimodal.bench.load.records import OK, UNREACHABLE, Record


def server(takes: Callable[[int], float], outcome: str = OK, at_once: int = 10**6) -> Send:
    """Answers request n after `takes(n)` seconds, so many at once."""
    room: list[asyncio.Semaphore] = []

    async def send(number: int) -> Record:
        room or room.append(asyncio.Semaphore(at_once))
        clock = asyncio.get_running_loop().time
        sent = clock()
        async with room[0]:
            await asyncio.sleep(takes(number))
        return Record(number, sent, sent, (clock(),), clock(), outcome, "" if outcome == OK else "why")

    return send


def evenly(rate: float) -> Iterator[float]:
    """Arrivals of an open loop, `rate` a second."""
    return (number / rate for number in count())


def ran(send: Send, arrivals: Any, **options: Any) -> LoadRun:
    return run_virtually(run(send, arrivals, **options))


def test_a_closed_loop_keeps_so_many_under_way() -> None:
    done = ran(server(lambda _: 0.4), Closed(3), seconds=4.0, warmup=1.0)
    assert len(done.records) == 3 * 13
    assert (done.began, done.seconds) == pytest.approx((1.0, 4.0))
    assert len(done.counted) == 3 * 10
    assert {round(record.latency, 6) for record in done.records} == {0.4}
    assert sorted(record.number for record in done.records) == list(range(39))


def test_a_number_of_requests_is_answered_after_those_that_warm_up() -> None:
    done = ran(server(lambda _: 0.5), Closed(2), requests=7, warmup=2)
    assert len(done.records) == 9
    assert len(done.counted) == 7
    assert done.began == pytest.approx(0.5)
    assert done.seconds == pytest.approx(2.0)


def test_an_open_loop_sends_when_it_is_due_however_slow_the_server() -> None:
    done = ran(server(lambda _: 7.0), evenly(2.0), seconds=5.0)
    assert [record.sent for record in done.records] == pytest.approx([number / 2 for number in range(10)])
    assert {round(record.latency, 6) for record in done.records} == {7.0}


def test_a_stall_counts_for_every_request_that_was_due_meanwhile() -> None:
    """Coordinated omission: one request stalls a server with one place; those behind it wait as well."""
    done = ran(server(lambda n: 2.0 if n == 0 else 0.01, at_once=1), evenly(10.0), seconds=2.0)
    waits = [record.latency for record in sorted(done.records, key=lambda record: record.number)]
    assert waits[10] == pytest.approx(1.0 + 0.01 * 10)
    assert sum(wait > 0.5 for wait in waits) >= 14


def test_a_late_generator_makes_latencies_longer_not_the_load_smaller() -> None:
    async def send(number: int) -> Record:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        if number == 0:
            loop._now += 1.0  # type: ignore[attr-defined]  # a second in which nothing runs
        await asyncio.sleep(0.01)
        return Record(number, sent, sent, (), loop.time())

    done = ran(send, evenly(10.0), seconds=2.0)
    second = next(record for record in done.records if record.number == 1)
    assert second.due == pytest.approx(0.1)
    assert second.sent == pytest.approx(1.0)
    assert second.latency == pytest.approx(0.91)
    assert len(done.records) == 20


def test_a_bounded_number_is_under_way_and_the_rest_is_counted() -> None:
    done = ran(server(lambda _: 10.0), evenly(10.0), seconds=1.0, max_in_flight=4)
    outcomes = [record.outcome for record in sorted(done.records, key=lambda record: record.number)]
    assert outcomes == ["ok"] * 4 + ["unsent"] * 6


@pytest.mark.parametrize("arrivals", [Closed(2), evenly(2.0)], ids=["closed", "open"])
def test_what_does_not_end_is_a_timeout(arrivals: Any) -> None:
    done = ran(server(lambda _: 1e6), arrivals, seconds=1.0, drain_s=5.0)
    assert [record.outcome for record in done.records] == ["timeout"] * 2
    assert all(record.ended == pytest.approx(6.0) for record in done.records)


def test_a_run_ends_with_the_last_of_finite_arrivals() -> None:
    done = ran(server(lambda _: 0.25), [0.0, 1.0, 4.0])
    assert [record.due for record in done.records] == pytest.approx([0.0, 1.0, 4.0])
    assert done.seconds == pytest.approx(4.25)


@pytest.mark.parametrize("arrivals", [Closed(4), evenly(20.0)], ids=["closed", "open"])
def test_a_dead_server_ends_the_run_and_what_was_measured_is_kept(arrivals: Any) -> None:
    answered, refused = server(lambda _: 0.1), server(lambda _: 0.001, UNREACHABLE)
    done = ran(lambda n: (answered if n < 8 else refused)(n), arrivals, seconds=600.0)
    assert done.stopped == "no answer for 3 s: why"
    assert done.seconds < 5.0
    assert sum(record.outcome == OK for record in done.records) == 8
    # A closed loop does not spin meanwhile.
    assert len(done.records) < 200


def test_a_server_that_comes_back_within_a_moment_ends_nothing() -> None:
    answered, refused = server(lambda _: 0.1), server(lambda _: 0.001, UNREACHABLE)
    done = ran(lambda n: (refused if 5 < n < 20 else answered)(n), Closed(1), seconds=30.0)
    assert not done.stopped
    assert done.seconds == 30.0


def test_one_long_answer_whose_connection_is_lost_ends_nothing() -> None:
    """It had been sent more than three seconds ago, and so ended the run of all others."""
    answered, lost = server(lambda _: 10.0), server(lambda _: 7.0, UNREACHABLE)
    done = ran(lambda n: (lost if n == 1 else answered)(n), Closed(4), seconds=60.0)
    assert not done.stopped
    assert done.seconds == 60.0


@pytest.mark.parametrize("arrive", [lambda: Closed(2), lambda: evenly(4.0)], ids=["closed", "open"])
@pytest.mark.parametrize(("takes", "cancels"), [(0.5, False), (30.0, True)])
def test_a_stopped_run_cancels_only_what_does_not_end_soon(
    arrive: Callable[[], Any], takes: float, cancels: bool
) -> None:
    ended: list[str] = []

    async def stopped() -> LoadRun:
        answered = server(lambda _: takes)

        async def send(number: int) -> Record:
            try:
                record = await answered(number)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            ended.append("answered")
            return record

        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(2.3, stop.set)
        return await run(send, arrive(), seconds=60.0, stop=stop)

    done = run_virtually(stopped())
    assert (done.stopped, done.seconds) == ("interrupted", pytest.approx(2.3))
    assert done.unfinished > 0
    assert len(ended) == len(done.records) + done.unfinished, "one more was sent, or one has no end"
    assert set(ended) == {"cancelled" if cancels else "answered"}


@pytest.mark.parametrize("arrivals", [Closed(2), evenly(5.0)], ids=["closed", "open"])
def test_a_fault_of_the_sender_ends_the_run(arrivals: Any) -> None:
    async def send(number: int) -> Record:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ran(send, arrivals, seconds=5.0)


def gaps(times: list[float]) -> list[float]:
    return [later - at for at, later in pairwise(times)]


def test_poisson_arrivals_have_exponential_gaps_and_come_again_with_the_seed() -> None:
    times = list(islice(poisson(50.0, seed=3), 20_000))
    assert mean(gaps(times)) == pytest.approx(1 / 50, rel=0.03)
    assert pstdev(gaps(times)) == pytest.approx(1 / 50, rel=0.05)
    assert times[:9] == list(islice(poisson(50.0, seed=3), 9)) != list(islice(poisson(50.0, seed=4), 9))


@pytest.mark.parametrize("arrivals", [Closed(2), evenly(10.0)], ids=["closed", "open"])
def test_a_run_that_keeps_no_more_requests_says_so(arrivals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on to the end without a request, and its rates were too low."""
    monkeypatch.setattr(generator, "MOST_REQUESTS", 20)
    done = ran(server(lambda _: 0.2), arrivals, seconds=60.0)
    assert done.stopped == "20 requests were sent: no run keeps more"
    assert len(done.records) == 20
    assert done.seconds == pytest.approx(2.0)
    assert not ran(server(lambda _: 0.2), Closed(2), requests=20).stopped


def test_the_cost_of_the_generator_is_that_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the last answers, which costs nothing, made the share of a core small."""

    async def counted() -> LoadRun:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def process_time() -> float:  # half a core in the window, a whole one before it, none behind it
            at = loop.time() - began
            return min(at, 2.0) + 0.5 * min(max(at - 2.0, 0.0), 4.0)

        monkeypatch.setattr(generator.time, "process_time", process_time)
        return await run(server(lambda _: 60.0), evenly(2.0), seconds=4.0, warmup=2.0)

    assert run_virtually(counted()).cpu_share == pytest.approx(0.5, abs=0.02)


def test_a_run_that_is_ended_in_its_warm_up_says_nothing_of_the_clients_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report said of the milliseconds in which it ended that this client may be what was measured."""
    monkeypatch.setattr(generator.time, "process_time", count().__next__)

    async def ended() -> LoadRun:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        return await run(server(lambda _: 0.01), Closed(1), seconds=60.0, warmup=60.0, stop=stop)

    done = asyncio.run(ended())
    assert (done.stopped, done.counted) == ("interrupted", ())
    assert (done.cpu_share, done.loop_lag) == (0.0, 0.0)
