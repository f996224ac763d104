"""What a session does around a search: it finds the pipeline, serves each setting, and writes."""

from __future__ import annotations

import asyncio
import errno
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.full_disk import ROOM, full_disk
from tests.tune.doubles import FakeTriton
from trimodal.bench.load.generator import Closed, LoadRun
from trimodal.bench.load.records import Record
from trimodal.bench.load.slo import NO_SLO, parse_slo
from trimodal.errors import SettingsError
from trimodal.server.options import ServerOptions
from trimodal.server.process import Interrupted
from trimodal.tune import report, session
from trimodal.tune.objective import STREAMS, parse_objective
from trimodal.tune.search import Budget, Round, TrialError
from trimodal.tune.session import TuneSettings, chosen_knobs, new_texts, read_pipeline, tune, write_texts
from trimodal.tune.workload import Workload

TEXT = "name: 'm'\nmax_batch_size: 8  # rows\ndynamic_batching { }  # at once\n"
MORE = "backend: 'python'\ninput { name: 'x' data_type: TYPE_FP32 dims: 1 }\n"
ENSEMBLE = "name: 'pipe' platform: 'ensemble' ensemble_scheduling { step { model_name: 'm' } }"


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeTriton]]:
    monkeypatch.setattr(session, "TritonServer", FakeTriton)
    monkeypatch.setattr(FakeTriton, "starts", 0)
    monkeypatch.setattr(FakeTriton, "refuse", staticmethod(lambda config: ""))
    yield FakeTriton
    assert FakeTriton.running == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in {"m": TEXT + MORE, "pipe": ENSEMBLE}.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    return tmp_path


KNOB = ("m.max_queue_delay_microseconds=0,100,200",)


def settings(repository: Path, **more: Any) -> TuneSettings:
    return TuneSettings(
        **{
            "model": "m",
            "objective": parse_objective(None, None, NO_SLO),
            "options": options(repository),
            "budget": Budget(trials=3, rounds=1, final_rounds=1),
            "only": True,
            "knobs": KNOB,
        }
        | more
    )


def options(repository: Path) -> ServerOptions:
    return ServerOptions(repository=repository, engines=None, models=("m",))


def measuring(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`value` of the queue delay that is served now: the figure, or what is raised."""

    async def measure(system: session.TunedServer, number: int) -> Round:
        (server,) = FakeTriton.running
        found = value(int(server.config("m").dynamic_batching.max_queue_delay_microseconds))
        if isinstance(found, BaseException):
            raise found
        return Round(found)

    monkeypatch.setattr(session.TunedServer, "measure", measure)


@pytest.mark.usefixtures("triton")
def test_tunes_on_servers_of_its_own_and_leaves_the_files(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(lambda delay: 1.0 + delay, monkeypatch)
    tuned = tune(settings(repository))
    assert tuned.result
    assert tuned.result.chosen.setting == {"m.max_queue_delay_microseconds": "200"}
    assert (repository / "m" / "config.pbtxt").read_text() == TEXT + MORE


@pytest.mark.usefixtures("triton")
def test_ctrl_c_keeps_the_trials(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring(lambda delay: KeyboardInterrupt() if delay else 1.0, monkeypatch)
    tuned = tune(settings(repository))
    assert tuned.result is None
    assert len(tuned.trials) == 1


def test_trials_that_are_refused_or_die_are_told(
    triton: type[FakeTriton], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: Any) -> str:
        return "no" if config.dynamic_batching.max_queue_delay_microseconds == 100 else ""

    monkeypatch.setattr(triton, "refuse", staticmethod(refuse))
    measuring(lambda delay: TrialError("dead", "failed") if delay == 200 else 1.0, monkeypatch)
    tuned = tune(settings(repository))
    states = {one.state: one.reason for one in tuned.trials}
    assert states.keys() == {"measured", "refused", "failed"}
    assert states["refused"].startswith("model m: no log: ")


def test_a_disk_that_is_full_ends_a_trial_and_not_the_search(
    triton: type[FakeTriton], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a traceback, and the trials were lost."""
    measuring(lambda delay: 1.0, monkeypatch)
    whole = session.overlay

    def overlay(*arguments: Any) -> None:
        if triton.starts:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(*arguments)

    monkeypatch.setattr(session, "overlay", overlay)
    tuned = tune(settings(repository))
    assert [one.state for one in tuned.trials] == ["measured", "refused", "refused"]
    assert tuned.trials[1].reason.endswith("No space left on device")


def served(repository: Path, folder: Path) -> session.TunedServer:
    folder.mkdir()
    pipeline = read_pipeline(["m"], options(repository), repository)
    return session.TunedServer(settings(repository), pipeline, repository, folder)


def test_a_server_is_started_for_another_setting_and_in_place_of_one_that_is_dead_or_hangs(
    triton: type[FakeTriton], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: Any, **__: Any) -> LoadRun:
        raise asyncio.TimeoutError

    system = served(repository, repository / "served")
    for batch, starts in (("8", 1), ("8", 1), ("16", 2)):
        asyncio.run(system.apply({"m.max_batch_size": batch}))
        assert triton.starts == starts
    assert triton.running[0].config("m").max_batch_size == 16
    triton.running[0].alive = False
    asyncio.run(system.apply({"m.max_batch_size": "16"}))
    assert triton.starts == 3
    monkeypatch.setattr(session.generator, "run", hangs)
    with pytest.raises(TrialError, match="the round did not end"):
        asyncio.run(system.measure(0))
    asyncio.run(system.apply({"m.max_batch_size": "16"}))
    assert triton.starts == 4
    system.close()


@pytest.mark.usefixtures("triton")
def test_a_server_that_dies_under_load_is_a_trial_that_failed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had answered until then was its figure, and with `error_rate<=0.5` it was the best."""

    async def run(*_: Any, **__: Any) -> LoadRun:
        records = [Record(n, 0.0, 0.0, [0.1], 0.1, "ok" if n else "unreachable") for n in range(99)]
        return LoadRun(tuple(records), 0.0, 1.0, stopped="no answer for 3 s: gone")

    monkeypatch.setattr(session.generator, "run", run)
    system = served(repository, repository / "served")
    asyncio.run(system.apply({"m.max_batch_size": "8"}))
    with pytest.raises(TrialError, match="no answer for 3 s: gone") as raised:
        asyncio.run(system.measure(0))
    assert raised.value.state == "failed"
    system.close()


@pytest.mark.usefixtures("triton")
def test_streams_at_once_are_counted_until_one_more_misses(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer of the server takes 100 ms for each client that waits for one."""
    loads = []

    async def run(send: Any, arrivals: Closed, *, seconds: float, warmup: float, drain_s: float) -> LoadRun:
        loads.append(arrivals.concurrency)
        takes = 0.1 * arrivals.concurrency
        return LoadRun(tuple(Record(0, 0.0, 0.0, (takes,), takes) for _ in range(9)), 0.0, 1.0)

    monkeypatch.setattr(session.generator, "run", run)
    slo = parse_slo("p95_ms<=350")
    tuned = tune(settings(repository, slo=slo, objective=STREAMS, budget=Budget(trials=1, rounds=2)))
    assert tuned.result
    assert [one.gain for one in tuned.result.chosen.rounds] == [3, 3]
    assert loads == [1, 2, 4, 3, 3, 4]
    assert "holds 3 streams of m at once" in report.verdict(settings(repository, objective=STREAMS), tuned)


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    ("load", "warmups"),
    [
        ({}, [0.0] * 3),  # the first of three warms up
        ({"pace": 0.0}, [0.0] * 3),
        ({"rate": 2.0}, [20.0] * 2),
        ({"rate": 2.0, "pace": 4.0}, [5.0] * 2),
    ],
)
def test_live_streams_count_from_the_first_one_or_when_as_many_are_under_way_as_will_be(
    repository: Path, monkeypatch: pytest.MonkeyPatch, load: dict[str, float], warmups: list[float]
) -> None:
    """A stream lasts longer than a round: without those that began first there was none to count."""
    seen = []

    async def run(send: Any, arrivals: Any, *, seconds: float, warmup: float, drain_s: float) -> LoadRun:
        seen.append(warmup)
        return LoadRun((Record(0, warmup, warmup, (20.0,), 20.0),), warmup, seconds)

    monkeypatch.setattr(session, "kind_of", lambda config: "speech")
    monkeypatch.setattr(session, "target_of", lambda *_, **__: None)
    monkeypatch.setattr(session.generator, "run", run)
    budget = Budget(trials=1, rounds=2)
    assert tune(settings(repository, workload=Workload(**load), budget=budget)).result
    assert seen == warmups


@pytest.mark.usefixtures("triton")
def test_settings_get_the_same_load_of_texts_that_no_cache_has(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dues: list[list[float]] = []
    seeds: list[dict[str, int]] = []

    async def run(send: Any, arrivals: Any, *, seconds: float, warmup: float, drain_s: float) -> LoadRun:
        dues.append([warmup, *itertools.islice(arrivals, 5)])
        return LoadRun((Record(0, 1.0, 1.0, (1.1,), 1.1),), warmup, seconds)

    monkeypatch.setattr(session, "target_of", lambda *_, **given: seeds.append(given))
    monkeypatch.setattr(session.generator, "run", run)
    budget = Budget(trials=3, rounds=2, final_rounds=0)
    assert tune(settings(repository, workload=Workload(rate=9.0), budget=budget)).result
    assert dues[0] != dues[1]
    assert dues == dues[:2] * 3
    assert [one["sizes"] for one in seeds] == [0, 1] * 3
    assert len({one["texts"] for one in seeds}) == 6


@pytest.mark.usefixtures("triton")
def test_a_model_slower_than_a_round_is_told_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said that no request was answered."""

    async def run(send: Any, arrivals: Any, *, seconds: float, warmup: float, drain_s: float) -> LoadRun:
        return LoadRun((Record(0, 0.0, 0.0, (7.0,), 7.0),), warmup, seconds)

    monkeypatch.setattr(session, "target_of", lambda *_, **__: None)
    monkeypatch.setattr(session.generator, "run", run)
    why = "no request began in the 3 s that count, and an answer took 7 s: --seconds gives more"
    with pytest.raises(TrialError, match=why):
        tune(settings(repository))
    # Streams at once: what each client's first one took says whether so many are kept.
    slo = parse_slo("p95_ms<=6000")
    tuned = tune(settings(repository, slo=slo, objective=STREAMS, budget=Budget(trials=1, rounds=1)))
    assert tuned.result
    assert tuned.result.chosen.figure("p95_ms") == 7000


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize("bound", ["p99_lag_ms<=9", "lag_ms<=9"])
def test_a_bound_on_what_the_model_does_not_have_ends_it_at_once(
    bound: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All trials missed it, and nothing said why."""

    async def run(send: Any, arrivals: Any, *, seconds: float, warmup: float, drain_s: float) -> LoadRun:
        return LoadRun((Record(0, 1.0, 1.0, (1.1,), 1.1),), warmup, seconds)

    monkeypatch.setattr(session, "target_of", lambda *_, **__: None)
    monkeypatch.setattr(session.generator, "run", run)
    with pytest.raises(TrialError, match=f"{bound}: its answers have no such figure"):
        tune(settings(repository, slo=parse_slo(bound)))


@pytest.mark.usefixtures("triton")
def test_a_batch_of_what_has_none_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "kind_of", lambda config: "llm")
    with pytest.raises(SettingsError, match="--batch is of images, texts and rows: leave it out for m"):
        tune(settings(repository, workload=Workload(batch=4)))


def test_a_start_under_way_ends_with_its_search(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()

    class Slow(FakeTriton):
        def start(self, *, stop: Any) -> None:
            began.set()
            while not stop():
                pass
            ended.set()
            raise Interrupted

    monkeypatch.setattr(session, "TritonServer", Slow)
    system = served(repository, repository / "served")

    async def cancelled() -> None:
        task = asyncio.create_task(system.apply({"m.max_batch_size": "16"}))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert ended.is_set()
    system.close()


def test_the_pipeline_is_what_the_repository_serves(repository: Path) -> None:
    pipeline = read_pipeline(["pipe"], options(repository), repository)
    assert list(pipeline.models) == ["pipe", "m"]
    knobs = chosen_knobs(pipeline, ["m.instance_count=1,3"], only=False)
    assert {knob.label: knob.choices for knob in knobs}["m.instance_count"] == ("1", "3")
    assert len(chosen_knobs(pipeline, ["m.instance_count=1,3"], only=True)) == 1


def test_a_setting_is_written_to_the_repository_that_was_named(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy" / "m"
    (other / "1").mkdir(parents=True)
    (other / "config.pbtxt").write_text(TEXT.replace("8", "4") + MORE)
    pipeline = read_pipeline(["m"], options(repository), other.parent)
    assert pipeline.present("m", "max_batch_size") == "4"
    assert pipeline.models["m"].config_file == repository / "m" / "config.pbtxt"


def test_only_without_a_knob_is_refused(repository: Path) -> None:
    with pytest.raises(SettingsError, match="--only needs a --knob"):
        settings(repository, knobs=())


def written(tmp_path: Path, chosen: str) -> dict[Path, tuple[str, str]]:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text(TEXT)
    pipeline = read_pipeline(["m"], options(tmp_path), tmp_path)
    start = {"m.max_queue_delay_microseconds": "0", "m.max_batch_size": "8"}
    return new_texts(pipeline, start, {**start, "m.max_queue_delay_microseconds": chosen})


def test_writes_what_changed_and_keeps_the_rest(tmp_path: Path) -> None:
    texts = written(tmp_path, "100")
    file = tmp_path / "m" / "config.pbtxt"
    assert file.read_text() == TEXT  # until it is told to
    file.chmod(0o640)
    write_texts(texts)
    assert file.read_text() == TEXT.replace("{ }", "{ max_queue_delay_microseconds: 100 }")
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["config.pbtxt"]


def test_a_full_disk_leaves_the_file_of_before(tmp_path: Path) -> None:
    """It left the operator's file empty."""
    ((file, (old, new)),) = written(tmp_path, "100").items()
    with full_disk(), pytest.raises(SettingsError, match="config.pbtxt cannot be read or written: File too"):
        write_texts({file: (old, new + "#" * 4 * ROOM)})
    assert file.read_text() == old
    assert [path.name for path in file.parent.iterdir()] == ["config.pbtxt"]


def test_a_file_that_was_edited_meanwhile_is_left_alone(tmp_path: Path) -> None:
    texts = written(tmp_path, "100")
    file = tmp_path / "m" / "config.pbtxt"
    file.write_text(TEXT + "# mine\n")
    with pytest.raises(SettingsError, match="was changed while the search ran"):
        write_texts(texts)
    assert file.read_text() == TEXT + "# mine\n"
    file.unlink()
    with pytest.raises(SettingsError, match="cannot be read or written: No such file"):
        write_texts(texts)
