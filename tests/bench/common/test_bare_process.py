import os

import pytest

from trimodal.bench.common.closed_loop import BareProcess
from trimodal.errors import OperatorError


def works(word):
    def good(batch, number):
        assert batch == 3

    def bad(batch, number):
        raise ValueError(f"{word} {batch} {number}")

    def deadly(batch, number):
        os._exit(1)

    return {"good": good, "bad": bad, "deadly": deadly}


def broken():
    raise RuntimeError("no artefact")


async def test_works_run_in_a_process_of_their_own_until_it_dies():
    with BareProcess(works, "failed") as bare:
        one = await bare.run("good", batch=3, seconds=0.01)
        assert one.rate > 0
        assert one.latencies
        with pytest.raises(OperatorError, match="ValueError: failed 2 0"):
            await bare.run("bad", batch=2, seconds=0.01)
        assert (await bare.run("good", batch=3, seconds=0.01)).rate > 0
        with pytest.raises(OperatorError, match="died"):
            await bare.run("deadly", batch=1, seconds=0.01)


async def test_works_that_cannot_be_opened_are_told():
    with BareProcess(broken) as bare, pytest.raises(OperatorError, match="no artefact"):
        await bare.run("good", batch=3, seconds=0.01)
