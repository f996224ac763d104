"""The one fake of `triton_python_backend_utils`, the module that only Triton's stub can import.

It keeps to what the glue uses, and to what the real one refuses: a response after the final one,
a look at is_cancelled() after it, an error that is not valid Unicode.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2


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
        self.flags: list[int] = []
        self.finals = 0
        self.looks_after_final = 0
        self.cancelled = False
        self.ended = threading.Event()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self.finals:
            raise TritonModelException("a response was sent after the final one")
        self.flags.append(flags)
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


# Model → what it answers to the tensors of a call from another model: outputs by name, or an error;
# a decoupled one an iterable of them. The call itself is the tensors' attribute `call`.
MODELS: dict[str, Callable[[Any], Any]] = {}


class CalledWith(dict[str, Any]):
    """The tensors of a call, name → array."""

    call: InferenceRequest


class InferenceTrace:
    """What a request's `trace()` gives; its context is None where the server makes no traces."""

    def __init__(self, context: str | None) -> None:
        self._context = context

    def get_context(self) -> str | None:
        return self._context


class InferenceRequest:
    """A client's request, or a model's to another one: the latter names it, and `exec` asks MODELS."""

    def __init__(
        self,
        inputs: Mapping[str, Any] | Sequence[Tensor],
        parameters: Mapping[str, Any] | None = None,
        *,
        model_name: str = "",
        model_version: int = -1,
        requested_output_names: Sequence[str] = (),
        correlation_id: int | str = 0,
        flags: int = 0,
        request_id: str = "",
        trace_context: str | None = None,
    ) -> None:
        given = inputs.items() if isinstance(inputs, Mapping) else ((t.name(), t.as_numpy()) for t in inputs)
        self.inputs = {name: Tensor(name, values) for name, values in given}
        self.sender = ResponseSender()
        self._parameters = parameters or {}
        self._model, self._wanted, self._stream = model_name, requested_output_names, correlation_id
        self._flags = flags
        self._version = model_version
        self._id = request_id
        self._trace = InferenceTrace(trace_context)

    def version(self) -> int:
        """The version that is asked for; -1: the highest. (The real one has no such method.)"""
        return self._version

    def flags(self) -> int:
        return self._flags

    def trace(self) -> InferenceTrace:
        return self._trace

    def request_id(self) -> str:
        return self._id

    def correlation_id(self) -> int | str:
        return self._stream

    def exec(self, decoupled: bool = False) -> Any:
        tensors = CalledWith({name: tensor.as_numpy() for name, tensor in self.inputs.items()})
        tensors.call = self
        answer = MODELS[self._model](tensors)
        return map(self._called, answer) if decoupled else self._called(answer)

    def _called(self, answer: Any) -> CalledResponse:
        if isinstance(answer, TritonError):
            return CalledResponse({}, answer)
        # As the real one: an output that this response lacks is left out.
        return CalledResponse({name: answer[name] for name in self._wanted if name in answer})

    def get_response_sender(self) -> ResponseSender:
        return self.sender

    def parameters(self) -> str:
        return json.dumps(self._parameters) if self._parameters else ""


class CalledResponse:
    """What a model gets from another one. Codes of its error are behind a call, as in the real module."""

    def __init__(self, outputs: Mapping[str, Any], error: TritonError | None = None) -> None:
        self.outputs = outputs
        self._error = error

    def has_error(self) -> bool:
        return self._error is not None

    def output_tensors(self) -> list[Tensor]:
        return [Tensor(name, values) for name, values in self.outputs.items()]

    def error(self) -> Any:
        error = self._error
        return error and SimpleNamespace(code=lambda: error.code, message=error.message)


def get_output_tensor_by_name(response: CalledResponse, name: str) -> Tensor:
    return Tensor(name, response.outputs[name])


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


def model_config(parameters: Mapping[str, str], **more: Any) -> str:
    """The `model_config` of initialize's arguments, as Triton writes it; `more`: other fields."""
    values = {key: {"string_value": value} for key, value in parameters.items()}
    return json.dumps({"parameters": values, **more})


@contextmanager
def glue(path: Path) -> Iterator[ModuleType]:
    """The module of a model.py, with this fake under the real one's name while it lives."""
    name = "triton_python_backend_utils"
    assert name not in sys.modules, "there is one fake at a time"
    sys.modules[name] = sys.modules[__name__]
    MetricFamily.families.clear()
    MODELS.clear()
    try:
        spec = importlib.util.spec_from_file_location(f"glue_{path.parts[-3]}", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]


def config_of(directory: Path, file: str = "config.pbtxt") -> tuple[Any, dict[str, str]]:
    """A model's configuration, parsed, and its parameters."""
    config = text_format.Parse((directory / file).read_text(), model_config_pb2.ModelConfig())
    return config, {key: value.string_value for key, value in config.parameters.items()}


def initialized(module: ModuleType, directory: Path, parameters: Mapping[str, str]) -> Any:
    """The model of a model.py, initialized as version 1 of its directory, with these parameters."""
    model = module.TritonPythonModel()
    where = {"model_repository": str(directory), "model_version": "1", "model_name": directory.name}
    model.initialize({"model_config": model_config(parameters)} | where)
    return model
