"""The highest load of several models that keeps the SLO of each: engines of known capacity, no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tune.doubles import FakeTriton
from trimodal.bench.load.generator import LoadRun, Send
from trimodal.bench.load.records import Record
from trimodal.errors import SettingsError
from trimodal.server.options import ServerOptions
from trimodal.tune import report, session
from trimodal.tune.edge import find_edge
from trimodal.tune.mix import MixedLoad, missed, parse_mix
from trimodal.tune.objective import LOAD
from trimodal.tune.search import Budget, Round, Trial, TrialError
from trimodal.tune.session import TuneSettings, tune

MIX = ("llm@4:p95_ttft_ms<=20000,p95_itl_ms<=60", "vision@10:p99_ms<=20000", "speech@2:p95_lag_ms<=20000")
PARTS = parse_mix(MIX)


class Engine:
    """Answers one request after the other, so many a second: two pieces, and a word that lags.

    Requests come at `Engine.now`, and what they take is worked out at once: no event loop has to wait.
    """

    now = 0.0

    def __init__(self, capacity: float, outcome: str = "ok", *, words: bool = True) -> None:
        self._takes, self._outcome, self._words, self._free = 1 / capacity, outcome, words, 0.0

    async def __call__(self, number: int) -> Record:
        sent = Engine.now
        self._free = max(sent, self._free) + self._takes
        lags = (self._free - sent,) if self._words else ()
        return Record(
            number, sent, sent, (self._free - 0.02, self._free), self._free, self._outcome, "why", lags=lags
        )


async def simulate(
    send: Send, arrivals: Iterator[float], *, seconds: float, warmup: float = 0.0, drain_s: float = 0.0
) -> LoadRun:
    """As the generator's `run`, of engines that need no time."""
    records = []
    for number, Engine.now in enumerate(arrivals):
        if Engine.now >= warmup + seconds:
            break
        records.append(replace(await send(number), number=number))
    return LoadRun(tuple(records), warmup, seconds)


def edge_of(capacities: tuple[float, ...], seconds: float) -> Round:
    async def probe(factor: float) -> Round:
        load = MixedLoad(PARTS, [Engine(capacity) for capacity in capacities], factor, seed=1)
        return load.judge(await simulate(load.send, load.arrivals(), seconds=seconds))

    return asyncio.run(find_edge(probe))


@pytest.mark.parametrize(
    ("capacities", "edge"),
    [
        pytest.param((6.0, 100.0, 20.0), 1.5, id="llm", marks=pytest.mark.slow),
        pytest.param((50.0, 7.0, 20.0), 0.7, id="vision"),
        pytest.param((50.0, 100.0, 3.2), 1.6, id="speech", marks=pytest.mark.slow),
    ],
)
def test_the_edge_is_where_the_first_engine_is_full(capacities: tuple[float, ...], edge: float) -> None:
    found = edge_of(capacities, 1000.0)
    assert found.gain == pytest.approx(edge, rel=0.05)
    assert found.violation == 0
    assert found.figures["load"] == found.gain
    assert found.figures["vision p99_ms"] <= 20000


def test_a_higher_load_has_the_same_arrivals_sooner() -> None:
    def dues(factor: float) -> list[float]:
        arrivals = MixedLoad(PARTS, [], factor, seed=3).arrivals()
        return [next(arrivals) for _ in range(50)]

    assert dues(2.0) == pytest.approx([at / 2 for at in dues(1.0)])


def judged(load: MixedLoad, seconds: float = 20.0, **more: Any) -> Round:
    done: LoadRun = asyncio.run(simulate(load.send, load.arrivals(), seconds=seconds))
    return load.judge(replace(done, **more))


def test_each_part_is_judged_by_its_own_bounds_and_named() -> None:
    slow = (Engine(1000.0), Engine(8.0), Engine(1000.0))
    parts = parse_mix(("llm@4:p95_itl_ms<=5", MIX[1].replace("20000", "50"), "speech@2:lag_ms<=100"))
    found = judged(MixedLoad(parts, slow, 1.0, seed=0))
    assert found.figures["llm p95_itl_ms"] == pytest.approx(20)
    assert found.violation > 3
    trial = Trial(0, {}, "measured", (found,))
    assert [one.partition(" (")[0] for one in missed(parts, trial)] == [
        "llm p95_itl_ms<=5",
        "vision p99_ms<=50",
    ]


def test_live_streams_are_counted_while_they_are_under_way() -> None:
    class Streams:
        async def __call__(self, number: int) -> Record:
            return Record(number, Engine.now, Engine.now, (), Engine.now + 6, lags=(0.5,))

    parts = parse_mix(("speech@0.5:p95_lag_ms<=900", "vision@9:p99_ms<=5000"))
    targets = (Streams(), Engine(1e3, words=False))
    found = judged(MixedLoad(parts, targets, 2.0, seed=0), 5000.0).figures
    assert found["speech streams"] == pytest.approx(6.0, rel=0.05)  # one a second, each of 6 s
    assert "vision streams" not in found


def test_a_part_of_which_nothing_was_due_is_not_judged_and_runs_are_long_enough_for_all() -> None:
    load = MixedLoad(parse_mix(("llm@50:ms<=100", "speech@0.001:lag_ms<=1")), [Engine(1e4)] * 2, 1.0, seed=0)
    assert judged(load, 1.0).violation == 0
    assert load.seconds(3.0) == 5000


def test_a_model_that_answers_nothing_is_named() -> None:
    load = MixedLoad(PARTS, [Engine(1e3), Engine(1e3, "invalid"), Engine(1e3)], 1.0, seed=0)
    with pytest.raises(TrialError, match="no request of vision succeeded: invalid: why"):
        judged(load)
    with pytest.raises(TrialError, match="vision p95_lag_ms is no figure of its answers"):
        judged(MixedLoad(parse_mix(["vision@9:p95_lag_ms<=5"]), [Engine(1e3, words=False)], 1.0, seed=0))
    with pytest.raises(TrialError, match="gone"):
        judged(MixedLoad(PARTS, [Engine(1e3)] * 3, 1.0, seed=0), stopped="gone")


@pytest.mark.parametrize("outcome", ["unavailable", "timeout", "unsent"])
def test_a_model_that_refuses_all_of_a_load_misses_it(outcome: str) -> None:
    found = judged(MixedLoad(PARTS, [Engine(1e3), Engine(1e3, outcome), Engine(1e3)], 1.0, seed=0))
    assert found.violation > 0
    assert found.figures["vision error_rate"] == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("llm", "a form as llm@2:"),
        ("llm@2", "a form as llm@2:"),
        ("llm@no:ms<=5", "a rate above 0 and at most 10000 a second"),
        ("llm@0:ms<=5", "a rate above 0"),
        ("llm@nan:ms<=5", "a rate above 0"),
        ("llm@1e9:ms<=5", "a rate above 0"),
        ("llm@2:speed<=5", "--mix llm: --slo speed<=5: 'speed' is no metric"),
        ("llm@2:,", "without a bound"),
    ],
)
def test_refuses_what_is_no_part(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        parse_mix([text])


def test_refuses_a_model_that_is_named_twice() -> None:
    with pytest.raises(SettingsError, match="--mix llm: named 2 times"):
        parse_mix((MIX[0], MIX[0]))


MODEL = (
    "name: '{}'\nbackend: 'python'\nmax_batch_size: 8\ndynamic_batching {{ }}\n"
    "input {{ name: 'x' data_type: TYPE_FP32 dims: 1 }}\n"
)
KNOBS = ("m.max_queue_delay_microseconds=0,100,200", "n.instance_count=1,2")


class Connection:
    """Stands for a client that is never asked."""

    def __init__(self, *_: object, **__: object) -> None: ...

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None: ...


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TuneSettings]:
    """A mix of m and n on a server where a longer delay lets m answer more, and an instance more lets n."""
    for name in ("m", "n"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(MODEL.format(name))

    def target_of(config: Any, *_: object, **__: object) -> Engine:
        (server,) = FakeTriton.running
        now = server.config(config.name)
        delay = int(now.dynamic_batching.max_queue_delay_microseconds)
        count = max((group.count for group in now.instance_group), default=1)
        capacity = 10.0 + delay / 20 if config.name == "m" else 12.0 * count
        return Engine(capacity, words=False)

    monkeypatch.setattr(session, "TritonServer", FakeTriton)
    monkeypatch.setattr(FakeTriton, "refuse", staticmethod(lambda config: ""))
    monkeypatch.setattr(session, "target_of", target_of)
    monkeypatch.setattr(session, "Client", Connection)
    monkeypatch.setattr(session, "GrpcTransport", Connection)
    monkeypatch.setattr(session.generator, "run", simulate)

    def make(*mix: str) -> TuneSettings:
        return TuneSettings(
            "m + n",
            LOAD,
            ServerOptions(repository=tmp_path, engines=None, models=("m", "n")),
            budget=Budget(trials=6, rounds=1, final_rounds=1, descend=True),
            knobs=KNOBS,
            only=True,
            seconds=400.0,
            mix=parse_mix(mix),
        )

    return make


@pytest.mark.slow
def test_knobs_of_all_models_are_searched_together(settings: Callable[..., TuneSettings]) -> None:
    given = settings("m@10:p99_ms<=9000", "n@10:p99_ms<=9000")
    tuned = tune(given)
    assert tuned.result
    assert tuned.result.start.gain == pytest.approx(1.0, rel=0.05)  # m is full
    assert tuned.result.chosen.setting == {"m.max_queue_delay_microseconds": "200", "n.instance_count": "2"}
    assert tuned.result.chosen.gain == pytest.approx(2.0, rel=0.05)
    assert report.refusal(given, tuned) == ""
    assert "load under m@10:p99_ms<=9000; n@10:p99_ms<=9000: " in report.verdict(given, tuned)
    finals, _ = report.tables(given, tuned)
    assert tuple(finals.columns) == ("setting", "load", "m p99_ms", "n p99_ms", "to start", "SLO")
    for one in tuned.trials[1:]:  # each is a step of one knob away from one before it
        before = [other.setting.items() for other in tuned.trials[: one.number]]
        assert any(len(one.setting.items() - items) == 1 for items in before)


def test_an_slo_that_no_setting_keeps_at_the_lowest_load_is_named(
    settings: Callable[..., TuneSettings],
) -> None:
    given = settings("m@10:p99_ms<=9000", "n@10:p99_ms<=1")
    why = report.refusal(given, tune(given))
    assert why.startswith("no setting keeps n p99_ms<=1 (")
    assert why.endswith(") at the lowest load, 0.125 times the mix")
