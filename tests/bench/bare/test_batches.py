from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from trimodal.bench.bare import batches
from trimodal.bench.bare.batches import BareBatches, Work, run_alone
from trimodal.errors import OperatorError


async def test_batches_run_until_the_engine_fails_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def opener() -> Work:
        opened.append(1)
        if len(opened) == 1:
            raise RuntimeError("no artefact")

        def work(batch: int, number: int) -> None:
            if batch == 2:
                raise ValueError(f"failed {batch} {number}")
            if batch == 1:
                hanging.wait(10)

        return work

    bare, hanging = BareBatches(opener), batches.threading.Event()
    with pytest.raises(OperatorError, match="the bare engine failed: RuntimeError: no artefact"):
        await bare.run(batch=3, seconds=0.01)
    done = await bare.run(batch=3, seconds=0.01)
    assert done.counted
    assert all(record.items == 3 for record in done.counted)
    with pytest.raises(OperatorError, match="ValueError: failed 2 0"):
        await bare.run(batch=2, seconds=0.01)
    monkeypatch.setattr(batches, "_LIMIT_S", 0.01)
    with pytest.raises(OperatorError, match="does not answer"):
        await bare.run(batch=1, seconds=0.01)
    hanging.set()
    assert len(opened) == 2


def test_batches_follow_each_other_after_one_that_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_REQUESTS", 4)
    numbers: list[tuple[int, int]] = []
    done = run_alone(lambda batch, number: numbers.append((batch, number)), [], batch=8, seconds=30.0)
    assert numbers == [(8, number) for number in range(5)]
    assert [record.number for record in done.records] == [0, 1, 2, 3]
    assert done.records[1].sent == done.records[0].ended
    assert done.stopped == "4 batches were run: no run keeps more"


async def test_so_many_batches_run_as_are_wanted() -> None:
    """`--requests` was ignored: it ran for 30 s."""
    done = await BareBatches(lambda: lambda batch, number: None).run(batch=2, batches=7)
    assert [record.items for record in done.counted] == [2] * 7


@pytest.mark.parametrize("answers", [True, False])
async def test_an_interruption_keeps_the_batches_until_then(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked at after the last round only, and never where the engine hangs."""
    monkeypatch.setattr(batches, "_ENDING_S", 30.0 if answers else 0.01)
    loop, stop, hanging = asyncio.get_running_loop(), asyncio.Event(), batches.threading.Event()

    def opener() -> Callable[[int, int], None]:
        def work(batch: int, number: int) -> None:
            if number == 3:
                loop.call_soon_threadsafe(stop.set)
            if number >= 3 and not answers:
                hanging.wait(30)

        return work

    done = await BareBatches(opener).run(batch=1, seconds=3600.0, stop=stop)
    hanging.set()
    assert done.stopped == "interrupted"
    assert (len(done.records) >= 3) == answers
