import asyncio
import threading

import pytest

from trimodal.client.async_iteration import pumped, wait_within


async def test_items_come_in_order():
    assert [item async for item in pumped(number for number in range(50))] == list(range(50))


async def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("two")

    seen = []

    async def read():
        async for item in pumped(items()):
            seen.append(item)

    with pytest.raises(ValueError, match="two"):
        await read()
    assert seen == [1]


async def test_it_reads_only_so_far_ahead_and_closes_what_is_left():
    taken = 0
    closed = threading.Event()

    def items():
        nonlocal taken
        try:
            while True:
                taken += 1
                yield taken
        finally:
            closed.set()

    iterator = pumped(items())
    assert await anext(iterator) == 1
    await asyncio.sleep(0.1)
    assert taken <= 4
    await iterator.aclose()
    assert await asyncio.to_thread(closed.wait, 5)


def test_an_iterator_that_never_gives_anything_does_not_hold_up_the_end():
    release = threading.Event()

    def items():
        release.wait(30)
        yield 1

    async def read():
        task = asyncio.ensure_future(anext(pumped(items())))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})

    runner = threading.Thread(target=lambda: asyncio.run(read()))
    runner.start()
    runner.join(10)
    assert not runner.is_alive()
    release.set()


async def test_a_wait_gives_what_comes_within_its_time():
    assert await wait_within(asyncio.sleep(0, "here"), 60) == "here"
    with pytest.raises(ValueError, match="mine"):
        await wait_within(fails(), 60)
    never = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(asyncio.TimeoutError):
        await wait_within(never, 0)
    assert never.cancelled()


async def fails():
    raise ValueError("mine")


async def test_a_wait_that_is_cancelled_ends_what_it_waits_for():
    never = asyncio.ensure_future(asyncio.Event().wait())
    waiting = asyncio.ensure_future(wait_within(never, 60))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert never.cancelled()


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancellation_as_the_result_comes_is_not_lost(steps):
    came = asyncio.Event()
    waiting = asyncio.ensure_future(wait_within(came.wait(), 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    came.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    assert waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
