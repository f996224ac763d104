import pytest

from trimodal.bench.bare import batches
from trimodal.bench.bare.batches import BareBatches, run_alone
from trimodal.errors import OperatorError


async def test_batches_run_until_the_engine_fails_and_after_it(monkeypatch):
    opened = []

    def opener():
        opened.append(1)
        if len(opened) == 1:
            raise RuntimeError("no artefact")

        def work(batch, number):
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


def test_batches_follow_each_other_after_one_that_warms_up(monkeypatch):
    monkeypatch.setattr(batches, "MOST_BATCHES", 4)
    numbers = []
    done = run_alone(lambda batch, number: numbers.append((batch, number)), batch=8, seconds=30.0)
    assert numbers == [(8, number) for number in range(5)]
    assert [record.number for record in done.records] == [0, 1, 2, 3]
    assert done.records[1].sent == done.records[0].ended
