import os

import pytest

from trimodal.bench.bare import process
from trimodal.bench.bare.process import BareProcess, open_embedding, run_alone
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import OperatorError


def work(word):
    def run(batch, number):
        if batch == 2:
            raise ValueError(f"{word} {batch} {number}")
        if batch == 1:
            os._exit(1)

    return run


def broken():
    raise RuntimeError("no artefact")


async def test_batches_run_in_a_process_of_their_own_until_it_dies():
    with BareProcess(work, "failed") as bare:
        done = await bare.run(batch=3, seconds=0.01)
        assert done.counted
        assert all(record.items == 3 for record in done.counted)
        with pytest.raises(OperatorError, match="ValueError: failed 2 0"):
            await bare.run(batch=2, seconds=0.01)
        assert (await bare.run(batch=3, seconds=0.01)).records
        with pytest.raises(OperatorError, match="died"):
            await bare.run(batch=1, seconds=0.01)


async def test_an_engine_that_cannot_be_opened_is_told():
    with BareProcess(broken) as bare, pytest.raises(OperatorError, match="no artefact"):
        await bare.run(batch=3, seconds=0.01)


def test_batches_follow_each_other_after_one_that_warms_up(monkeypatch):
    monkeypatch.setattr(process, "MOST_BATCHES", 4)
    numbers = []
    done = run_alone(lambda batch, number: numbers.append((batch, number)), batch=8, seconds=30.0)
    assert numbers == [(8, number) for number in range(5)]
    assert [record.number for record in done.records] == [0, 1, 2, 3]
    assert done.records[1].sent == done.records[0].ended


def test_texts_go_round(tmp_path):
    seen = []

    class Engine:
        def embed(self, texts):
            seen.append(texts)

    from trimodal.embedding.engines import protocol

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "open_engine", lambda directory, settings: Engine())
        run = open_embedding(tmp_path, EmbeddingSettings(engine="fake", artefact="none"), ["a", "b", "c"])
    run(2, 0)
    run(2, 1)
    assert seen == [["a", "b"], ["c", "a"]]
