"""Explains one request to a running server, or to one that it starts and ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace

from trimodal.client.errors import ConnectError, ConnectionLost
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import InvalidArgument, ModelNotFound
from trimodal.explain.assemble import Assembly
from trimodal.explain.exchange import exchange
from trimodal.explain.requests import Question, make, traced
from trimodal.explain.triton_trace import NotTraced, TritonTrace
from trimodal.explain.values import Waterfall
from trimodal.server.options import Profile, ServerOptions

# Requests of these models are other requests' steps, over gRPC.
CALLED = {"assistant": ("assistant", "llm")}


@dataclass(frozen=True)
class Server:
    """Where to ask. `operator_key`: opens Triton's trace API; empty: it is left alone."""

    url: str
    operator_key: str = ""
    timeout: float = 60.0


@contextmanager
def started(
    question: Question, profile: Profile, changes: Mapping[str, Mapping[str, str]]
) -> Iterator[Server]:
    """Starts a server of the model and what it calls, on free ports.

    In no event loop: that one would take Ctrl-C, and do nothing until the models are loaded.

    Raises:
        OperatorError: it cannot start.
    """
    from trimodal.server.process import TritonServer

    options = ServerOptions.on_free_ports(question.kind, profile=profile, changes=changes)
    with TritonServer(options) as server:
        yield Server(server.grpc_url, server.operator_key)


async def explain(question: Question, server: Server, *, warm_up: int = 1) -> Waterfall:
    """The waterfall of one request, after `warm_up` other ones.

    Raises:
        TrimodalError: the server is not there, lacks the model, or refuses the request.
    """
    from tritonclient.grpc.aio import InferenceServerClient
    from tritonclient.utils import InferenceServerException

    described = await make(question)
    timeouts = Timeouts(silence=server.timeout)
    try:
        transport = GrpcTransport(server.url, timeouts, connections=1)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    triton = InferenceServerClient(server.url.rpartition("://")[2], ssl=server.url.startswith("grpcs://"))
    try:
        async with AsyncExitStack() as stack:
            await _check(transport, question, server, timeouts)
            config = (await triton.get_model_config(question.kind, client_timeout=server.timeout)).config
            if "trace" in [one.name for one in config.output]:
                described = replace(described, request=traced(described.request))
            for _ in range(warm_up):
                first = await make(question, warm_up=True)
                await exchange(transport, first.request, timeouts, streamed=question.streamed)
            notes: list[str] = []
            models = CALLED.get(question.kind, (question.kind,))
            tracing = TritonTrace(triton, models, server.operator_key, server.timeout)
            try:
                await stack.enter_async_context(tracing.on())
            except NotTraced as error:
                notes.append(f"without Triton's own trace: {error}")
            done = await exchange(transport, described.request, timeouts, streamed=question.streamed)
            records = [] if notes else await tracing.records(described.request.id, described.request.name)
            if not notes and not records:
                notes.append("Triton wrote no trace of this request")
            return Assembly(question.kind, described, done, records, notes).waterfall()
    except InferenceServerException as error:
        raise ConnectionLost(f"the server at {server.url} stopped answering: {error}") from None
    finally:
        await transport.aclose()
        await triton.close()


async def _check(transport: GrpcTransport, question: Question, server: Server, timeouts: Timeouts) -> None:
    """Raises: ConnectError, ModelNotFound: there is no server, or no such model in it. Connects."""
    if not await transport.ready("", timeouts):
        raise ConnectError(f"no server at {server.url} that is ready")
    names = [one.name for one in await transport.models(timeouts)]
    if question.kind not in names:
        raise ModelNotFound(f"no model {question.kind} at {server.url}: it has {', '.join(names)}")
