"""The real transport against a server in this process that plays Triton's part as it is needed."""

import asyncio
import contextlib
import gc

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.doubles.waiting import until
from trimodal.client import Client, ConnectError, ConnectionLost, ModelNotFound, Timeout, Timeouts
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import llm_outputs
from trimodal.client.transports.tensors import encode, strings
from trimodal.errors import InvalidArgument, RequestError, Unavailable


def response(text, finish_reason=""):
    message = service_pb2.ModelStreamInferResponse()
    inferred = message.infer_response
    inferred.model_name = "llm"
    as_request = encode(Request("llm", llm_outputs(text, finish_reason)))
    for tensor in as_request.inputs:
        inferred.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    inferred.raw_output_contents.extend(as_request.raw_input_contents)
    inferred.parameters["triton_final_response"].bool_param = bool(finish_reason)
    return message


def refusal(message, by_model):
    failure = service_pb2.ModelStreamInferResponse(error_message=message)
    failure.infer_response.model_name = "llm" if by_model else ""
    return failure


RETIRED = "Request for unknown model: 'llm' version 7 is not at ready state"


class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """`script` is what a stream does: messages to send, seconds to wait, or an exception to end with."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.metadata = []
        self.steps = ()
        self.cancelled = self.asked = 0
        self.running = 0

    async def ModelStreamInfer(self, requests, context):
        self.metadata.append(dict(context.invocation_metadata()))
        self.running += 1
        try:
            async for request in requests:
                self.requests.append(request)
                for step in self.script:
                    if isinstance(step, float):
                        await asyncio.sleep(step)
                    elif isinstance(step, tuple):
                        await context.abort(*step)
                    else:
                        yield step
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def ModelInfer(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if request.model_name == "nope":
            await context.abort(grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'nope' is not found")
        if request.model_version == "7":
            await context.abort(grpc.StatusCode.UNAVAILABLE, RETIRED)
        if request.model_name == "busy":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the queue is full")
        if request.model_name == "slow":
            await asyncio.sleep(30)
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        answer.outputs.add(name="embedding", datatype="FP32", shape=[1, 2])
        answer.raw_output_contents.append(np.array([3, 4], np.float32).tobytes())
        return answer

    async def ModelConfig(self, request, context):
        answer = service_pb2.ModelConfigResponse()
        answer.config.max_batch_size = 4
        for step in self.steps:
            answer.config.ensemble_scheduling.step.add(model_name=step)
        return answer

    async def ServerReady(self, request, context):
        return service_pb2.ServerReadyResponse(ready=True)

    async def ModelReady(self, request, context):
        return service_pb2.ModelReadyResponse(ready=request.name == "own")

    async def RepositoryIndex(self, request, context):
        self.asked += 1
        if ("key", "right") not in context.invocation_metadata():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted, expecting header")
        answer = service_pb2.RepositoryIndexResponse()
        for version in ("10", "2"):
            answer.models.add(name="llm", version=version, state="READY")
        answer.models.add(name="llm", version="7", state="UNAVAILABLE", reason="unloaded")
        return answer

    async def ModelStatistics(self, request, context):
        answer = service_pb2.ModelStatisticsResponse()
        if request.name in ("", "vision"):
            answer.model_stats.add(name="vision", version="1", inference_count=3)
        if request.name in ("", "llm"):
            answer.model_stats.add(name="llm", version="10")
            answer.model_stats.add(name="llm", version="2")
        return answer


@contextlib.asynccontextmanager
async def serving(**timeouts):
    servicer = Servicer()
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Client(f"127.0.0.1:{port}", timeouts=Timeouts(**timeouts)) as client:
        try:
            yield servicer, client, server
        finally:
            await server.stop(0)


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
        told, given = response("a", "stop"), encode(Request(model, {"stage": stage}))
        inferred, tensor = told.infer_response, given.inputs[0]
        inferred.outputs.add(name="stage", datatype=tensor.datatype, shape=tensor.shape)
        inferred.raw_output_contents.append(given.raw_input_contents[0])
        servicer.script = [told]
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
        servicer.script = [response("a"), failure, 30.0]
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


@pytest.mark.parametrize("how", ["break", "cancel", "aclose", "task", "deadline", "silence", "client"])
async def test_the_server_sees_every_way_of_leaving(how):
    async with serving(silence=0.3 if how == "silence" else 20) as (servicer, client, _):
        assert await client.ready()  # connected: the limit is for the answer alone
        servicer.script = [response("a"), 30.0, response("b", "stop")]
        stream = client.generate("hi", timeout=0.3 if how == "deadline" else None)
        first = await stream.__anext__()
        assert first.text == "a"
        if how == "break":
            del stream
            gc.collect()
        elif how == "cancel":
            asyncio.get_running_loop().call_later(0.05, stream.cancel)
            assert [delta async for delta in stream] == []
        elif how == "aclose":
            await stream.aclose()
        elif how == "client":
            await client.aclose()
        elif how == "task":
            task = asyncio.create_task(stream.answer())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with pytest.raises(Timeout, match="deadline" if how == "deadline" else "silent for 0.3 s"):
                await stream.answer()
        await until(lambda: servicer.running == 0)
        assert servicer.cancelled == 1


@pytest.mark.parametrize("how", ["break", "cancel", "aclose", "task", "client", "refusal"])
async def test_who_leaves_at_the_last_output_cancels_nothing(how):
    """Triton (2.51) now and then keeps a request for good that is cancelled while it completes."""
    async with serving() as (servicer, client, _):
        servicer.script = [response("a", "stop"), 0.3]
        if how == "refusal":
            servicer.script = [refusal("UNAVAILABLE: the queue is full", True), 0.3]
            with pytest.raises(Unavailable):
                await client.complete("hi")
        elif how == "task":
            task = asyncio.create_task(client.complete("hi"))
            await until(lambda: servicer.running == 1)
            await asyncio.sleep(0.05)
            task.cancel()
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
            else:
                await (client if how == "client" else stream).aclose()
        await until(lambda: servicer.running == 0)
        assert servicer.cancelled == 0


async def test_a_slow_reader_is_not_taken_for_a_silent_server():
    async with serving(silence=0.2) as (servicer, client, _):
        assert await client.ready()  # connected: the limit is for the answer alone
        servicer.script = [response("a"), response("b", "stop")]
        texts = []
        async for delta in client.generate("hi"):
            texts.append(delta.text)
            await asyncio.sleep(0.5)
        assert texts == ["a", "b"]


async def test_a_server_that_goes_away_is_an_error_and_not_a_hang():
    async with serving() as (servicer, client, server):
        servicer.script = [response("a"), 30.0]
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
        (30.0, False),
    ],
    ids=["answers", "refuses", "no engine", "killed", "not there", "killed, as a status", "silent"],
)
async def test_a_model_is_ready_when_it_answers_or_refuses_the_smallest_request(step, ready):
    async with serving(connect=0.3) as (servicer, client, _):
        servicer.script = [step]
        assert await client.ready("llm") is ready
        assert servicer.requests[0].parameters["probe"].bool_param


@pytest.mark.parametrize(("steps", "asked"), [((), 1), (("vision_preprocess", "vision_classify"), 0)])
async def test_vision_is_asked_itself_where_it_is_one_model(steps, asked):
    async with serving() as (servicer, client, _):
        servicer.steps = steps
        assert await client.ready("vision")
        assert len(servicer.metadata) == asked


async def test_unary_calls():
    async with serving(silence=0.3) as (_, client, _):
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
            await client.embed(["x"], model="slow")


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
