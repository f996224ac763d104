"""A typed asyncio client of a trimodal server: see `Client`. `errors` draws the tree of errors."""

from trimodal.client.client import Client
from trimodal.client.errors import (
    ConnectError,
    ConnectionLost,
    ModelNotFound,
    ProtocolError,
    Timeout,
    TransportError,
)
from trimodal.client.fake_transport import FakeTransport
from trimodal.client.stream import AnswerStream
from trimodal.client.timing import Timing
from trimodal.client.transport import Timeouts
from trimodal.client.values import Answer, Delta, Message, Model, Prediction, Usage
from trimodal.errors import Cancelled, InternalError, InvalidArgument, RequestError, Unavailable

__all__ = [
    "Answer",
    "AnswerStream",
    "Cancelled",
    "Client",
    "ConnectError",
    "ConnectionLost",
    "Delta",
    "FakeTransport",
    "InternalError",
    "InvalidArgument",
    "Message",
    "Model",
    "ModelNotFound",
    "Prediction",
    "ProtocolError",
    "RequestError",
    "Timeout",
    "Timeouts",
    "Timing",
    "TransportError",
    "Unavailable",
    "Usage",
]
