"""Sends bytes to one stack and reads what comes back, each within a limit; what is sent need not be valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
from tritonclient.grpc import service_pb2
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

LIMIT_S = 30.0  # a request without an end after it is a finding
_INFER = "/inference.GRPCInferenceService/ModelInfer"
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Answer:
    """`status`: of HTTP or gRPC; "closed" without one, "none" where no end came within the limit."""

    status: str
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True)
class Stack:
    """Addresses, host:port, of a gateway and of the Triton behind it."""

    gateway: str
    grpc: str
    http: str
    metrics: str


class Wire:
    """Connections to one stack; of one event loop."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        options = [
            ("grpc.max_receive_message_length", _MOST_BYTES),
            ("grpc.max_send_message_length", _MOST_BYTES),
        ]
        self._channel = grpc.aio.insecure_channel(stack.grpc, options)
        self._infer = self._channel.unary_unary(_INFER)
        self._stream = self._channel.stream_stream(_STREAM)

    async def aclose(self) -> None:
        await self._channel.close()

    async def infer(self, message: bytes) -> Answer:
        """ModelInfer with these bytes as the message."""
        try:
            return Answer("OK", await self._infer(message, timeout=LIMIT_S))
        except grpc.aio.AioRpcError as error:
            return _failed(error)

    async def stream(self, messages: Iterable[bytes]) -> Answer:
        """ModelStreamInfer with these messages; the body is the error of the last response that has one."""
        told, responses = "", 0

        async def sent() -> AsyncIterator[bytes]:
            for message in messages:
                yield message

        try:
            async for raw in self._stream(sent(), timeout=LIMIT_S):
                responses += 1
                told = service_pb2.ModelStreamInferResponse.FromString(raw).error_message or told
        except grpc.aio.AioRpcError as error:
            return _failed(error)
        return Answer("OK" if not told else "stream", told.encode())

    async def http(self, address: str, request: bytes, *, whole: bool = True) -> Answer:
        """Bytes on a connection of their own. Unless they are a `whole` request, the writing side ends."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            received = await asyncio.wait_for(_exchange(reader, writer, request, whole), LIMIT_S)
        except asyncio.TimeoutError:
            return Answer("none")
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        head, _, body = received.partition(b"\r\n\r\n")
        parts = head.split(b" ", 2)
        if not head.startswith(b"HTTP/1.") or len(parts) < 2:
            return Answer("closed", received)
        return Answer(parts[1].decode("latin-1"), body)

    async def realtime(self, query: str, frames: Iterable[str | bytes]) -> Answer:
        """A session of these frames: the close code or the refusal's status, and all events."""
        url = f"ws://{self.stack.gateway}/v1/realtime{query}"
        events: list[str] = []

        async def talk() -> str:
            async with connect(url, open_timeout=LIMIT_S, close_timeout=5, proxy=None) as socket:

                async def read() -> None:
                    async for event in socket:
                        events.append(str(event))

                reading = asyncio.ensure_future(read())
                try:
                    for frame in frames:
                        await socket.send(frame)
                    await asyncio.sleep(0.02)
                finally:
                    await socket.close()
                    with suppress(ConnectionClosed):
                        await reading
                return str(socket.close_code)

        try:
            status = await asyncio.wait_for(talk(), LIMIT_S)
        except asyncio.TimeoutError:
            status = "none"
        except ConnectionClosed as error:
            status = str(error.rcvd.code if error.rcvd else 1006)
        except InvalidHandshake as error:
            response: Any = getattr(error, "response", None)
            status = str(response.status_code) if response else "closed"
        except (InvalidMessage, OSError, EOFError):
            status = "closed"
        return Answer(status, "\n".join(events).encode("utf-8", "replace"))


def post(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A request whose connection ends with it."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, whole: bool
) -> bytes:
    received = b""
    with suppress(OSError):  # the server has ended the connection
        writer.write(request)
        await writer.drain()
        if not whole:
            writer.write_eof()
        while block := await reader.read(1 << 16):
            received += block
    return received


def _failed(error: grpc.aio.AioRpcError) -> Answer:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Answer("none")
    return Answer(error.code().name, (error.details() or "").encode("utf-8", "replace"))
