"""The real transport against a server in this process that plays Triton's part as it is needed."""

import asyncio
import contextlib
import gc
import math
import time
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.client.transports.grpc_server import RETIRED, refusal, response, serving
from tests.doubles.waiting import until
from trimodal.client import Client, ConnectError, ConnectionLost, ModelNotFound, Timeout, Timeouts
from trimodal.client.transports import grpc as module
from trimodal.client.transports import watchdog
from trimodal.client.transports.base import Request
from trimodal.client.transports.tensors import strings
from trimodal.errors import Cancelled, InvalidArgument, RequestError, Unavailable

LATER_S = 100.0


@pytest.fixture
def later(monkeypatch):
    """Lets the watchdog of a stream look `LATER_S` seconds later."""

    def look(stream):
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + LATER_S)
        monkeypatch.setattr(watchdog, "time", clock)
        stream._responses._watchdog._look()

    return look


async def test_a_stream():
    async with serving() as (servicer, client, _):
        servicer.script = [response("hé"), response("日"), response("", "stop")]
        answer = await client.complete("hi", max_tokens=3, request_id="mine")
        assert (answer.text, answer.finish_reason) == ("hé日", "stop")
        request = servicer.requests[0]
        assert (request.model_name, request.id) == ("llm", "mine")
        assert request.parameters["triton_enable_empty_final_response"].bool_param
        assert servicer.cancelled == 0


@pytest.mark.parametrize(
    "stage", [strings([]), strings([b"\xff"]), np.array([1 << 62]), np.array([np.nan], np.float32)]
)
@pytest.mark.parametrize("model", ["llm", "assistant"])
async def test_a_stage_that_is_none_is_ignored(stage, model):
    async with serving() as (servicer, client, _):
        servicer.script = [response("a", "stop", stage=stage)]
        request = Request(model, {"image": strings([b""])})
        responses = await client._transport.stream(request, Timeouts())
        outputs = await responses.read()
        assert outputs["stage"].shape == stage.shape
        assert await responses.read() is None


async def test_a_proxy_of_the_environment_is_not_asked(monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with serving() as (servicer, client, _):
        servicer.script = [response("a", "stop")]
        assert (await client.complete("hi")).text == "a"


async def test_the_empty_final_response_of_other_models_is_passed_over():
    async with serving() as (servicer, client, _):
        empty = service_pb2.ModelStreamInferResponse()
        empty.infer_response.parameters["triton_final_response"].bool_param = True
        servicer.script = [response("a"), empty, response("", "stop")]
        assert (await client.complete("hi")).text == "a"


@pytest.mark.parametrize(
    ("message", "by_model", "kind"),
    [
        ("INVALID_ARG: max_tokens is 0", True, InvalidArgument),
        ("UNAVAILABLE: the queue is full", True, Unavailable),
        ("no code here", True, RequestError),
        ("unexpected inference input 'x'", False, InvalidArgument),
        ("Request for unknown model: 'llm' is not found", False, ModelNotFound),
    ],
)
async def test_errors_in_a_stream(message, by_model, kind):
    async with serving() as (servicer, client, _):
        failure = service_pb2.ModelStreamInferResponse(error_message=message)
        failure.infer_response.model_name = "llm" if by_model else ""
        servicer.script = [response("a"), failure, asyncio.Event()]
        with pytest.raises(kind) as caught:
            await client.complete("hi")
        assert type(caught.value) is kind
        await until(lambda: servicer.running == 0)


@pytest.mark.parametrize("operator", [True, False])
async def test_a_version_that_was_unloaded_is_told_where_the_index_may_be_asked(operator):
    """Triton calls one that it had and has no more unavailable, for ever: who tries again never ends."""
    async with serving() as (servicer, client, _):
        client._transport._operator = (("key", "right"),) if operator else None
        kind, told = ModelNotFound, "the server has no model 'llm' version 7, only 10, 2"
        if not operator:
            kind, told = Unavailable, "is not ready: it is being loaded again"
        servicer.script = [service_pb2.ModelStreamInferResponse(error_message=RETIRED)]
        with pytest.raises(kind, match=told):
            await client.complete("hi", model="llm@7")
        with pytest.raises(kind, match=told):
            await client.complete("hi", model="llm@7", timeout=60)
        with pytest.raises(kind, match=told):
            await client.embed(["hi"], model="llm@7")
        with pytest.raises(Unavailable, match="is not ready"):  # none is: it is loaded again
            await client.embed(["hi"], model="own@7")
        assert servicer.asked == 4
        with pytest.raises(Unavailable, match="the queue is full"):
            await client.embed(["hi"], model="busy@2")
        assert servicer.asked == 4, "of a queue that is full nothing is asked"
        error = Unavailable(RETIRED)
        assert await client._transport._told(error, "llm@7", 0.0) is error, "no time is left"
        assert servicer.asked == 4


async def test_a_version_that_was_never_there_is_told_with_those_that_are():
    async with serving() as (servicer, client, _):
        missing = "Request for unknown model: 'llm' version 7 is not found"
        servicer.script = [service_pb2.ModelStreamInferResponse(error_message=missing)]
        with pytest.raises(ModelNotFound, match="the server has no model 'llm' version 7, only 10, 2"):
            await client.complete("hi", model="llm@7")
        missing = "Request for unknown model: 'llm' version 2 is not found"
        servicer.script = [service_pb2.ModelStreamInferResponse(error_message=missing)]
        with pytest.raises(Unavailable, match="version 2 was not loaded yet"):
            await client.complete("hi", model="llm@2")


@pytest.mark.parametrize("how", ["break", "cancel", "aclose", "task", "silence", "client"])
async def test_the_server_sees_every_way_of_leaving(how, later):
    async with serving() as (servicer, client, _):
        servicer.script = [response("a"), asyncio.Event(), response("b", "stop")]
        stream = client.generate("hi")
        first = await stream.__anext__()
        assert first.text == "a"
        if how == "break":
            del stream
            gc.collect()
        elif how == "aclose":
            await stream.aclose()
        else:
            waiting, watched = asyncio.create_task(stream.answer()), stream._responses._watchdog
            await until(lambda: watched._since is not None)
            if how == "cancel":
                stream.cancel()
                assert (await waiting).text == "a"
            elif how == "task":
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            elif how == "client":
                await client.aclose()
                with pytest.raises(Cancelled, match="the client was closed"):
                    await waiting
            else:
                later(stream)
                with pytest.raises(Timeout, match="silent for 60 s"):
                    await waiting
        await until(lambda: servicer.running == 0)
        assert servicer.cancelled == 1


async def test_the_server_sees_a_deadline():
    async with serving() as (servicer, client, _):
        servicer.script = [response("a"), asyncio.Event()]
        with pytest.raises(Timeout, match="deadline"):
            await client.complete("hi", timeout=0.3)
        await until(lambda: servicer.running == 0)
        assert servicer.cancelled == servicer.begun, "it may have come too late for the server"


@pytest.mark.parametrize("how", ["break", "cancel", "aclose", "task", "client", "refusal"])
async def test_who_leaves_at_the_last_output_cancels_nothing(how, monkeypatch):
    """Triton (2.51) now and then keeps a request for good that is cancelled while it completes."""
    monkeypatch.setattr(module, "_END_S", 60.0)
    async with serving() as (servicer, client, _):
        completes = asyncio.Event()
        servicer.script = [response("a", "stop"), completes]
        if how == "refusal":
            servicer.script = [refusal("UNAVAILABLE: the queue is full", True), completes]
            with pytest.raises(Unavailable):
                await client.complete("hi")
        elif how == "task":
            finish = module.GrpcResponses.finish

            def cancel(responses):
                finish(responses)
                task.cancel()

            monkeypatch.setattr(module.GrpcResponses, "finish", cancel)
            task = asyncio.create_task(client.complete("hi"))
            with contextlib.suppress(asyncio.CancelledError):
                await task
        else:
            stream = client.generate("hi")
            assert (await stream.__anext__()).finish_reason == "stop"
            if how == "break":
                del stream
                gc.collect()
            elif how == "cancel":
                stream.cancel()
            elif how == "aclose":
                await stream.aclose()
            else:
                closing = asyncio.create_task(client.aclose())  # which waits for the end
        await asyncio.sleep(0)
        completes.set()
        await until(lambda: servicer.running == 0)
        if how == "client":
            await closing
        assert servicer.cancelled == 0


async def test_a_slow_reader_is_not_taken_for_a_silent_server(later):
    async with serving() as (servicer, client, _):
        servicer.script = [response("a"), response("b", "stop")]
        stream = client.generate("hi")
        assert (await stream.__anext__()).text == "a"
        later(stream)
        assert (await stream.answer()).text == "ab"


async def test_a_server_that_goes_away_is_an_error_and_not_a_hang():
    async with serving() as (servicer, client, server):
        servicer.script = [response("a"), asyncio.Event()]
        stream = client.generate("hi")
        await stream.__anext__()
        stopping = asyncio.create_task(server.stop(0))
        with pytest.raises((ConnectionLost, RequestError)):
            await stream.answer()
        await stopping
        with pytest.raises((ConnectError, ConnectionLost), match="server at 127.0.0.1"):
            await client.complete("again")
        assert not await client.ready()


async def test_nobody_there():
    async with Client("127.0.0.1:1") as client:
        assert not await client.ready()
        for call in (client.complete("x"), client.models(), client.embed(["x"])):
            with pytest.raises(ConnectError, match="no server at 127.0.0.1:1"):
                await call


async def test_a_stream_that_the_server_ends_with_a_status():
    async with serving() as (servicer, client, _):
        servicer.script = [(grpc.StatusCode.INVALID_ARGUMENT, "no such thing")]
        with pytest.raises(InvalidArgument, match="no such thing"):
            await client.complete("hi")


@pytest.mark.parametrize(
    ("step", "ready"),
    [
        (response("", "ready"), True),
        (refusal("INVALID_ARG: unknown parameter 'probe'", by_model=True), True),  # of an older server
        (refusal("UNAVAILABLE: the engine is being restarted; try again later", by_model=True), False),
        (refusal("Stub process 'llm_0_0' is not healthy.", by_model=True), False),
        (refusal("Request for unknown model: 'llm' is not found", by_model=False), False),
        ((grpc.StatusCode.INTERNAL, "Stub process 'llm_0_0' is not healthy."), False),
        (None, False),
    ],
    ids=["answers", "refuses", "no engine", "killed", "not there", "killed, as a status", "silent"],
)
async def test_a_model_is_ready_when_it_answers_or_refuses_the_smallest_request(step, ready):
    async with serving(connect=60 if step else 0.3) as (servicer, client, _):
        servicer.script = [step or asyncio.Event()]
        if not step:  # that may come too late for the server
            assert not await client.ready("llm")
            return
        assert await client.ready("llm") is ready
        assert servicer.requests[0].parameters["probe"].bool_param


async def test_turn_is_asked_itself():
    """Triton calls a model ready whose process is gone, and the gateway went by that for semantic_vad."""
    async with serving() as (servicer, client, _):
        await client.ready("turn")
        assert len(servicer.metadata) == 1


@pytest.mark.parametrize(("steps", "asked"), [((), 1), (("vision_preprocess", "vision_classify"), 0)])
async def test_vision_is_asked_itself_where_it_is_one_model(steps, asked):
    async with serving() as (servicer, client, _):
        servicer.steps = steps
        assert await client.ready("vision")
        assert len(servicer.metadata) == asked


async def test_unary_calls():
    async with serving() as (_, client, _):
        assert (await client.embed(["x"])).tolist() == [[3, 4]]
        assert await client.max_batch_size("any") == 4
        assert await client.ready()
        assert await client.ready("own")
        assert not await client.ready("other")
        assert [(model.name, model.version) for model in await client.models()] == [
            ("llm", "2"),
            ("llm", "10"),
            ("vision", "1"),
        ]
        with pytest.raises(ModelNotFound, match="the server has no model 'nope'"):
            await client.embed(["x"], model="nope")
        with pytest.raises(Unavailable, match="the queue is full"):
            await client.embed(["x"], model="busy")
        with pytest.raises(Timeout):
            await client.embed(["x"], model="slow", timeout=0.3)


@pytest.mark.parametrize("name", ["connect", "silence", "total"])
@pytest.mark.parametrize("seconds", [math.inf, 1e300, 1e10])
async def test_a_timeout_without_end(name, seconds):
    async with serving(**{name: seconds}) as (servicer, client, _):
        servicer.script = [response("a", "stop")]
        assert (await client.embed(["x"])).tolist() == [[3, 4]]
        assert (await client.complete("hi", timeout=seconds)).text == "a"


async def test_what_runs_when_the_client_is_closed_is_told_so_and_what_comes_later_is_refused():
    async with serving() as (servicer, client, _):
        running = asyncio.create_task(client.embed(["x"], model="slow"))
        await until(lambda: servicer.requests)  # before, the model's limits are asked for
        await client.aclose()
        with pytest.raises(Cancelled, match="the client was closed"):
            await running
        live = client.listen()
        calls = [client.embed(["x"]), client.complete("hi"), client.models(), client.ready()]
        for call in (*calls, client.ready("llm"), live.send(np.zeros(16_000, np.float32))):
            with pytest.raises(InvalidArgument, match="the client is closed: open another one"):
                await call
        await client.aclose()


def test_a_client_of_another_event_loop_is_refused():
    """It ended with gRPC's RuntimeError, and asyncio.run has a loop of its own each time."""
    client = Client("127.0.0.1:1")
    with pytest.raises(ConnectError):
        asyncio.run(client.embed(["x"]))
    for call in (client.embed, client.complete, client.ready):
        with pytest.raises(InvalidArgument, match="was used in another event loop"):
            asyncio.run(call(["x"] if call == client.embed else "llm"))


async def test_metadata_goes_with_every_request_of_its_client():
    async with serving() as (servicer, client, _):
        servicer.script = [response("a", "stop")]
        traced = client.with_metadata({"traceparent": "00-1-2-03"}, "mine")
        await traced.complete("hi")
        await traced.embed(["a"])
        await traced.complete("hi", request_id="its own")
        await client.complete("hi")
        told = [one.get("traceparent") for one in servicer.metadata]
        assert told == ["00-1-2-03", "00-1-2-03", "00-1-2-03", None]
        assert [one.id for one in servicer.requests] == ["mine", "mine", "its own", ""]
        await traced.aclose()
        assert (await client.complete("hi")).text == "a", "the connections are the first client's"
