"""Requests as bytes on the wire: what tritonclient would refuse to send must be sendable here.

`Wire` sends one request and gives one `Answer`; every wait is bounded.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

SECONDS = 30.0  # the longest wait for one answer
_BYTES = 256 << 20
_CODES = ("INVALID_ARG", "UNAVAILABLE", "CANCELLED", "INTERNAL")


@dataclass(frozen=True)
class Answer:
    """`status`: of gRPC, of HTTP, or the code of ours on a stream; `message`: empty when served."""

    status: str
    message: str = ""

    @property
    def served(self) -> bool:
        return self.status in ("OK", "200") and not self.message


Send = Callable[["Wire"], Answer]


@dataclass(frozen=True)
class Row:
    """One bad input and the answer that it must get.

    Args:
        status: as in Answer; on streams of ours the code that the message begins with.
        message: a regular expression that the sentence must hold.
        own: whether the sentence is ours: then `message` names the field and the limit.
    """

    model: str
    name: str
    transport: str
    send: Send
    status: str
    message: str = ""
    own: bool = True


@dataclass(frozen=True)
class Tensor:
    """An input as it travels: nothing of it need fit together."""

    name: str
    datatype: str
    shape: Sequence[int]
    raw: bytes


def texts(name: str, *values: str | bytes, shape: Sequence[int] | None = None) -> Tensor:
    """A BYTES tensor, [N] unless `shape` says otherwise."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    raw = b"".join(len(value).to_bytes(4, "little") + value for value in encoded)
    return Tensor(name, "BYTES", [len(values)] if shape is None else shape, raw)


class Wire:
    """One server's gRPC and HTTP endpoints."""

    def __init__(self, grpc_url: str, http_url: str) -> None:
        self.host, _, port = http_url.rpartition(":")
        self.port = int(port)
        options = [("grpc.max_send_message_length", _BYTES), ("grpc.max_receive_message_length", _BYTES)]
        self._channel = grpc.insecure_channel(grpc_url, options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def unary(self, message: Any) -> tuple[Answer, Any]:
        """ModelInfer: the answer, and the response when there is one."""
        try:
            return Answer("OK"), self._stub.ModelInfer(message, timeout=SECONDS)
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details() or ""), None

    def stream(self, message: Any) -> tuple[Answer, list[Any]]:
        """ModelStreamInfer: the answer, and all responses; the first error is the answer."""
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        try:
            responses = list(self._stub.ModelStreamInfer(iter([message]), timeout=SECONDS))
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details() or ""), []
        for response in responses:
            if response.error_message:
                code, colon, told = response.error_message.partition(": ")
                coded = colon and code in _CODES
                return Answer(code if coded else "stream", told if coded else response.error_message), []
        return Answer("OK"), responses

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[Answer, bytes]:
        """An HTTP POST: the answer, and the body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        try:
            connection.request("POST", path, body, dict(headers))
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        told = error_of(content)
        served = response.status == 200 and not told
        return Answer(
            str(response.status), "" if served else told or content.decode(errors="replace")
        ), content

    def bytes(self, data: bytes, *, half_close: bool = False, wait: float = SECONDS) -> Answer:
        """Bytes on a bare connection, and the status line that comes back; "closed" when nothing does."""
        deadline = time.monotonic() + wait
        received = b""
        with socket.create_connection((self.host, self.port), timeout=wait) as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except (ConnectionResetError, BrokenPipeError):
                return Answer("closed")  # while we were still sending
            while b"\r\n\r\n" not in received and (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                try:
                    block = connection.recv(65536)
                except TimeoutError:
                    return Answer("silent")
                except ConnectionResetError:
                    block = b""
                if not block:
                    return Answer("closed")
                received += block
        status = received.split(b" ", 2)[1].decode()
        return Answer(status, error_of(received.partition(b"\r\n\r\n")[2]))


def error_of(content: bytes) -> str:
    """The `error` of a JSON answer or of the first event that has one."""
    for line in [content, *content.splitlines()]:
        try:
            value = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            continue
        if isinstance(value, dict) and "error" in value:
            return str(value["error"])
    return ""


# Python's type → the field of a gRPC parameter. bool comes first: True is an int as well.
_FIELDS = ((bool, "bool_param"), (int, "int64_param"), (float, "double_param"), (str, "string_param"))


def message(
    model: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[str] = (),
    version: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> Any:
    """A ModelInferRequest with raw contents."""
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    for name, value in (parameters or {}).items():
        kind = next(kind for type_, kind in _FIELDS if isinstance(value, type_))
        large = kind == "int64_param" and value >= 1 << 63
        setattr(request.parameters[name], "uint64_param" if large else kind, value)
    for tensor in inputs:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=list(tensor.shape))
        request.raw_input_contents.append(tensor.raw)
    for name in outputs:
        request.outputs.add(name=name)
    return request


def by_grpc(model: str, *inputs: Tensor, outputs: Sequence[str] = (), version: str = "") -> Send:
    return lambda wire: wire.unary(message(model, inputs, outputs, version))[0]


def by_stream(model: str, *inputs: Tensor, outputs: Sequence[str] = (), version: str = "") -> Send:
    return lambda wire: wire.stream(message(model, inputs, outputs, version))[0]


def by_json(path: str, body: object, **headers: str) -> Send:
    """A JSON body, or bytes that only claim to be one."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", **{key.replace("_", "-"): v for key, v in headers.items()}}
    return lambda wire: wire.post(path, data, given)[0]


def binary(
    inputs: Sequence[Tensor], parameters: Mapping[str, Any] | None = None, **sizes: int
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of HTTP's binary extension. `sizes`: wrong values for binary_data_size, by tensor."""
    described = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
            "parameters": {"binary_data_size": sizes.get(tensor.name, len(tensor.raw))},
        }
        for tensor in inputs
    ]
    request = {"inputs": described} | ({"parameters": parameters} if parameters else {})
    header = json.dumps(request).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }
    return header + b"".join(tensor.raw for tensor in inputs), headers


def by_binary(model: str, *inputs: Tensor, header_length: int | None = None, **sizes: int) -> Send:
    body, headers = binary(inputs, **sizes)
    if header_length is not None:
        headers["Inference-Header-Content-Length"] = str(header_length)
    return lambda wire: wire.post(f"/v2/models/{model}/infer", body, headers)[0]


def by_both(
    model: str, name: str, tensor: Tensor, told: str = "", *, own: bool = True, served: bool = False
) -> list[Row]:
    """One tensor over both protocols; refused unless `served`."""
    grpc_status, http_status = ("OK", "200") if served else ("INVALID_ARGUMENT", "400")
    return [
        Row(model, name, "gRPC", by_grpc(model, tensor), grpc_status, told, own),
        Row(model, name, "HTTP binary", by_binary(model, tensor), http_status, told, own),
    ]
