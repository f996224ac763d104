"""Live streams that are ended from outside: the server drains, or one of its processes is killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import BOUND, own_processes, unsupervised, wait_until
from tests.e2e.metrics import total
from tests.e2e.speech.streams import MODELS, Stream, changes, heard, over_grpc, sentences, spelled
from trimodal.client import Client
from trimodal.client.values import LiveUpdate
from trimodal.errors import Unavailable
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e


def stub(server: TritonServer, model: str) -> int:
    """Process id of a model's stub."""
    found = own_processes(rf"python_backend_stub \S*/{model}/1/model\.py")
    (pid,) = (pid for pid in found if os.getpgid(pid) == server.pid)
    return pid


async def attempt(server: TritonServer) -> None:
    """A new stream by the project's own client."""
    async with Client(server.grpc_url) as client, client.listen() as stream:
        await stream.send(np.zeros(8000, np.float32))


def test_a_drain_waits_for_last_words_and_tells_live_streams(
    no_leftovers: None, own_server: Callable[..., TritonServer]
) -> None:
    server = own_server(MODELS, changes(batch_ms=400))
    samples, said = sentences(1, 12)
    last: list[LiveUpdate] = []
    cuts: list[list[str]] = []
    with over_grpc(server) as line, over_grpc(server) as other:
        ending, live = Stream(line, policy="vad"), Stream(other)
        live.send(samples)
        updates = [ending.send(samples)]
        waiting = threading.Thread(target=lambda: last.append(ending.send(None, end=True)))
        waiting.start()
        wait_until(lambda: total(server, "trimodal_speech_active_requests") == 1, "an END that waits")
        stopping = threading.Thread(target=lambda: cuts.append(server.stop(30.0)))
        stopping.start()

        wait_until(lambda: not server.api.ready("speech"), "the drain to begin", 10)
        with pytest.raises(InferenceServerException, match="'speech' has no available versions"):
            live.send(samples[:8000])
        with pytest.raises(Unavailable, match="'speech' has no available versions"):
            asyncio.run(attempt(server))
        assert not last, "the END still waits, and it is waited for"
        waiting.join(BOUND)
        stopping.join(BOUND)
    assert cuts == [[]], "nothing was cut"
    assert last[0].final
    assert spelled(heard([*updates, *last])) == spelled(said)


@pytest.mark.slow
def test_a_killed_recogniser_is_an_error_for_every_stream_and_the_server_still_ends(
    no_leftovers: None, own_server: Callable[..., TritonServer]
) -> None:
    """Where it cannot be loaded again: Triton 2.51 does not start a stub again, and calls the model ready."""
    server = unsupervised(own_server(MODELS, changes(batch_ms=100, recognizer_wait_s=2)))
    samples, _ = sentences(2, 12)
    told = "the process of model 'speech_recognize' died"
    with over_grpc(server) as line:
        ended, live = Stream(line), Stream(line)
        for stream in (ended, live):
            stream.send(samples)
        os.kill(stub(server, "speech_recognize"), signal.SIGKILL)
        with pytest.raises(InferenceServerException, match=told) as caught:
            ended.send(None, end=True)
        assert caught.value.status() == "StatusCode.UNAVAILABLE"

        def fails() -> bool:
            try:
                live.send(samples[:8000])
            except InferenceServerException as error:
                return bool(re.search(told, error.message()))
            return False

        wait_until(fails, "the live stream to be told", 20)
        with pytest.raises(InferenceServerException, match="is not open: .* it failed"):
            live.send(samples[:8000])
        gauges = ("active_streams", "active_requests", "windows_in_flight")
        wait_until(
            lambda: not any(total(server, f"trimodal_speech_{name}") for name in gauges),
            "an empty server",
            10,
        )
        server.stop(1.0)


@pytest.mark.slow
def test_when_the_stub_that_keeps_the_streams_is_killed_clients_are_told_and_the_server_ends(
    no_leftovers: None, own_server: Callable[..., TritonServer]
) -> None:
    """Where it is not loaded again: while it is, Triton 2.51 calls the model unknown instead."""
    server = unsupervised(own_server(MODELS, changes(batch_ms=1000)))
    samples, _ = sentences(3, 12)
    errors: list[InferenceServerException] = []
    with over_grpc(server) as line, over_grpc(server) as other:
        ending, live = Stream(line), Stream(other)
        for stream in (ending, live):
            stream.send(samples)

        def end() -> None:
            try:
                ending.send(None, end=True)
            except InferenceServerException as error:
                errors.append(error)

        waiting = threading.Thread(target=end)
        waiting.start()
        wait_until(lambda: total(server, "trimodal_speech_active_requests") == 1, "an END that waits")
        os.kill(stub(server, "speech"), signal.SIGKILL)
        with pytest.raises(InferenceServerException, match="not healthy"):
            live.send(samples[:8000])
        server.stop(1.0)
        waiting.join(BOUND)
    assert not waiting.is_alive()
    assert len(errors) == 1
