"""Encodes and decodes the messages of Triton's gRPC protocol, as raw bytes without copies through lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from trimodal.client.errors import ProtocolError
from trimodal.client.transports.base import Array, Request

_NAMES = {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.int8): "INT8",
    np.dtype(np.int16): "INT16",
    np.dtype(np.int32): "INT32",
    np.dtype(np.int64): "INT64",
    np.dtype(np.uint8): "UINT8",
    np.dtype(np.uint16): "UINT16",
    np.dtype(np.uint32): "UINT32",
    np.dtype(np.uint64): "UINT64",
    np.dtype(np.float16): "FP16",
    np.dtype(np.float32): "FP32",
    np.dtype(np.float64): "FP64",
    np.dtype(np.object_): "BYTES",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
# bool comes first: True is an int as well.
_PARAMETERS = ((bool, "bool_param"), (int, "int64_param"), (float, "double_param"), (str, "string_param"))


def encode(request: Request) -> Any:
    """Encodes a request as a ModelInferRequest."""
    message = service_pb2.ModelInferRequest(model_name=request.model, id=request.id)
    for name, array in request.inputs.items():
        message.inputs.add(name=name, datatype=_NAMES[array.dtype], shape=array.shape)
        message.raw_input_contents.append(_to_bytes(array))
    for name, value in request.parameters.items():
        kind = next((field for type_, field in _PARAMETERS if isinstance(value, type_)), "")
        if not kind:
            raise TypeError(
                f"parameter '{name}' is {type(value).__name__}: bool, int, float or str is needed"
            )
        setattr(message.parameters[name], kind, value)
    return message


def decode(message: Any) -> dict[str, Array]:
    """Decodes the outputs of a ModelInferResponse.

    Raises:
        ProtocolError: an output cannot be read.
    """
    outputs = {}
    if len(message.outputs) != len(message.raw_output_contents):
        raise ProtocolError(f"model '{message.model_name}' answered with outputs that are not raw bytes")
    for output, raw in zip(message.outputs, message.raw_output_contents, strict=True):
        try:
            dtype = _DTYPES[output.datatype]
            flat = _strings(raw) if dtype == np.object_ else np.frombuffer(raw, dtype)
            outputs[output.name] = flat.reshape(tuple(output.shape))
        except (KeyError, ValueError):
            raise ProtocolError(
                f"output '{output.name}' of model '{message.model_name}' cannot be read as "
                f"{output.datatype} {list(output.shape)}"
            ) from None
    return outputs


def strings(values: list[bytes]) -> Array:
    """Makes a STRING tensor of shape [N]. (np.array would cut trailing zero bytes and split bytes apart.)"""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _to_bytes(array: Array) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    parts = []
    for value in array.reshape(-1):
        parts += [len(value).to_bytes(4, "little"), value]
    return b"".join(parts)


def _strings(raw: bytes) -> Array:
    values, at = [], 0
    while at < len(raw):
        start = at + 4
        at = start + int.from_bytes(raw[at:start], "little")
        if at > len(raw):
            raise ValueError("a string is cut off")
        values.append(raw[start:at])
    return strings(values)
