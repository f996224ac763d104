"""The loop that every batching model.py shares: read each request, serve all, answer each.

`pb_utils` is Triton's `triton_python_backend_utils`, handed over by the caller:
only a stub process can import it. What is read, served and written is the
caller's affair; here it is only made sure that every request gets one answer.
"""

from __future__ import annotations

import asyncio  # noqa: F401  The stub imports it in the first execute: 10 ms that a client would wait.
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trimodal.errors import InternalError, RequestError

Value = TypeVar("Value")
Result = TypeVar("Result")


def version_directory(args: Mapping[str, str]) -> Path:
    """The folder of the model's version that is being loaded (`args` of `initialize`)."""
    return Path(args["model_repository"]) / args["model_version"]


def error_response(pb_utils: Any, error: BaseException) -> Any:
    """A response with the error's own code; what nobody expected is logged and told without details."""
    told = as_request_error(error)
    code = getattr(pb_utils.TritonError, told.code)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(_utf8(str(told)), code))


def stream_error_response(pb_utils: Any, error: BaseException) -> Any:
    """As `error_response`, for decoupled models: the message begins with the code, "INVALID_ARG: …".

    A gRPC stream hands on the message and drops the code, so a client could not tell them apart.
    """
    told = as_request_error(error)
    code = getattr(pb_utils.TritonError, told.code)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(_utf8(f"{told.code}: {told}"), code))


class ResponseStream:
    """The responses to one request of a decoupled model; the last is one with `final`, or `fail`.

    Calls that send come one at a time; `is_cancelled` may come from another thread.
    """

    def __init__(self, pb_utils: Any, sender: Any) -> None:
        self._pb_utils = pb_utils
        self._sender = sender
        self._lock = threading.Lock()
        self._begun = self._closed = False

    def respond(self, columns: Mapping[str, Any], *, final: bool) -> None:
        """Sends tensors, name → array."""
        pb = self._pb_utils
        outputs = [pb.Tensor(name, array) for name, array in columns.items()]
        self._send(pb.InferenceResponse(output_tensors=outputs), final=final)

    def fail(self, error: BaseException) -> None:
        """Ends the request with an error."""
        response = stream_error_response(self._pb_utils, error)
        if not self._begun:
            self._send(response, final=True)
            return
        # Seen on 2.51: for a model that called this one, an error in the middle that is final at the same
        # time never comes, and it waits for ever; as the first response it must be final, or the same.
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
        flag = self._pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        with self._lock:
            self._closed = True
        if response is None:
            self._sender.send(flags=flag)
        else:
            self._sender.send(response, flags=flag)


def _utf8(sentence: str) -> str:
    """`sentence` with lone surrogates escaped: TritonError refuses them, and then no answer would be sent."""
    return sentence.encode(errors="backslashreplace").decode()


def as_request_error(error: BaseException) -> RequestError:
    """`error` if a client may be told it, else an InternalError; the traceback goes to stderr."""
    if isinstance(error, RequestError):
        return error
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    return InternalError("the model failed on this request; the server's log says why")


def answer_batch(
    pb_utils: Any,
    requests: Sequence[Any],
    read: Callable[[Any], Value],
    serve: Callable[[Sequence[Value]], Sequence[Result | RequestError]],
    write: Callable[[Result], Sequence[Any]],
) -> list[Any]:
    """One response a request, in order; a bad request or result fails alone.

    Args:
        read: a request's value; may raise RequestError.
        serve: one result or error for each value, in order.
        write: the output tensors of one result.
    """
    answers: list[Any] = [None] * len(requests)
    values: dict[int, Value] = {}
    for index, request in enumerate(requests):
        try:
            values[index] = read(request)
        except Exception as error:
            answers[index] = error_response(pb_utils, error)
    try:
        results = serve(list(values.values())) if values else []
        if len(results) != len(values):
            raise RuntimeError(f"{len(values)} requests were served and {len(results)} results came back")
    except Exception as error:
        results = [as_request_error(error)] * len(values)
    for index, result in zip(values, results, strict=True):
        try:
            if isinstance(result, RequestError):
                raise result
            answers[index] = pb_utils.InferenceResponse(output_tensors=list(write(result)))
        except Exception as error:
            answers[index] = error_response(pb_utils, error)
    return answers
