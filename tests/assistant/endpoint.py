"""A gRPC endpoint with one streamed model, for tests: what Triton would be to the assistant's own calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

from tests.client.transports.grpc_server import refusal, streamed

Answer = Callable[[Mapping[str, Any]], Iterator[Any]]


class Endpoint(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers with what `answer` gives: outputs by name, or the text of an error."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Any]] = []
        self.parameters: list[dict[str, bool]] = []
        self.headers: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.models: list[tuple[str, str]] = []  # name and version
        self.loaded: list[tuple[str, str]] = []  # likewise, of those that take requests
        self.states: list[tuple[str, str, str]] = []  # the repository index; none: it is for operators
        self.ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(16))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(0).wait(10)

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        context.add_callback(self.ended.set)
        request = next(requests)
        inputs = {
            one.name: _array(one.datatype, raw)
            for one, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        self.asked.append(inputs)
        self.parameters.append({name: value.bool_param for name, value in request.parameters.items()})
        self.ids.append(request.id)
        self.models.append((request.model_name, request.model_version))
        self.headers.append(dict(context.invocation_metadata()))
        for outputs in self.answer(inputs):
            if not context.is_active():
                return
            if isinstance(outputs, str):  # Triton names no model in what it refuses itself
                yield refusal(outputs, by_model=not outputs.startswith("Request for unknown model"))
            else:
                yield streamed(outputs)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.states:
            context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted")
        answer = service_pb2.RepositoryIndexResponse()
        for name, version, state in self.states:
            reason = "unloaded" if state == "UNAVAILABLE" else ""
            answer.models.add(name=name, version=version, state=state, reason=reason)
        return answer

    def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = service_pb2.ModelStatisticsResponse()
        for name, version in self.loaded:
            if name == request.name:
                answer.model_stats.add(name=name, version=version)
        if not answer.model_stats:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "requested model is not available")
        return answer


def _array(datatype: str, raw: bytes) -> Any:
    if datatype == "BYTES":
        return deserialize_bytes_tensor(raw)
    return np.frombuffer(raw, triton_to_np_dtype(datatype))
