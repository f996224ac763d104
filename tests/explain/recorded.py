"""Traces that Triton 2.51 wrote, and values around them, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimodal import trace
from trimodal.client.transports.base import Request
from trimodal.explain.exchange import Exchange, Response
from trimodal.explain.requests import DescribedRequest

ID = "explain-1"
MS = 1_000_000  # nanoseconds


def entry(number: int, model: str, times: Mapping[str, int], **head: Any) -> list[dict[str, Any]]:
    """A request's entries in a trace file, as Triton writes them: one a time stamp."""
    stamps = [{"id": number, "timestamps": [{"name": name, "ns": at}]} for name, at in times.items()]
    return [{"id": number, "model_name": model, "model_version": 1, **head}, *stamps]


def step(
    number: int, model: str, begin: int, queue: int, compute: int, parent: int = 1
) -> list[dict[str, Any]]:
    """A step that waits and computes so many nanoseconds, with 0.1 ms each for its input and output."""
    started = begin + queue
    times = {
        "REQUEST_START": begin,
        "QUEUE_START": begin,
        "COMPUTE_START": started,
        "COMPUTE_INPUT_END": started + MS // 10,
        "COMPUTE_OUTPUT_START": started + compute - MS // 10,
        "COMPUTE_END": started + compute,
        "REQUEST_END": started + compute,
    }
    return entry(number, model, times, **({"parent_id": parent} if parent else {}))


# As it was written, but for the request's id; the order is Triton's.
VISION = """[{"id":4,"model_name":"vision_rank","model_version":1,"parent_id":1},
{"id":4,"timestamps":[{"name":"REQUEST_START","ns":84679195844023}]},
{"id":4,"timestamps":[{"name":"QUEUE_START","ns":84679195853924}]},
{"id":4,"timestamps":[{"name":"COMPUTE_START","ns":84679195968134}]},
{"id":4,"timestamps":[{"name":"COMPUTE_INPUT_END","ns":84679195995398}]},
{"id":4,"timestamps":[{"name":"COMPUTE_OUTPUT_START","ns":84679196503907}]},
{"id":4,"timestamps":[{"name":"COMPUTE_END","ns":84679196666142}]},
{"id":4,"timestamps":[{"name":"REQUEST_END","ns":84679196680502}]},
{"id":3,"model_name":"vision_classify","model_version":1,"parent_id":1},
{"id":3,"timestamps":[{"name":"REQUEST_START","ns":84679195110711}]},
{"id":3,"timestamps":[{"name":"QUEUE_START","ns":84679195120116}]},
{"id":3,"timestamps":[{"name":"COMPUTE_START","ns":84679195235107}]},
{"id":3,"timestamps":[{"name":"COMPUTE_INPUT_END","ns":84679195251662}]},
{"id":3,"timestamps":[{"name":"COMPUTE_OUTPUT_START","ns":84679195814718}]},
{"id":3,"timestamps":[{"name":"COMPUTE_END","ns":84679195876873}]},
{"id":3,"timestamps":[{"name":"REQUEST_END","ns":84679195888241}]},
{"id":2,"model_name":"vision_preprocess","model_version":1,"parent_id":1},
{"id":2,"timestamps":[{"name":"REQUEST_START","ns":84679194009084}]},
{"id":2,"timestamps":[{"name":"QUEUE_START","ns":84679194013069}]},
{"id":2,"timestamps":[{"name":"COMPUTE_START","ns":84679194111401}]},
{"id":2,"timestamps":[{"name":"COMPUTE_INPUT_END","ns":84679194239086}]},
{"id":2,"timestamps":[{"name":"COMPUTE_OUTPUT_START","ns":84679195070249}]},
{"id":2,"timestamps":[{"name":"COMPUTE_END","ns":84679195147539}]},
{"id":2,"timestamps":[{"name":"REQUEST_END","ns":84679195156992}]},
{"id":1,"model_name":"vision","model_version":1,"request_id":"explain-1"},
{"id":1,"timestamps":[{"name":"REQUEST_START","ns":84679193960917}]},
{"id":1,"timestamps":[{"name":"QUEUE_START","ns":84679193976504}]},
{"id":1,"timestamps":[{"name":"REQUEST_END","ns":84679196690108}]},
{"id":1,"timestamps":[{"name":"GRPC_WAITREAD_START","ns":84679115799842}]},
{"id":1,"timestamps":[{"name":"GRPC_WAITREAD_END","ns":84679193919213}]},
{"id":1,"timestamps":[{"name":"INFER_RESPONSE_COMPLETE","ns":84679196553624}]},
{"id":1,"timestamps":[{"name":"GRPC_SEND_START","ns":84679196555289}]},
{"id":1,"timestamps":[{"name":"GRPC_SEND_END","ns":84679196741169}]}]"""
VISION_SENT, VISION_RECEIVED = 84679193000000, 84679197136142


def asked(kind: str) -> DescribedRequest:
    return DescribedRequest(Request(kind, {}, id=ID), "a question")


def pixels_answer(sent: int, received: int) -> Exchange:
    outputs = {"labels": np.array([[b"seven"]], object), "scores": np.array([[0.75]], np.float32)}
    return Exchange(sent, [Response(received, outputs)])


def text_outputs(
    text: str, tokens: int, spans: list[trace.Span] | None = None, **more: str
) -> dict[str, Any]:
    """Outputs of a response of the llm, or with `stage` of the assistant."""
    outputs = {"text_output": text, **more}
    return {
        **{name: np.array([value.encode()], object) for name, value in outputs.items()},
        "completion_tokens": np.array([tokens], np.int32),
        **(trace.column(spans) if spans is not None else {}),
    }


def span(name: str, begin_ms: float, end_ms: float, **details: Any) -> trace.Span:
    return trace.span(name, begin_ms / 1e3, end_ms / 1e3, **details)


def written(*records: list[dict[str, Any]]) -> str:
    """A trace file."""
    return json.dumps([one for record in records for one in record])
