"""Reads the parameters of a request, and answers those that only ask for a sign of life."""

from __future__ import annotations

import json
from typing import Any

from trimodal import trace
from trimodal.errors import InvalidArgument, Unavailable

CHECKPOINT = "checkpoint_sha256"
"""Parameter of a request that is for this checkpoint of the model alone."""


def parameters(request: Any) -> dict[str, Any]:
    """What a client sent beside the tensors. Raises: InvalidArgument when a text is not UTF-8."""
    try:
        return json.loads(request.parameters() or "{}")  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        raise InvalidArgument("parameters: a text among them is not UTF-8") from None


def trace_context(request: Any) -> dict[str, str]:
    """Headers (traceparent, tracestate) that put a call under this request's trace; empty where it has none.

    Only the server's trace mode opentelemetry knows them.
    """
    try:
        given = json.loads(request.trace().get_context() or "{}")
    except ValueError:
        return {}
    return {name: value for name, value in given.items() if name in ("traceparent", "tracestate") and value}


def is_probe(request: Any) -> bool:
    """Whether a request has the parameter `probe`: it wants an answer, whatever its tensors are."""
    try:
        return '"probe"' in (request.parameters() or "") and parameters(request).get("probe") is True
    except (UnicodeDecodeError, InvalidArgument):
        return False


def check_checkpoint(request: Any, served: str) -> None:
    """Refuses a request that is for another checkpoint of the model. Raises: Unavailable, InvalidArgument."""
    if CHECKPOINT in (request.parameters() or "") and parameters(request).get(CHECKPOINT, served) != served:
        raise Unavailable(f"{CHECKPOINT}: another checkpoint of the model is served, {served[:12]}")


def wants_trace(request: Any) -> bool:
    """Whether a request has the parameter `trace`. Raises: InvalidArgument: it is neither true nor false."""
    try:
        return f'"{trace.NAME}"' in (request.parameters() or "") and trace.wanted(parameters(request))[0]
    except UnicodeDecodeError:
        return False


def answer_probe(pb_utils: Any, request: Any) -> bool:
    """Ends a request through its sender, with nothing in the answer, if it is a probe."""
    if not is_probe(request):
        return False
    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    request.get_response_sender().send(pb_utils.InferenceResponse(output_tensors=[]), flags=final)
    return True
