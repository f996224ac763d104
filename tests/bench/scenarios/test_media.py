from __future__ import annotations

import numpy as np
import pytest

from tests.bench.load.records import record, run_of
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.statistics import summarise
from trimodal.bench.samples import Recording
from trimodal.bench.scenarios.media import run_vision, with_word_errors
from trimodal.bench.scenarios.server import LoadTest
from trimodal.errors import SettingsError


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
