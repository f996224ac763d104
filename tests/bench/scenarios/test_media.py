from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.bench.load.records import record, run_of
from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.statistics import summarise
from trimodal.bench.samples import Recording
from trimodal.bench.scenarios import media
from trimodal.bench.scenarios.media import run_vision, with_word_errors
from trimodal.bench.scenarios.server import LoadTest, ServerUnderTest
from trimodal.errors import SettingsError
from trimodal.repository import read_model

REPOSITORY = Path(__file__).parents[3] / "model_repository"


def test_word_errors_are_of_answered_streams_and_what_was_said_in_them() -> None:
    spoken = [Recording(np.zeros(1, np.float32), text) for text in ("one two", "three four")]
    texts = [" one two", " three for", "One, two!"]
    records = [record(number, text=text) for number, text in enumerate(texts)]
    records.append(record(3, outcome="unavailable"))
    run = run_of(records, 10.0)
    result = Result(LoadPlan().cases[0], "served", [run], summarise(run))
    found = with_word_errors(result, spoken)
    assert found.summary.word_error_rate == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    "test",
    [
        LoadTest(LoadPlan("poisson", (4,))),
        LoadTest(LoadPlan(), url="127.0.0.1:1"),
    ],
)
async def test_a_bare_engine_runs_closed_loops_on_this_machine(test: LoadTest) -> None:
    with pytest.raises(SettingsError, match="own model in closed loops"):
        await run_vision(test, 32, 32, 1, bare=True)


@pytest.mark.parametrize(
    ("clients", "batch", "requests", "run"),
    [
        (3, 4, 0, {"batch": 12, "seconds": 30.0, "batches": 0}),
        (16, 1, 40, {"batch": 16, "seconds": 0.0, "batches": 3}),
        (8, 16, 10, {"batch": 16, "seconds": 0.0, "batches": 10}),  # the model's max_batch_size
    ],
)
async def test_the_bare_engine_runs_as_much_in_batches_as_those_of_all_clients_may_become(
    clients: int, batch: int, requests: int, run: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request's own batch was left out, and --requests were 30 s."""
    ran: list[dict[str, object]] = []

    @asynccontextmanager
    async def served(*_: object) -> AsyncIterator[ServerUnderTest]:
        yield ServerUnderTest("here:1", {"vision": read_model(REPOSITORY, "vision", "cpu")})

    async def alone(engine: object, **given: object) -> LoadRun:
        ran.append(given)
        return run_of([], 1.0)

    async def answer(number: int) -> Record:
        return record(number, latency=0.0)

    monkeypatch.setattr(media, "server_under_test", served)
    monkeypatch.setattr(media.media, "vision", lambda *_, **__: answer)
    monkeypatch.setattr(media.BareBatches, "run", alone)
    monkeypatch.setattr(media, "sending", lambda *_: lambda case, number: alone(None))
    plan = LoadPlan(sizes=(clients,), requests=requests)
    await run_vision(LoadTest(plan), 32, 32, batch, bare=True)
    assert ran[1:] == [{**run, "stop": None}]
