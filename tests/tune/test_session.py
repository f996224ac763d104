"""What a session does around a search: it finds the pipeline, restores, and writes."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("optuna")

from tests.tune.doubles import FakeRepository
from trimodal.bench.load.slo import NO_SLO
from trimodal.errors import SettingsError
from trimodal.server.options import ServerOptions
from trimodal.tune import session
from trimodal.tune.objective import parse_objective
from trimodal.tune.search import Budget, Round, TrialError
from trimodal.tune.session import chosen_knobs, live_pipeline, new_texts, tune, write_texts
from trimodal.tune.settings import TuneSettings

TEXT = "name: 'm'\nmax_batch_size: 8  # rows\ndynamic_batching { }  # at once\n"
CONFIGS = {
    "m": "name: 'm' max_batch_size: 8 dynamic_batching { } input { name: 'x' data_type: TYPE_FP32 dims: 1 }",
    "pipe": "name: 'pipe' platform: 'ensemble' ensemble_scheduling { step { model_name: 'm' } }",
}


class Guarded:
    """The guard's double: says whether it was released."""

    released = 0

    def __init__(self, server: object, snapshot: object) -> None:
        Guarded.released = 0

    def release(self) -> None:
        Guarded.released += 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeRepository:
    fake = FakeRepository(CONFIGS)
    fake.close = lambda: None  # type: ignore[attr-defined]
    fake.url = "here:1"  # type: ignore[attr-defined]
    monkeypatch.setattr(session, "LiveServer", lambda url, key: fake)
    monkeypatch.setattr(session, "Guard", Guarded)
    return fake


KNOB = ("m.max_queue_delay_microseconds=0,100,200",)


def settings(tmp_path: Path, **more: Any) -> TuneSettings:
    return TuneSettings(
        **{
            "model": "m",
            "objective": parse_objective(None, None, NO_SLO, 0.0),
            "options": ServerOptions(repository=tmp_path),
            "budget": Budget(trials=3, rounds=1, final_rounds=1),
            "url": "here:1",
            "only": True,
            "knobs": KNOB,
        }
        | more
    )


def measuring(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure(system: session.LiveSystem) -> Round:
        found = value(system)
        if isinstance(found, BaseException):
            raise found
        return Round(found)

    monkeypatch.setattr(session.LiveSystem, "measure", measure)


def delay(fake: FakeRepository) -> int:
    return int(fake.live["m"].dynamic_batching.max_queue_delay_microseconds)


def test_tunes_and_puts_back(server: FakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring(lambda system: 1.0 + delay(server), monkeypatch)
    before = server.config("m")
    tuned = tune(settings(tmp_path))
    assert tuned.result
    assert tuned.result.chosen.setting == {"m.max_queue_delay_microseconds": "200"}
    assert server.config("m") == before
    assert "unload m" in server.calls
    assert Guarded.released == 1


def test_ctrl_c_keeps_the_trials_and_puts_back(
    server: FakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(lambda system: KeyboardInterrupt() if delay(server) else 1.0, monkeypatch)
    before = server.config("m")
    tuned = tune(settings(tmp_path))
    assert tuned.result is None
    assert len(tuned.trials) == 1
    assert server.config("m") == before
    assert Guarded.released == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError(), SettingsError("no such figure")])
def test_a_failure_puts_back(
    server: FakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    measuring(lambda system: error if delay(server) else 1.0, monkeypatch)
    before = server.config("m")
    with pytest.raises(type(error)):
        tune(settings(tmp_path))
    assert server.config("m") == before
    assert Guarded.released == 1


def test_trials_that_are_refused_or_die_are_told_and_put_back(
    server: FakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.refuse = lambda config: "no" if config.dynamic_batching.max_queue_delay_microseconds == 100 else ""
    measuring(lambda system: TrialError("dead", "failed") if delay(server) == 200 else 1.0, monkeypatch)
    before = server.config("m")
    tuned = tune(settings(tmp_path))
    assert {one.state for one in tuned.trials} == {"measured", "refused", "failed"}
    assert server.config("m") == before


def test_what_is_not_put_back_is_an_error_and_the_guard_stays(
    server: FakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(lambda system: 1.0, monkeypatch)
    restore = session.Snapshot.restore
    monkeypatch.setattr(session.Snapshot, "restore", lambda self: restore(self, patience=0.0))
    server.refuse = lambda config: "" if config.dynamic_batching.max_queue_delay_microseconds else "no"
    with pytest.raises(session.ServerError, match=r"m \(no\)"):
        tune(settings(tmp_path))
    assert Guarded.released == 0


def test_restoring_waits_for_the_load_under_way(server: FakeRepository, tmp_path: Path) -> None:
    pipeline = live_pipeline(server, "m", tmp_path, "cpu")
    loading, done = threading.Lock(), []
    loading.acquire()
    stack = ExitStack()
    session.keep(server, pipeline, loading, stack)  # type: ignore[arg-type]
    closing = threading.Thread(target=lambda: (stack.close(), done.append(1)))
    closing.start()
    server.live["m"].max_batch_size = 99
    assert not done
    loading.release()
    closing.join(5.0)
    assert server.live["m"].max_batch_size == 8


def test_a_server_that_died_is_started_again(tmp_path: Path) -> None:
    fake = FakeRepository(CONFIGS)
    revived: list[int] = []
    server = SimpleNamespace(dead=True, live=fake, revive=lambda: revived.append(1))
    system = session.LiveSystem(settings(tmp_path), live_pipeline(fake, "m", tmp_path, "cpu"), server)  # type: ignore[arg-type]
    asyncio.run(system.apply({"m.max_batch_size": "16"}))
    assert revived == [1]
    assert fake.live["m"].max_batch_size == 16


def test_the_pipeline_is_what_the_server_has(tmp_path: Path) -> None:
    pipeline = live_pipeline(FakeRepository(CONFIGS), "pipe", tmp_path, "cpu")
    assert list(pipeline.models) == ["pipe", "m"]
    knobs = chosen_knobs(pipeline, ["m.instance_count=1,3"], only=False)
    assert {knob.label: knob.choices for knob in knobs}["m.instance_count"] == ("1", "3")
    assert len(chosen_knobs(pipeline, ["m.instance_count=1,3"], only=True)) == 1


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--only needs a --knob"):
        settings(tmp_path, knobs=())
    with pytest.raises(SettingsError, match="leave it or --url out"):
        settings(tmp_path, options=ServerOptions(repository=tmp_path, changes={"m": {"a": "1"}}))


def written(tmp_path: Path, chosen: str) -> dict[Path, tuple[str, str]]:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text(TEXT)
    pipeline = live_pipeline(FakeRepository(CONFIGS), "m", tmp_path, "cpu")
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


def test_nothing_changed_nothing_is_written(tmp_path: Path) -> None:
    assert written(tmp_path, "0") == {}


def test_a_file_that_was_edited_meanwhile_is_left_alone(tmp_path: Path) -> None:
    texts = written(tmp_path, "100")
    file = tmp_path / "m" / "config.pbtxt"
    file.write_text(TEXT + "# mine\n")
    with pytest.raises(SettingsError, match="was changed while the search ran"):
        write_texts(texts)
    assert file.read_text() == TEXT + "# mine\n"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    texts = written(tmp_path, "100")
    file = tmp_path / "m" / "config.pbtxt"
    other = tmp_path / "elsewhere.pbtxt"
    file.rename(other)
    file.symlink_to(other)
    write_texts(texts)
    assert file.is_symlink()
    assert "100" in other.read_text()


def test_a_model_without_a_file_here_names_it(tmp_path: Path) -> None:
    pipeline = live_pipeline(FakeRepository(CONFIGS), "m", tmp_path, "cpu")
    with pytest.raises(SettingsError, match=r"config.pbtxt cannot be read, so m.max_batch_size=16"):
        new_texts(pipeline, {"m.max_batch_size": "8"}, {"m.max_batch_size": "16"})
