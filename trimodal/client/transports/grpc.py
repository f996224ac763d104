"""Carries requests over gRPC with tritonclient's stubs, one HTTP/2 stream per request.

tritonclient's own asyncio client puts all requests of a stream on one call, so they can
only be cancelled together; here each has its own, and many share a few connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from trimodal.client.async_iteration import is_cancelling
from trimodal.client.errors import (
    ConnectError,
    ConnectionLost,
    Timeout,
    from_message,
    from_status,
    of_versions,
    question_of_versions,
)
from trimodal.client.transports.address import read_address
from trimodal.client.transports.base import Array, Request, Timeouts, named
from trimodal.client.transports.probes import DECOUPLED, PIPELINES, PROBES, alive, stages
from trimodal.client.transports.tensors import decode, encode
from trimodal.client.transports.watchdog import HealthPage, Watchdog
from trimodal.client.values import Model
from trimodal.errors import Cancelled, InvalidArgument, ModelNotFound, RequestError, Unavailable

_MESSAGE_BYTES = 256 << 20
# By default a gRPC server ends a connection on which it is silent and pings come within 5 minutes of each
# other: some 30 s apart in the third minute, of tritonserver 2.51 in the fifth. What a request may wait for
# in silence is not known when the connection is opened: the END of a live stream waits for up to 400 s more.
_PING_MS = 310_000
_PONG_MS = 10_000
_CLOSED = "the client was closed"
_END_S = 1.0  # for the end of a call whose last message is here
_ASK_S = 2.0  # for which versions there are
Metadata = tuple[tuple[str, str], ...] | None
_Told = Callable[..., Awaitable[RequestError]]


def _metadata(request: Request) -> Metadata:
    return tuple(request.metadata.items()) or None


def _options(timeouts: Timeouts) -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", _MESSAGE_BYTES),
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        # A dead network is noticed in 10 s where something is sent (TCP_USER_TIMEOUT, which gRPC sets to
        # keepalive_timeout), else by the silence or a ping. gRPC 1.85 waits a minute for the answer to one,
        # whatever keepalive_timeout says.
        ("grpc.keepalive_time_ms", _PING_MS),
        ("grpc.keepalive_timeout_ms", _PONG_MS),
        ("grpc.http2.ping_timeout_ms", _PONG_MS),
        ("grpc.http2.max_pings_without_data", 2),
        # Its pings after each answer wait behind an upload: on a slow line it ended, though it went on. They
        # would find how much may be on its way to here; so that is fixed, beyond the largest usual answer.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 4 << 20),
        # Also bounds one attempt to connect. A server that comes back is found within 2 s.
        ("grpc.min_reconnect_backoff_ms", int(timeouts.connect * 1000)),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # By itself gRPC takes `http_proxy` for every address, 127.0.0.1 included; `grpc_proxy` means it.
        ("grpc.enable_http_proxy", int("grpc_proxy" in os.environ)),
        # Without it, channels to one address share one connection.
        ("grpc.use_local_subchannel_pool", 1),
    ]


class _Connection:
    """One HTTP/2 connection, the number of requests on it, and the tasks that read some to their end."""

    def __init__(self, url: str, *, tls: bool, options: list[tuple[str, int]]) -> None:
        if tls:
            self.channel = grpc.aio.secure_channel(url, grpc.ssl_channel_credentials(), options)
        else:
            self.channel = grpc.aio.insecure_channel(url, options)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        # The method takes a stream of requests. One is sent: called like this, it goes out in one piece with
        # the call's beginning and end, in place of three.
        self.stream_infer = self.channel.unary_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        self.requests = 0
        self.closed = False
        self.finishing: set[asyncio.Task[None]] = set()


class GrpcTransport:
    """Transport to one server.

    Args:
        url: "host:port" or "host:port:health-port", with "grpcs://" in front for TLS. With the port of its
            health page, requests inside a process that died end within a second; else only by a timeout.
        timeouts: `connect` bounds one attempt to connect; the others come with each call.
        connections: HTTP/2 connections that requests are spread over.
        operator: headers that open the repository index, which alone tells a version that was unloaded
            (NOT_FOUND) from one that is being loaded (UNAVAILABLE).
    """

    def __init__(self, url: str, timeouts: Timeouts, connections: int = 2, operator: Metadata = None) -> None:
        try:
            address = read_address(url)
        except ValueError as error:
            raise ValueError(f"url is '{url}': {error}") from None
        self._url, self._tls = address.endpoint, address.tls
        self._health = HealthPage(address.host, address.health_port) if address.health_port else None
        self._options = _options(timeouts)
        self._operator = operator
        if not isinstance(connections, int) or connections < 1:
            raise ValueError(f"connections is {connections!r}: a whole number from 1 is needed")
        self._wanted = connections
        self._connections: list[_Connection] = []
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def infer(self, request: Request, timeouts: Timeouts) -> dict[str, Array]:
        message, began = encode(request), time.monotonic()
        try:
            return decode(
                await self._unary("ModelInfer", message, timeouts, _metadata(request), request.name)
            )
        except RequestError as error:
            left = (timeouts.total or timeouts.silence) - (time.monotonic() - began)
            raise await self._told(error, request.model, left) from None

    async def stream(self, request: Request, timeouts: Timeouts) -> GrpcResponses:
        message = encode(request)
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        connection = self._take()
        call = connection.stream_infer(message, timeout=timeouts.total, metadata=_metadata(request))
        watchdog = Watchdog(call, request.name, timeouts.silence, self._health, stages(request))
        told = partial(self._told, model=request.model)
        return GrpcResponses(call, self._url, timeouts.silence, connection, watchdog, told)

    async def ready(self, model: str, timeouts: Timeouts) -> bool:
        self._check()
        timeouts = replace(timeouts, total=timeouts.connect)  # a ready server answers at once
        try:
            name, version = named(model)
            if name in PROBES:
                return await self._answers(replace(PROBES[name], model=model), timeouts)
            if model:
                message = service_pb2.ModelReadyRequest(name=name, version=version)
                answer = await self._unary("ModelReady", message, timeouts)
            else:
                answer = await self._unary("ServerReady", service_pb2.ServerReadyRequest(), timeouts)
        except (ConnectError, ConnectionLost, Timeout, Unavailable):
            return False
        return bool(answer.ready)

    async def _answers(self, probe: Request, timeouts: Timeouts) -> bool:
        """Whether a model answers its probe, or refuses it as one that works."""
        try:
            if probe.name in PIPELINES and await self._is_pipeline(probe.model, timeouts):
                return True
            if probe.name in DECOUPLED:
                responses = await self.stream(probe, timeouts)
                while await responses.read() is not None:
                    pass
            else:
                await self.infer(probe, timeouts)
        except ModelNotFound:
            return False
        except RequestError as error:
            return alive(error)
        return True

    async def models(self, timeouts: Timeouts) -> list[Model]:
        # The repository index is for operators only; the statistics are for everyone, and of ready models.
        answer = await self._unary("ModelStatistics", service_pb2.ModelStatisticsRequest(), timeouts)
        models = [Model(one.name, one.version, one.inference_count) for one in answer.model_stats]
        return sorted(models, key=lambda model: (model.name, len(model.version), model.version))

    async def max_batch_size(self, model: str, timeouts: Timeouts) -> int:
        return int((await self.config(model, timeouts)).max_batch_size)

    async def _is_pipeline(self, model: str, timeouts: Timeouts) -> bool:
        return bool((await self.config(model, timeouts)).ensemble_scheduling.step)

    async def server(self, timeouts: Timeouts) -> tuple[str, str]:
        """The server's name and version."""
        answer = await self._unary("ServerMetadata", service_pb2.ServerMetadataRequest(), timeouts)
        return answer.name, answer.version

    async def config(self, model: str, timeouts: Timeouts) -> Any:
        """A model's configuration, as inference.ModelConfig."""
        name, version = named(model)
        message = service_pb2.ModelConfigRequest(name=name, version=version)
        try:
            return (await self._unary("ModelConfig", message, timeouts)).config
        except RequestError as error:
            raise await self._told(error, model, timeouts.total) from None

    async def _told(self, error: RequestError, model: str, left: float | None) -> RequestError:
        """What to tell of a refusal, asked within the seconds `left`: which versions are loaded."""
        name, version = named(model)
        limit = _ASK_S if left is None else min(_ASK_S, left)
        question = question_of_versions(error, name)
        if not version or limit <= 0 or not question:
            return error
        method, message = question
        call = getattr(self._connections[0].stub, method)
        with contextlib.suppress(grpc.aio.AioRpcError):  # the index is not for everyone
            answer = await call(message, timeout=limit, metadata=self._operator)
            return of_versions(error, name, version, answer)
        return error

    async def aclose(self) -> None:
        self._closed = True
        for connection in self._connections:
            if connection.finishing:
                await asyncio.wait(connection.finishing)
            connection.closed = True
            await connection.channel.close(None)

    def _check(self) -> None:
        if self._closed:
            raise InvalidArgument("the client is closed: open another one")
        if self._connections and self._loop is not asyncio.get_running_loop():
            raise InvalidArgument("the client was used in another event loop: open one in each")

    def _take(self) -> _Connection:
        """Counts a request on the connection with the fewest, and returns it. Raises: InvalidArgument."""
        self._check()
        if not self._connections:  # not in __init__: gRPC binds a channel to the running event loop
            self._loop = asyncio.get_running_loop()
            self._connections = [
                _Connection(self._url, tls=self._tls, options=self._options) for _ in range(self._wanted)
            ]
        connection = min(self._connections, key=lambda one: one.requests)
        connection.requests += 1
        return connection

    async def _unary(
        self, method: str, message: Any, timeouts: Timeouts, metadata: Metadata = None, model: str = ""
    ) -> Any:
        """`model`: whose process has the request; empty: Triton itself answers."""
        connection = self._take()
        # One response is one silence: without a deadline of its own the request gets that one.
        limit = timeouts.total or timeouts.silence
        watchdog = None
        try:
            call = getattr(connection.stub, method)(message, timeout=limit, metadata=metadata)
            if model and self._health:
                watchdog = Watchdog(call, model, math.inf, self._health)
                watchdog.wait()
            return await call
        except asyncio.CancelledError:
            if is_cancelling():
                raise
            if watchdog and watchdog.lost:
                raise watchdog.loss() from None
            if connection.closed:
                raise Cancelled(_CLOSED) from None
            raise
        except grpc.aio.AioRpcError as error:
            raise from_status(error.code(), error.details(), self._url) from None
        finally:
            if watchdog:
                watchdog.end()
            connection.requests -= 1


class GrpcResponses:
    """The responses to one request: one call, ended by its end, its deadline, silence or `cancel`."""

    def __init__(
        self, call: Any, url: str, silence: float, connection: _Connection, watchdog: Watchdog, told: _Told
    ) -> None:
        self._told = told
        self._call = call
        self._url = url
        self._silence = silence
        self._connection: _Connection | None = connection  # None: the request has ended
        self._cancelled = self._finished = False
        self._watchdog = watchdog

    async def read(self) -> dict[str, Array] | None:
        watchdog = self._watchdog
        watchdog.wait()
        try:
            message = await self._call.read()
        except asyncio.CancelledError:
            shut = self._connection is not None and self._connection.closed
            ended = self._cancelled or watchdog.silent or watchdog.lost or shut
            task_cancelled = not ended or is_cancelling()
            self.cancel()
            if task_cancelled:
                raise
            if watchdog.lost:
                raise watchdog.loss() from None
            if watchdog.silent:
                raise Timeout(f"the server at {self._url} was silent for {self._silence:g} s") from None
            if shut:
                raise Cancelled(_CLOSED) from None
            return None
        except grpc.aio.AioRpcError as error:
            self._end()
            raise from_status(error.code(), error.details(), self._url) from None
        finally:
            watchdog.came()
        if message is grpc.aio.EOF:
            self._end()
            return None
        inferred = message.infer_response
        if message.error_message:
            problem = from_message(message.error_message, by_model=bool(inferred.model_name))
            self.finish()
            raise await self._told(problem, left=self._call.time_remaining())
        outputs = decode(inferred)
        if "stage" in outputs:
            watchdog.passed(outputs["stage"].ravel().tolist())
        return outputs

    def finish(self) -> None:
        """Lets the call end in order after its last message, in a task of its own.

        Were it cancelled, Triton (2.51) would now and then keep the request for good (`llm` stuck in 2 of 3
        servers whose gateway had 60 clients that left at the finish_reason): memory, and a model that never
        finishes unloading.
        """
        self._finished = True
        if self._connection:
            tasks = self._connection.finishing
            task = asyncio.ensure_future(self._complete())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _complete(self) -> None:
        try:
            with contextlib.suppress(asyncio.TimeoutError, grpc.aio.AioRpcError):
                await asyncio.wait_for(self._rest(), _END_S)
        finally:
            self._call.cancel()  # nothing where it has ended
            self._end()

    async def _rest(self) -> None:
        while await self._call.read() is not grpc.aio.EOF:
            pass

    def cancel(self) -> None:
        self._cancelled = True
        if not self._finished:
            self._call.cancel()
            self._end()

    def _end(self) -> None:
        self._watchdog.end()
        if self._connection:
            self._connection.requests -= 1
            self._connection = None
