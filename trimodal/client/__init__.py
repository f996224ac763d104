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
from trimodal.client.listen import LiveStream
from trimodal.client.stream import AnswerStream
from trimodal.client.timing import Timing
from trimodal.client.transport import Timeouts
from trimodal.client.values import (
    Answer,
    Delta,
    LiveUpdate,
    Message,
    Model,
    Note,
    Prediction,
    Transcript,
    Usage,
)
from trimodal.errors import Cancelled, InternalError, InvalidArgument, RequestError, Unavailable
from trimodal.speech.values import Word

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
    "LiveStream",
    "LiveUpdate",
    "Message",
    "Model",
    "ModelNotFound",
    "Note",
    "Prediction",
    "ProtocolError",
    "RequestError",
    "Timeout",
    "Timeouts",
    "Timing",
    "Transcript",
    "TransportError",
    "Unavailable",
    "Usage",
    "Word",
]
