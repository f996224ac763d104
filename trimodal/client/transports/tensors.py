"""Encodes and decodes the messages of Triton's gRPC protocol, as raw bytes without copies through lists."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from trimodal.client.errors import ProtocolError
from trimodal.client.transports.base import Array, Request, named
from trimodal.errors import InvalidArgument
from trimodal.settings import shorten

# bool comes first: True is an int as well.
_PARAMETERS = ((bool, "bool_param"), (int, "int64_param"), (float, "double_param"), (str, "string_param"))


def encode(request: Request) -> Any:
    """Encodes a request as a ModelInferRequest. Raises: InvalidArgument: a parameter is of another type."""
    name, version = named(request.model)
    message = service_pb2.ModelInferRequest(model_name=name, model_version=version, id=request.id)
    for name, array in request.inputs.items():
        message.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        is_text = array.dtype == np.object_ and array.size
        raw = serialize_byte_tensor(array).item() if is_text else array.tobytes()
        message.raw_input_contents.append(raw)
    for name, value in request.parameters.items():
        kind = next((field for type_, field in _PARAMETERS if isinstance(value, type_)), "")
        if not kind:
            raise InvalidArgument(f"{name} is {type(value).__name__}: bool, int, float or str is needed")
        try:
            setattr(message.parameters[name], kind, value)
        except ValueError:  # beyond 64 bits, or a lone surrogate
            raise InvalidArgument(f"{name} is {shorten(repr(value))}: no request can carry it") from None
    return message


def decode(message: Any) -> dict[str, Array]:
    """Decodes the outputs of a ModelInferResponse. Raises: ProtocolError when one cannot be read."""
    outputs = {}
    if len(message.outputs) != len(message.raw_output_contents):
        raise ProtocolError(f"model '{message.model_name}' answered with outputs that are not raw bytes")
    for output, raw in zip(message.outputs, message.raw_output_contents, strict=True):
        datatype = output.datatype
        try:
            is_text = datatype == "BYTES"
            flat = _texts(raw) if is_text else np.frombuffer(raw, triton_to_np_dtype(datatype) or np.void)
            outputs[output.name] = flat.reshape(output.shape[:])
        except (ValueError, struct.error):
            raise ProtocolError(
                f"output '{output.name}' of model '{message.model_name}' cannot be read as "
                f"{datatype} {list(output.shape)}"
            ) from None
    return outputs


def _texts(raw: bytes) -> Array:
    """Decodes a STRING tensor, flat. Raises: struct.error, ValueError."""
    # Every delta of an answer has two of one text.
    if int.from_bytes(raw[:4], "little") == len(raw) - 4:
        return np.array([raw[4:]], np.object_)
    flat: Array = deserialize_bytes_tensor(raw)
    return flat


def strings(values: list[bytes]) -> Array:
    """Makes a STRING tensor of shape [N]. (np.array would cut trailing zero bytes and split bytes apart.)"""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
