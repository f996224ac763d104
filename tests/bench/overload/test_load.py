"""The open loop against a fake server: when requests go out, and what becomes of them."""

import asyncio
import itertools
import math
import statistics
import time

import numpy as np
import pytest

from trimodal.bench.overload.load import Asked, poisson, run_load
from trimodal.client import Client
from trimodal.client.transports.fake import FakeTransport, llm_outputs
from trimodal.client.transports.tensors import strings
from trimodal.errors import InternalError, Unavailable

MIX = {"premium": 1.0, "standard": 3.0}


def asked(at=0.0, **more):
    return Asked(**{"at": at, "tier": "standard", "prompt": "x", "max_tokens": 8} | more)


def sender(model):
    transport = FakeTransport(llm=model)
    client = Client(transport=transport)
    return transport, lambda one: client.stream(one.prompt, max_tokens=one.max_tokens, timeout=20)


async def run(model, arrivals, *, patience=20.0, most_open=1000):
    transport, send = sender(model)
    return transport, await run_load(send, arrivals, patience=patience, most_open=most_open)


def note(**milliseconds):
    """What comes with the last response only."""
    texts = {name: strings([b""]) for name in ("cache", "trimmed")}
    numbers = {"similarity": 0.0, "queue_ms": 0.0, "predicted_ttft_ms": math.nan} | milliseconds
    return texts | {name: np.array([value], np.float32) for name, value in numbers.items()}


def text_after(seconds):
    async def model(request):
        await asyncio.sleep(seconds)
        yield llm_outputs("a", "")
        yield llm_outputs("b", "stop", completion_tokens=2)

    return model


def test_poisson_has_its_rate_its_mix_and_its_seed():
    def make(at, tier, rng):
        return asked(at, tier=tier)

    arrivals = list(poisson(50.0, 100.0, MIX, make, seed=3))
    assert arrivals == list(poisson(50.0, 100.0, MIX, make, seed=3))
    assert arrivals != list(poisson(50.0, 100.0, MIX, make, seed=4))
    times = [one.at for one in arrivals]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 100.0
    assert len(times) == pytest.approx(5000, rel=0.06)  # four standard deviations
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.1)  # as an exponential's
    share = sum(one.tier == "premium" for one in arrivals) / len(arrivals)
    assert share == pytest.approx(0.25, abs=0.03)


async def test_sending_does_not_wait_for_answers():
    """A closed loop would have one request open; here all of them are, until they are let go."""
    free, seen = asyncio.Event(), []

    async def model(request):
        seen.append(request)
        if len(seen) == 5:
            free.set()
        await asyncio.wait_for(free.wait(), 20)
        yield llm_outputs("all are here", "stop")

    _, results = await run(model, [asked(at / 1000) for at in range(5)])
    assert [one.outcome for one in results] == ["answered"] * 5


async def test_times_count_from_when_a_request_was_due():
    """A client that was held up sends late: its wait is part of every time."""

    async def model(request):
        yield llm_outputs("at once", "stop")

    _, send = sender(model)

    def held_up(one):
        if one.at == 0:
            time.sleep(0.2)  # the loop of the client itself stands still
        return send(one)

    first, second = await run_load(held_up, [asked(0.0), asked(0.001)], patience=5, most_open=10)
    assert first.lag >= 0.2
    assert second.lag >= 0.19
    assert second.ttft >= second.lag
    assert second.total >= second.ttft


async def test_first_text_longest_gap_and_forecast():
    async def model(request):
        await asyncio.sleep(0.05)
        yield llm_outputs("a")
        await asyncio.sleep(0.08)
        yield llm_outputs("b", completion_tokens=2)
        yield llm_outputs("c", "stop", completion_tokens=3) | note(predicted_ttft_ms=40.0)

    _, (one,) = await run(model, [asked()])
    assert one.outcome == "answered"
    assert one.ttft >= 0.05
    assert one.gap >= 0.08
    assert one.total >= one.ttft + one.gap
    assert one.predicted == pytest.approx(0.04)


async def test_an_answer_without_text_or_forecast():
    async def model(request):
        yield llm_outputs("", "stop", completion_tokens=1)

    _, (one,) = await run(model, [asked()])
    assert one.outcome == "answered"
    assert one.ttft > 0
    assert one.gap == 0
    assert math.isnan(one.predicted)


@pytest.mark.parametrize(
    ("error", "outcome", "retry_after"),
    [
        (Unavailable("64 requests wait already", retry_after_s=0.4), "refused", 0.4),
        (Unavailable("shutting down"), "refused", math.nan),
        (
            Unavailable("ttft_deadline_ms cannot be kept any more after 500 ms in the queue", 0.5),
            "expired",
            0.5,
        ),
        (InternalError("the engine stopped"), "failed", math.nan),
    ],
)
async def test_errors_are_told_apart(error, outcome, retry_after):
    async def model(request):
        raise error
        yield

    transport, (one,) = await run(model, [asked()])
    assert one.outcome == outcome
    assert str(error) in one.error
    assert one.retry_after == pytest.approx(retry_after, nan_ok=True)
    assert math.isnan(one.ttft)
    assert one.total > 0


async def test_what_cannot_meet_its_bound_any_more_is_left_at_the_end():
    """Of two that stay silent only the one without a bound is waited for, and no longer than patience."""

    async def model(request):
        await asyncio.sleep(20)
        yield llm_outputs("too late", "stop")

    transport, results = await run(model, [asked(ttft_bound=0.1), asked(0.001)], patience=1.5, most_open=10)
    bounded, unbounded = results
    assert (bounded.outcome, unbounded.outcome) == ("gave_up", "gave_up")
    assert bounded.total < unbounded.total
    assert unbounded.total >= 0.5
    assert len(transport.cancelled) == 2


async def test_who_has_a_first_text_is_waited_for():
    async def model(request):
        yield llm_outputs("in time")
        await asyncio.sleep(0.3)
        yield llm_outputs(" and complete", "stop", completion_tokens=2)

    _, (one,) = await run(model, [asked(ttft_bound=0.2)])
    assert one.outcome == "answered"
    assert one.total >= 0.3


async def test_no_more_than_the_client_may_have_are_open():
    most = running = 0
    free = asyncio.Event()

    async def model(request):
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.wait_for(free.wait(), 20)
        running -= 1
        yield llm_outputs("x", "stop")

    arrivals = [asked(at / 1000) for at in range(20)]
    transport, send = sender(model)

    def counted(one):
        if one.at >= 0.002:
            asyncio.get_running_loop().call_later(0.2, free.set)
        return send(one)

    results = await run_load(counted, arrivals, patience=10, most_open=3)
    assert most == 3
    outcomes = [one.outcome for one in results]
    assert outcomes == ["answered"] * 3 + ["unsent"] * 17
    assert len(transport.requests) == 3


async def test_a_client_that_times_out_gave_up():
    transport = FakeTransport(llm=text_after(20))
    client = Client(transport=transport)
    (one,) = await run_load(
        lambda one: client.stream(one.prompt, timeout=0.1), [asked()], patience=5, most_open=1
    )
    assert one.outcome == "gave_up"


async def test_a_run_that_is_cancelled_leaves_no_request():
    transport, send = sender(text_after(20))
    running = asyncio.create_task(run_load(send, [asked(), asked(30.0)], patience=5, most_open=9))
    while not transport.requests:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for _ in range(100):
        if transport.cancelled:
            break
        await asyncio.sleep(0.01)
    assert len(transport.cancelled) == 1


async def test_a_fault_of_the_bench_itself_is_not_a_figure():
    def send(one):
        raise ValueError("no such thing to send")

    with pytest.raises(ValueError, match="no such thing"):
        await run_load(send, [asked()], patience=5, most_open=9)
