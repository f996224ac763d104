"""Turns values and errors into Triton's responses."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from trimodal.errors import as_request_error


def error_response(pb_utils: Any, error: BaseException, request_id: str = "") -> Any:
    """A response with the error's own code; an unexpected error is logged and told without details."""
    request_error = as_request_error(error, request_id)
    return _response(pb_utils, request_error.code, str(request_error))


def stream_error_response(pb_utils: Any, error: BaseException) -> Any:
    """As `error_response`, for decoupled models: the message begins with the code, "INVALID_ARG: …".

    A gRPC stream hands on the message and drops the code, so a client could not tell them apart.
    """
    request_error = as_request_error(error)
    return _response(pb_utils, request_error.code, f"{request_error.code}: {request_error}")


class ResponseStream:
    """The responses to one request of a decoupled model; the last is one with `final`, or `fail`.

    Calls that send come one at a time; `is_cancelled` may come from another thread.
    """

    def __init__(self, pb_utils: Any, sender: Any) -> None:
        self._pb_utils = pb_utils
        self._sender = sender
        self._sent: dict[str, tuple[object, Any]] = {}
        self._lock = threading.Lock()
        self._begun = self._closed = False

    def respond(self, columns: Mapping[str, Any], *, final: bool) -> None:
        """Sends tensors, name → array."""
        outputs = [self._tensor(name, array) for name, array in columns.items()]
        self._send(self._pb_utils.InferenceResponse(output_tensors=outputs), final=final)

    def _tensor(self, name: str, array: Any) -> Any:
        """The tensor of an array; the one that was sent last under this name if that is the same.

        Making one takes 40 µs of a core, and its place in shared memory more (2.51). Most of a stream's are
        the same each time, and a tensor keeps its place for as long as it lives.
        """
        value = (array.shape, array.dtype, array.tolist())
        known, tensor = self._sent.get(name, (None, None))
        if known != value:
            tensor = self._pb_utils.Tensor(name, array)
            self._sent[name] = value, tensor
        return tensor

    def fail(self, error: BaseException) -> None:
        """Ends the request with an error."""
        response = stream_error_response(self._pb_utils, error)
        if not self._begun:
            self._send(response, final=True)
            return
        # Seen on 2.51: for a model that called this one, an error in the middle that is final at the same
        # time never comes, and it waits endlessly; as the first response it must be final, or the same.
        self._send(response, final=False)
        self._send(None, final=True)

    def is_cancelled(self) -> bool:
        """Whether the client has given up or gone. After the final response Triton frees what says so."""
        with self._lock:
            return not self._closed and bool(self._sender.is_cancelled())

    def _send(self, response: Any, *, final: bool) -> None:
        self._begun = True
        if not final:
            self._sender.send(response)
            return
        with self._lock:
            self._closed = True
        sent = () if response is None else (response,)
        self._sender.send(*sent, flags=self._pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _response(pb_utils: Any, code: str, sentence: str) -> Any:
    # TritonError refuses lone surrogates, and then no answer would be sent.
    sentence = sentence.encode(errors="backslashreplace").decode()
    return pb_utils.InferenceResponse(
        error=pb_utils.TritonError(sentence, getattr(pb_utils.TritonError, code))
    )
