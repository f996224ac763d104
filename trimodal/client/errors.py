"""Defines the errors that a client raises, and makes them of gRPC statuses and Triton's messages.

    TrimodalError
    ├── RequestError            the server answered: this request is refused or ended
    │   ├── InvalidArgument     the request is wrong; sending it again is no use
    │   │   └── ModelNotFound   the server has no such model, or not in this version
    │   ├── Unavailable         no room now; try again later
    │   ├── Cancelled           it was cancelled
    │   └── InternalError       the server's fault
    └── TransportError          the server did not answer
        ├── ConnectError        no server listens there
        ├── ConnectionLost      the server went away while the request ran
        ├── Timeout             longer than the deadline, or than the longest silence allowed
        └── ProtocolError       what came back is not what the model's contract says

A gRPC stream of Triton carries an error's message without its code. So streaming
models of this project begin the message with the code ("INVALID_ARG: …"), which is
taken off again here. Triton's option for real statuses (`triton_grpc_error`) is not
used: it makes servers of release 24.10 crash after a few errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from trimodal.errors import (
    QUEUE_REFUSED,
    Cancelled,
    InternalError,
    InvalidArgument,
    ModelNotFound,
    RequestError,
    TrimodalError,
    Unavailable,
)


class TransportError(TrimodalError):
    """The server did not answer; whether it ran the request is not known."""


class ConnectError(TransportError):
    """No connection to the server could be made."""


class ConnectionLost(TransportError):
    """The server or the network went away while the request ran."""


class Timeout(TransportError):
    """The deadline passed, or the server was silent for too long."""


class ProtocolError(TransportError):
    """The answer lacks what the model's contract promises."""


def may_have_begun(error: BaseException) -> bool:
    """Whether a request that ended so may still run on a server that is there."""
    return not isinstance(error, RequestError | ConnectError | ConnectionLost)


_CODES: dict[str, type[RequestError]] = {
    kind.code: kind for kind in (InvalidArgument, ModelNotFound, Unavailable, Cancelled, InternalError)
}
# All are looked for at a text's beginning alone: what follows may quote a caller.
# Triton puts the request's id and, in a pipeline, the pipeline's name in front: the caller knows both.
_PREAMBLE = re.compile(r"(?:\[request id: [^\]]*\] |in ensemble '[^']*', )*")
_PREFIX = re.compile(rf"({'|'.join(_CODES)}): (.*)", re.DOTALL)
_RETRY = re.compile(r"(.*); retry after (\d+(?:\.\d+)?(?:e[+-]?\d+)?) s", re.DOTALL)
_UNKNOWN = re.compile(r"Request for unknown model: ('.*'(?: version \d+)?) is not found")
_NOT_READY = re.compile(r"Request for unknown model: ('.*'(?: version \d+)?) is not at ready state")
_NOT_LOADED = re.compile(r"no available versions|not ready|not at ready state", re.I)
_NOT_NOW = re.compile(rf"{_NOT_LOADED.pattern}|shutting down|in exit|{QUEUE_REFUSED.pattern}", re.I)

# What Triton says of a model whose process died; it is loaded again.
_DIED = re.compile(
    r"(?:Failed to process the request\(s\) for model instance '[^']*', message: )?"
    r"Stub process (?:'.*' )?is not healthy"
)
_DEAD = "the model's process is not healthy"

# … and of a stream of speech that it does not know. Every stream of this client began with START, so it was
# lost: its process died, or nothing came for longer than the idle time.
_NO_STREAM = re.compile(r"stream \d+ is not open")

_STATUS: dict[grpc.StatusCode, type[RequestError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.UNIMPLEMENTED: InvalidArgument,
    grpc.StatusCode.ALREADY_EXISTS: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: ModelNotFound,
    grpc.StatusCode.RESOURCE_EXHAUSTED: InvalidArgument,  # a message beyond the size limits
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Cancelled,
}


def _begins(*texts: str) -> re.Pattern[str]:
    """What gRPC (1.85) says itself; only at a text's beginning: a server's own words may quote a caller's."""
    return re.compile(rf"(?:(?:ipv[46]|unix):\S+ )?(?:{'|'.join(texts)})", re.I | re.DOTALL)


_NO_CONNECTION = _begins(
    "failed to connect", "connection refused", "errors resolving", "address lookup", "(dns|name) resolution"
)
_NO_GRPC = _begins(
    "failed to connect.*(socket closed|http1)", r"received http2 header with status: \d", "trying.*http1"
)
_LOST = _begins(
    *("socket closed", "connection (reset|timed out)", "broken pipe", "goaway", "received rst_stream"),
    *("(keepalive|ping) (watchdog )?timeout", "too many pings", "end of tcp stream"),
    *("(recv|send)msg", "stream removed", "transport clos", "endpoint clos", "internal error from core"),
)

_MAY_BE_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


def from_status(code: grpc.StatusCode, details: str | None, url: str) -> TrimodalError:
    """Makes the error of a gRPC status: of the transport, or the server's answer."""
    text = details or code.name.lower().replace("_", " ")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Timeout(f"the server at {url} did not finish before the deadline")
    if _NO_GRPC.match(text):
        return ConnectError(f"no gRPC endpoint at {url}: something else answers there")
    if code is grpc.StatusCode.UNAVAILABLE and _NO_CONNECTION.match(text):
        return ConnectError(f"no server at {url}")
    if code in _MAY_BE_LOST and _LOST.match(text):
        return ConnectionLost(f"the server at {url} went away")
    text = _plain(text)
    if known := _of_triton(text):
        return known
    if _NO_STREAM.match(text):
        return Unavailable("the server does not know this stream any more: begin it again")
    if code is grpc.StatusCode.NOT_FOUND and _NOT_NOW.search(text):  # it was unloaded: the server drains
        return Unavailable(text)
    return _made(_STATUS.get(code, InternalError), text)


def from_message(message: str, *, by_model: bool) -> RequestError:
    """Makes the error of a message in a stream; `by_model`: it is not Triton itself that refuses."""
    text = _PREAMBLE.sub("", message, count=1)
    if match := _PREFIX.fullmatch(text):
        return _made(_CODES[match[1]], match[2])
    # A model that this one asks in turn, and that is not there, is not the one that was asked for.
    if by_model and not _DIED.match(text):
        return RequestError(text)
    return _of_triton(text) or (Unavailable(text) if _NOT_NOW.search(text) else InvalidArgument(text))


def _of_triton(text: str) -> RequestError | None:
    """What Triton says of a model that it has not, or whose process died; None: it is something else."""
    if unknown := _UNKNOWN.match(text):
        return ModelNotFound(f"the server has no model {unknown[1]}")
    if unready := _NOT_READY.match(text):
        return Unavailable(f"the model {unready[1]} is not ready: it is being loaded again, or was unloaded")
    if _DIED.match(text):
        return Unavailable(f"{_DEAD}: it is loaded again", 2.0)
    return None


def may_lack_version(error: TrimodalError) -> bool:
    """Whether Triton may refuse like this because the version that was asked for is not loaded.

    It says "not at ready state", UNAVAILABLE, of one that is being loaded; for ever of one that was (2.51).
    """
    return isinstance(error, ModelNotFound) or (
        isinstance(error, Unavailable) and bool(_NOT_LOADED.search(str(error)))
    )


def is_dead(error: TrimodalError) -> bool:
    """Whether this is what Triton says of a model whose process is gone; nothing has run."""
    return isinstance(error, Unavailable) and str(error).startswith(_DEAD)


def question_of_versions(error: RequestError, model: str) -> tuple[str, Any] | None:
    """The call of Triton, and its message, that tells whether a version is missing; None: that is not why."""
    if not may_lack_version(error):
        return None
    if isinstance(error, ModelNotFound):
        return "ModelStatistics", service_pb2.ModelStatisticsRequest(name=model)
    return "RepositoryIndex", service_pb2.RepositoryIndexRequest()


def of_versions(error: RequestError, model: str, version: str, answer: Any) -> RequestError:
    """What to tell of a refusal by the answer to its `question_of_versions`."""
    if isinstance(error, ModelNotFound):
        return of_statistics(error, model, version, answer)
    assert isinstance(error, Unavailable)
    return of_index(error, model, version, answer)


def of_statistics(error: ModelNotFound, model: str, version: str, message: Any) -> RequestError:
    """What to tell of NOT_FOUND by the model's statistics, which list the versions that take requests.

    Where none does, the model is loaded again or unloaded: the error as it is.
    """
    loaded = [one.version for one in message.model_stats]
    if version in loaded:
        return Unavailable(f"the model '{model}' version {version} was not loaded yet; try again later")
    return _missing(model, version, loaded) if loaded else error


def of_index(error: Unavailable, model: str, version: str, message: Any) -> RequestError:
    """What to tell of "not at ready state" by the repository index: NOT_FOUND where it was unloaded."""
    versions = {one.version: one for one in message.models if one.name == model}
    loaded = [one.version for one in versions.values() if one.state == "READY"]
    found = versions.get(version)
    gone = found is None or (found.state, found.reason) == ("UNAVAILABLE", "unloaded")
    return _missing(model, version, loaded) if gone and loaded else error


def _missing(model: str, version: str, loaded: Sequence[str]) -> ModelNotFound:
    return ModelNotFound(f"the server has no model '{model}' version {version}, only {', '.join(loaded)}")


def _made(kind: type[RequestError], text: str) -> RequestError:
    if kind is Unavailable and (hint := _RETRY.fullmatch(text)):
        return Unavailable(hint[1], float(hint[2]))
    return kind(text)


def _plain(text: str) -> str:
    text = _PREAMBLE.sub("", text, count=1)
    match = _PREFIX.fullmatch(text)
    return match[2] if match else text
