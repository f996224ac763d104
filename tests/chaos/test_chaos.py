"""Faults against the real server under load, each with its bound; `scripts/ci/chaos` has all of them.

On a machine that does other things, too, a bound is `SLACK` times the goal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import judge
from tests.chaos.faults.base import CannotBeMade, Fault, Needs
from tests.chaos.faults.connections import IdleConnections, SlowReaders
from tests.chaos.faults.outside import ClockJump, FrozenRedis
from tests.chaos.faults.processes import Kill, Stop
from tests.chaos.faults.repositories import REPOSITORY, changed, copied, flipped
from tests.chaos.faults.resources import FullDisk, FullSharedMemory, OutOfDescriptors
from tests.chaos.faults.storms import storm
from tests.chaos.faults.vanish import vanish_in
from tests.chaos.judge import Row
from tests.chaos.served import Gone, Served
from tests.chaos.under_load import in_served

pytestmark = pytest.mark.e2e

SLACK = 4.0
VANISHING = 200


@pytest.fixture(scope="module", autouse=True)
def _bounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TOLD_S", "RECOVERY_S", "STOP_S"):
            patch.setattr(judge, name, SLACK * getattr(judge, name))
        yield


def serve(directory: Path, *faults: Fault) -> Served:
    """One server for some faults; skips where one cannot be made here."""
    needs = Needs()
    for fault in faults:
        try:
            needs += fault.needs(directory)
        except CannotBeMade as error:
            pytest.skip(str(error))
    return needs.serve(directory)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that outlives its faults."""
    server = serve(tmp_path_factory.mktemp("served"))
    yield server
    server.kill()


def made(fault: Fault, served: Served, holds_s: float = 1.0) -> Row:
    """The fault's row; skips where Triton's own limit ended the server."""
    fault.holds_s = min(fault.holds_s, holds_s)
    try:
        row = asyncio.run(in_served(fault, served, before_s=0.5))
    finally:
        fault.close()
    if fault.limit and (row.limit or not served.alive()):
        pytest.skip(fault.limit)
    assert served.alive(), served.output
    assert not row.missed, row
    assert served.idle() == {}
    return row


def test_clients_that_vanish_leave_nothing(served: Served) -> None:
    row = asyncio.run(vanish_in(served, VANISHING, drops=False))
    assert not row.missed, row


def test_a_killed_process_is_told_and_replaced(served: Served) -> None:
    row = made(Kill("embedding"), served)
    assert "embedding" in row.lost or row.lost.startswith("none")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["assistant", "llm"])
def test_each_killed_process(tmp_path: Path, part: str) -> None:
    server = serve(tmp_path)
    try:
        made(Kill(part), server)
    finally:
        server.kill()


def resource_faults() -> list[Fault]:
    return [
        FullDisk(), FullSharedMemory(), OutOfDescriptors("llm"), OutOfDescriptors("vision"),
        OutOfDescriptors("tritonserver"), Kill("engine"), Stop("engine", 0.5), Stop("launcher", 0.5),
        IdleConnections(200), SlowReaders(count=4),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a small disk and little shared memory of its own."""
    server = serve(tmp_path_factory.mktemp("harmed"), *resource_faults())
    yield server
    server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("fault", resource_faults(), ids=lambda fault: fault.name)
def test_what_a_server_lives_on(harmed: Served, fault: Fault) -> None:
    if not harmed.alive():
        pytest.fail(f"the server ended before: {harmed.output}")
    made(fault, harmed, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [FrozenRedis, lambda: ClockJump(48), lambda: ClockJump(-48)],
    ids=["redis-frozen", "clock+48h", "clock-48h"],
)
def test_what_it_relies_on(tmp_path: Path, make: Callable[[], Fault]) -> None:
    fault = make()
    server = serve(tmp_path, fault)
    try:
        made(fault, server, 2.0)
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["loading", "serving", "draining"])
def test_a_storm_of_signals(tmp_path: Path, moment: str) -> None:
    row = asyncio.run(storm(moment, tmp_path))
    assert not row.missed, row


@pytest.mark.slow
def test_a_damaged_engine_is_refused_by_name(tmp_path: Path) -> None:
    artefact = "vision_classify/1/onnx-int8"
    assert (REPOSITORY / artefact).is_dir(), "build it with `trimodal build all --recipe starter`"
    repository = copied(tmp_path)
    changed(repository / artefact / "model.onnx", flipped)
    with pytest.raises(Gone, match=r"model\.onnx is not the file that was built") as refused:
        Served(
            tmp_path, real=True, models=["vision"], arguments=["--model-repository", str(repository)]
        ).kill()
    assert "Traceback" not in str(refused.value)
