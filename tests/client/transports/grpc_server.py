"""A server in this process that plays Triton's part as a test needs it."""

import asyncio
import contextlib

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from trimodal.client import Client, Timeouts
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import llm_outputs
from trimodal.client.transports.tensors import encode


def streamed(outputs):
    """A response of a stream with these outputs."""
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.model_name = "llm"
    as_request = encode(Request("llm", outputs))
    for tensor in as_request.inputs:
        output = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        message.infer_response.outputs.add(**output)
    message.infer_response.raw_output_contents.extend(as_request.raw_input_contents)
    return message


def response(text, finish_reason="", **more):
    message = streamed({**llm_outputs(text, finish_reason), **more})
    message.infer_response.parameters["triton_final_response"].bool_param = bool(finish_reason)
    return message


def refusal(message, by_model):
    failure = service_pb2.ModelStreamInferResponse(error_message=message)
    failure.infer_response.model_name = "llm" if by_model else ""
    return failure


RETIRED = "Request for unknown model: 'llm' version 7 is not at ready state"


class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """`script` is what a stream does: messages to send, events to wait for, or a status to end with."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.metadata = []
        self.steps = ()
        self.begun = self.cancelled = self.asked = self.running = 0

    async def ModelStreamInfer(self, requests, context):
        self.metadata.append(dict(context.invocation_metadata()))
        self.begun += 1
        self.running += 1
        try:
            async for request in requests:
                self.requests.append(request)
                for step in self.script:
                    if isinstance(step, asyncio.Event):
                        await step.wait()
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
            await asyncio.Event().wait()
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
    servicer.url = f"127.0.0.1:{port}"
    await server.start()
    async with Client(servicer.url, timeouts=Timeouts(**timeouts)) as client:
        try:
            yield servicer, client, server
        finally:
            await server.stop(0)
