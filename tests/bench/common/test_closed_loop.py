import asyncio
import time

import pytest

from trimodal.bench.common import closed_loop
from trimodal.bench.common.closed_loop import (
    LoopRound,
    loop_round,
    run_alone,
    run_clients,
    summarise_loops,
)
from trimodal.bench.load.generator import Run
from trimodal.bench.load.records import Record


def round_of(times, items, begin, end):
    """The round of requests that were sent and answered at these times."""
    records = [Record(number, at, at, (), to, items=items) for number, (at, to) in enumerate(times)]
    return loop_round(Run(tuple(records), begin, end - begin))


def test_a_request_counts_for_its_part_of_the_window():
    times = [(0.0, 2.0), (2.0, 4.0), (4.0, 8.0)]  # windows [1, 6]: a half, one, and a half
    one = round_of(times, 10, 1.0, 6.0)
    assert one.rate == pytest.approx(10 * 2.0 / 5.0)
    assert one.latencies == (2.0, 4.0)  # of those that began in it


def test_bursts_do_not_look_faster_than_they_are():
    # Four clients whose batches of 8 always end together, once a second: 32 items a second.
    times = [(float(at), at + 1.0) for at in range(10) for _ in range(4)]
    for begin, end in ((0.0, 10.0), (0.3, 7.9), (2.0, 3.5)):
        assert round_of(times, 8, begin, end).rate == pytest.approx(32)


def test_a_window_shorter_than_the_requests_still_has_latencies():
    assert round_of([(0.0, 9.0)], 1, 4.0, 5.0).latencies == (9.0,)


def test_summary_in_milliseconds():
    summary = summarise_loops([LoopRound(10.0, (0.1, 0.2)), LoopRound(30.0, (0.3,)), LoopRound(20.0, (0.4,))])
    assert (summary.rate, summary.requests) == (20.0, 4)
    assert (summary.p50, summary.p95, summary.p99) == pytest.approx((200, 400, 400))


async def test_clients_send_the_next_request_when_the_last_is_answered():
    numbers, running, most = [], 0, 0

    async def ask(number):
        nonlocal running, most
        numbers.append(number)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    one = await run_clients(ask, clients=3, items=2, seconds=0.1)
    assert most == 3
    assert sorted(numbers) == list(range(len(numbers)))
    assert min(one.latencies) >= 0.002
    assert one.rate == pytest.approx(3 * 2 * len(one.latencies) / sum(one.latencies), rel=0.3)


async def test_an_error_of_a_request_ends_the_round():
    async def ask(number):
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        await run_clients(ask, clients=2, items=1, seconds=0.1)


async def test_rounds_are_bounded_in_count(monkeypatch):
    monkeypatch.setattr(closed_loop, "MOST_REQUESTS", 5)
    asked = []

    async def ask(number):
        asked.append(number)
        await asyncio.sleep(0)

    await run_clients(ask, clients=2, items=1, seconds=30.0)
    assert asked == [0, 1, 2, 3, 4]
    done = []
    assert len(run_alone(done.append, items=1, seconds=30.0).latencies) == 5
    assert len(done) == 6  # and the one before, which does not count


def test_alone_counts_items_over_its_own_time():
    one = run_alone(lambda number: time.sleep(0.002), items=4, seconds=0.02)
    assert one.rate <= 4 / 0.002
    assert one.rate == pytest.approx(4 * len(one.latencies) / sum(one.latencies), rel=0.2)
