"""Calls the llm over the server's own gRPC endpoint: one call an answer, which ends at once when cancelled.

The other models are called inside Triton (BLS). The llm is not: on 2.51 a model with several streamed
calls of that kind under way hangs (its threads wait for each other, with Python's global
lock held), an error in the middle of an answer is lost, and a call cannot be cancelled.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from trimodal.errors import InternalError, RequestError
from trimodal.paths import ADDRESS_VARIABLE

DEFAULT_ADDRESS = "127.0.0.1:8001"
_MESSAGE_BYTES = 64 << 20


class LlmConnection:
    """Streamed calls of one model.

    Args:
        address: host:port; empty: of the server that this process belongs to.
    """

    def __init__(self, address: str, model: str) -> None:
        self._address = address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        self._model = model
        self._lock = threading.Lock()
        self._stub: Any = None
        self._calls: dict[str, Any] = {}

    def responses(
        self, key: str, inputs: Mapping[str, NDArray[Any]], check: Callable[[], None]
    ) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Streams the outputs of each response. `cancel(key)` ends it; `check` raises if that came first.

        Raises:
            RequestError: the model's own, or InternalError: the endpoint cannot be reached.
        """
        import grpc

        from trimodal.client.errors import from_message, from_status
        from trimodal.client.transports.base import Request
        from trimodal.client.transports.tensors import decode, encode

        message = encode(Request(self._model, inputs))
        call = self._connected().ModelStreamInfer(iter([message]))
        with self._lock:
            self._calls[key] = call
        try:
            check()
            for response in call:
                if response.error_message:
                    by_model = bool(response.infer_response.model_name)
                    raise from_message(response.error_message, by_model=by_model)
                if outputs := decode(response.infer_response):
                    yield outputs
        except grpc.RpcError as error:
            told = from_status(error.code(), error.details(), self._address)
            if isinstance(told, RequestError):
                raise told from None
            raise InternalError(f"the server's own gRPC endpoint {self._address} fails: {told}") from None
        finally:
            with self._lock:
                self._calls.pop(key, None)
            call.cancel()  # nothing if it is over

    def cancel(self, key: str) -> None:
        """Ends the call, if it is under way."""
        with self._lock:
            call = self._calls.get(key)
        if call is not None:
            call.cancel()

    def _connected(self) -> Any:
        """Returns the stub; its connection is made with the first call, when the server listens."""
        with self._lock:
            if self._stub is None:
                import grpc
                from tritonclient.grpc import service_pb2_grpc

                channel = grpc.insecure_channel(
                    self._address,
                    [
                        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                        ("grpc.max_send_message_length", _MESSAGE_BYTES),
                    ],
                )
                self._stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            return self._stub
