"""Calls the llm over the server's own gRPC endpoint: one call an answer, which ends at once when cancelled.

The other models are called inside Triton (BLS). The llm is not: on 2.51 a model with several streamed
calls of that kind under way hangs (its threads wait for each other, with Python's global
lock held), an error in the middle of an answer is lost, and a call cannot be cancelled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2_grpc

from trimodal.assistant.values import Piece
from trimodal.client.errors import from_message, from_status, of_versions, question_of_versions
from trimodal.client.transports.base import Request
from trimodal.client.transports.tensors import decode, encode
from trimodal.errors import InternalError, ModelNotFound, RequestError, Unavailable
from trimodal.paths import ADDRESS_VARIABLE
from trimodal.trace import NAME

DEFAULT_ADDRESS = "127.0.0.1:8001"
_MESSAGE_BYTES = 64 << 20
_ASK_S = 2.0  # for which versions there are
_TEXTS = ("text_output", "finish_reason")
_DETAILS = ("prompt_tokens", "cached_tokens", "completion_tokens", "logprobs")
_NOTE = ("cache", "similarity", "trimmed", "queue_ms", "predicted_ttft_ms", NAME)
OnCancel = Callable[[Callable[[], None]], AbstractContextManager[None]]


class LlmConnection:
    """Streamed calls of one model at `address`, host:port; empty: of the server that runs this process."""

    def __init__(self, address: str, model: str) -> None:
        self._address = address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        self._model = model
        sizes = ("grpc.max_receive_message_length", "grpc.max_send_message_length")
        options = [*((size, _MESSAGE_BYTES) for size in sizes), ("grpc.enable_http_proxy", 0)]
        # Connects with the first call, when the server listens.
        channel = grpc.insecure_channel(self._address, options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def answer(
        self,
        inputs: Mapping[str, NDArray[Any]],
        on_cancel: OnCancel,
        *,
        trace: bool = False,
        headers: Mapping[str, str] | None = None,
        request_id: str = "",
        version: str = "",
    ) -> Iterator[Piece]:
        """Streams the answer, piece by piece; `on_cancel` is entered with what ends it.

        With `trace` the last piece tells what took how long; `headers` belong to the trace of all, which logs
        know by `request_id`. Without `version` the highest one is asked.

        Raises RequestError: the model's own, or InternalError where the endpoint cannot be reached.
        """
        model = f"{self._model}@{version}" if version else self._model
        request = Request(model, inputs, request_id, {NAME: True} if trace else {})
        metadata = tuple((headers or {}).items())
        call = self._stub.ModelStreamInfer(iter([encode(request)]), metadata=metadata)
        problem: RequestError | None = None
        try:
            with on_cancel(call.cancel):
                for response in call:
                    if response.error_message:
                        # Told once the call has ended: Triton 2.51 may keep a cancelled request for good.
                        by_model = bool(response.infer_response.model_name)
                        problem = problem or from_message(response.error_message, by_model=by_model)
                    elif outputs := decode(response.infer_response):
                        yield _piece(outputs)
            if problem:
                raise self.of_version(problem, self._model, version)
        except grpc.RpcError as error:
            failure = from_status(error.code(), error.details(), self._address)
            if isinstance(failure, RequestError):
                raise self.of_version(failure, self._model, version) from None
            raise InternalError(f"the server's own gRPC endpoint {self._address} fails: {failure}") from None
        finally:
            call.cancel()  # nothing if it is over

    def of_version(self, error: RequestError, model: str, version: str) -> RequestError:
        """What to tell of a model's refusal: of a version that is not there, which are.

        That it may come is not the request's fault.
        """
        told = error
        if version and (question := question_of_versions(error, model)):
            method, message = question
            with suppress(grpc.RpcError):  # it has none, or the index is for operators
                answer = getattr(self._stub, method)(message, timeout=_ASK_S)
                told = of_versions(error, model, version, answer)
        if told is error and isinstance(error, ModelNotFound):
            return Unavailable(f"{error}; try again later")
        return told


def _piece(outputs: Mapping[str, NDArray[Any]]) -> Piece:
    text, finish_reason = (bytes(outputs[name][0]).decode() for name in _TEXTS)
    names = [*_TEXTS, *_DETAILS, *(_NOTE if finish_reason else ())]
    # Copies: what Triton handed over lies in memory that it takes back.
    return Piece(text, finish_reason, {name: np.array(outputs[name]) for name in names if name in outputs})
