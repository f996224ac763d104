"""What the engine's process says of an engine that does not open, is lost, or refuses a request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.connection import Pipe
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from tests.llm.doubles.engine_thread import PlayedEngine
from tests.llm.doubles.sinks import FakeServer
from trimodal.errors import InternalError, InvalidArgument
from trimodal.llm.engine_core import core
from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engine_core.messages import Failed
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineLost, EngineRequest
from trimodal.llm.settings import LlmSettings


class Config(BaseModel):
    """As vLLM's SchedulerConfig refuses what does not fit together."""

    step: int

    @model_validator(mode="after")
    def _fits(self) -> Config:
        raise ValueError("max_num_batched_tokens (8) must be greater than or equal to max_num_seqs (16)")


def refused() -> None:
    Config(step=8)


def failed() -> None:
    raise RuntimeError("Traceback\n  somewhere\nno kernel image is available\n")


@pytest.mark.parametrize(
    ("opening", "sentence"),
    [
        (refused, "max_num_batched_tokens (8) must be greater than or equal to max_num_seqs (16)"),
        (failed, "no kernel image is available"),
    ],
)
def test_a_runtime_that_does_not_open_says_why_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, opening: Callable[[], None], sentence: str
) -> None:
    monkeypatch.setattr(core, "open_engine", lambda settings: opening())
    ours, theirs = Pipe()
    assert core._open(LlmSettings(engine="fake"), theirs) is None
    assert ours.recv() == Failed(f"engine 'fake' did not open: {sentence}")


def test_the_other_side_learns_of_a_lost_engine_before_it_is_closed() -> None:
    closes, goes = threading.Event(), threading.Event()
    goes.set()

    class Slow(PlayedEngine):
        def close(self) -> None:
            assert closes.wait(10), "the loss is told only when the library is closed"

    engine = Slow(LlmSettings(engine="fake"), goes)
    ours, theirs = Pipe()
    lost: list[BaseException] = []

    def run() -> None:
        try:
            core.run_engine(engine, theirs)
        except EngineLost as error:
            lost.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    client = EngineCoreClient(ours)
    engine.lost.set()
    assert client.receive() is None
    closes.set()
    thread.join(10)
    assert [str(error) for error in lost] == ["CUDA error: an illegal memory access was encountered"]
    client.close()


@pytest.mark.parametrize(
    ("raised", "kind", "sentence"),
    [
        (
            ValueError("9 tokens, and it takes 8"),
            InvalidArgument,
            "refused this request: 9 tokens, and it takes 8",
        ),
        (RuntimeError("cudaErrorLaunchFailure"), InternalError, "the engine failed on this request"),
    ],
)
def test_a_request_that_is_refused_is_the_clients_fault_one_that_fails_is_not(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: type[Any], sentence: str
) -> None:
    def add(self: FakeEngine, request: EngineRequest) -> None:
        raise raised

    monkeypatch.setattr(FakeEngine, "add", add)
    with FakeServer() as server:
        error = server.ask().wait().error
        server.nothing_left()
    assert isinstance(error, kind)
    assert sentence in str(error)
