"""A typed asyncio client of a trimodal server: see `Client`. `errors` draws the tree of errors."""

from trimodal.client.ask import AskStream
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
    Heard,
    LiveUpdate,
    Message,
    Model,
    Note,
    Prediction,
    Saw,
    Transcript,
    Usage,
)
from trimodal.errors import Cancelled, InternalError, InvalidArgument, RequestError, Unavailable
from trimodal.speech.values import Word

__all__ = [
    "Answer",
    "AnswerStream",
    "AskStream",
    "Cancelled",
    "Client",
    "ConnectError",
    "ConnectionLost",
    "Delta",
    "FakeTransport",
    "Heard",
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
    "Saw",
    "Timeout",
    "Timeouts",
    "Timing",
    "Transcript",
    "TransportError",
    "Unavailable",
    "Usage",
    "Word",
]
