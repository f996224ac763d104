"""Reads each request of a batch, serves all, and gives each exactly one answer.

`pb_utils` is Triton's `triton_python_backend_utils`, passed in by the model.py: only a stub can import it.
"""

from __future__ import annotations

import asyncio  # noqa: F401  The stub imports it in the first execute: 10 ms that a client would wait.
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trimodal import trace
from trimodal.errors import RequestError, as_request_error
from trimodal.triton.parameters import check_checkpoint, is_probe, wants_trace
from trimodal.triton.responses import error_response

Value = TypeVar("Value")
Result = TypeVar("Result")


def version_directory(args: Mapping[str, str]) -> Path:
    """The folder of the model's version that is being loaded (`args` of `initialize`)."""
    return Path(args["model_repository"]) / args["model_version"]


def answer_batch(
    pb_utils: Any,
    requests: Sequence[Any],
    read: Callable[[Any], Value],
    serve: Callable[[Sequence[Value]], Sequence[Result | RequestError]],
    write: Callable[[Result], Sequence[Any]],
    *,
    tells: bool = False,
    checkpoint: str = "",
) -> list[Any]:
    """One response a request, in order; a bad request or result fails alone, a probe gets an empty one.

    Args:
        read: a request's value; may raise RequestError.
        serve: one result or error for each value, in order.
        write: the output tensors of one result. A request with the parameter `trace` gets one of that name,
            a row for each of the first tensor's, where a model declares it (`tells`).
        checkpoint: the model's, where requests may be for one alone; "": none may.
    """
    answers: list[Any] = [None] * len(requests)
    values: dict[int, Value] = {}
    traced: set[int] = set()
    for index, request in enumerate(requests):
        try:
            if is_probe(request):
                answers[index] = pb_utils.InferenceResponse(output_tensors=[])
            else:
                if tells and wants_trace(request):
                    traced.add(index)
                if checkpoint:
                    check_checkpoint(request, checkpoint)
                values[index] = read(request)
        except Exception as error:
            answers[index] = error_response(pb_utils, error, request.request_id())
    spans: list[trace.Span] = []
    try:
        with trace.gathering() as spans:
            results = serve(list(values.values())) if values else []
        if len(results) != len(values):
            raise RuntimeError(f"{len(values)} requests were served and {len(results)} results came back")
    except Exception as error:
        results = [as_request_error(error)] * len(values)
    for index, result in zip(values, results, strict=True):
        try:
            if isinstance(result, RequestError):
                raise result
            tensors = list(write(result))
            if index in traced:
                rows = trace.column(spans, len(tensors[0].as_numpy()))[trace.NAME]
                tensors.append(pb_utils.Tensor(trace.NAME, rows.reshape(-1, 1)))
            answers[index] = pb_utils.InferenceResponse(output_tensors=tensors)
        except Exception as error:
            answers[index] = error_response(pb_utils, error, requests[index].request_id())
    return answers
