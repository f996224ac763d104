"""The one fake of `triton_python_backend_utils`, the module that only Triton's stub can import.

It keeps to what the glue uses, and to what the real one refuses: a response after the final one,
a look at is_cancelled() after it, an error that is not valid Unicode.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonError(Exception):
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        message.encode()  # the real one takes no lone surrogates
        super().__init__(message)
        self.code = code

    def message(self) -> str:
        return str(self)


class TritonModelException(Exception):
    pass


class Tensor:
    def __init__(self, name: str, values: Any) -> None:
        self._name, self._values = name, values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._values


class InferenceResponse:
    def __init__(self, output_tensors: Any = (), error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


class ResponseSender:
    """Keeps what was sent; `cancelled` is what a client that leaves sets."""

    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []
        self.finals = 0
        self.looks_after_final = 0
        self.cancelled = False
        self.ended = threading.Event()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self.finals:
            raise TritonModelException("a response was sent after the final one")
        if response is not None:
            self.responses.append(response)
        if flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL:
            self.finals += 1
            self.ended.set()

    def is_cancelled(self) -> bool:
        # In the real server this reads freed memory.
        self.looks_after_final += self.finals
        return self.cancelled

    def error(self) -> TritonError | None:
        """The error of the last response."""
        return self.responses[-1].error


class InferenceRequest:
    def __init__(self, inputs: Mapping[str, Any], parameters: Mapping[str, Any] | None = None) -> None:
        self.inputs = {name: Tensor(name, values) for name, values in inputs.items()}
        self.sender = ResponseSender()
        self._parameters = parameters or {}

    def get_response_sender(self) -> ResponseSender:
        return self.sender

    def parameters(self) -> str:
        return json.dumps(self._parameters) if self._parameters else ""


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    return request.inputs.get(name)


class MetricFamily:
    """Counts calls by thread; `families` are all that were made."""

    COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
    families: list[MetricFamily] = []

    def __init__(self, name: str, description: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.metrics: list[Metric] = []
        self.thread = threading.current_thread()
        MetricFamily.families.append(self)

    def Metric(self, labels: Mapping[str, str], buckets: list[float] | None = None) -> Metric:  # noqa: N802
        self.metrics.append(Metric(labels, buckets))
        return self.metrics[-1]


class Metric:
    def __init__(self, labels: Mapping[str, str], buckets: list[float] | None) -> None:
        self.labels, self.buckets = labels, buckets
        self.calls: list[tuple[str, float, threading.Thread]] = [("made", 0.0, threading.current_thread())]

    def increment(self, value: float) -> None:
        self.calls.append(("increment", value, threading.current_thread()))

    def set(self, value: float) -> None:
        self.calls.append(("set", value, threading.current_thread()))

    def observe(self, value: float) -> None:
        self.calls.append(("observe", value, threading.current_thread()))

    def values(self, call: str) -> list[float]:
        return [value for name, value, _ in self.calls if name == call]


def model_config(parameters: Mapping[str, str]) -> str:
    """The `model_config` of initialize's arguments, as Triton writes it."""
    return json.dumps({"parameters": {key: {"string_value": value} for key, value in parameters.items()}})


@contextmanager
def glue(path: Path) -> Iterator[ModuleType]:
    """The module of a model.py, with this fake under the real one's name while it lives."""
    name = "triton_python_backend_utils"
    assert name not in sys.modules, "there is one fake at a time"
    sys.modules[name] = sys.modules[__name__]
    MetricFamily.families.clear()
    try:
        spec = importlib.util.spec_from_file_location(f"glue_{path.parts[-3]}", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]
