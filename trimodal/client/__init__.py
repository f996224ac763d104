"""Calls a trimodal server from asyncio, with typed values and errors: see `Client`."""

from trimodal.audio.values import Correction, Word
from trimodal.client.client import Client
from trimodal.client.errors import (
    ConnectError,
    ConnectionLost,
    ProtocolError,
    Timeout,
    TransportError,
)
from trimodal.client.streams.answer import AnswerStream
from trimodal.client.streams.ask import AskStream
from trimodal.client.streams.live import LiveStream
from trimodal.client.timing import Timing
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.fake import FakeTransport
from trimodal.client.values import (
    Answer,
    AudioFindings,
    Delta,
    Embeddings,
    ImageFindings,
    LiveUpdate,
    Message,
    Model,
    Note,
    Prediction,
    TokenLogprob,
    Transcript,
    Turn,
    Usage,
)
from trimodal.errors import (
    Cancelled,
    InternalError,
    InvalidArgument,
    ModelNotFound,
    RequestError,
    TrimodalError,
    Unavailable,
)

# fmt: off
__all__ = [
    "Answer", "AnswerStream", "AskStream", "AudioFindings", "Cancelled", "Client", "ConnectError",
    "ConnectionLost", "Correction", "Delta", "Embeddings", "FakeTransport", "ImageFindings",
    "InternalError", "InvalidArgument", "LiveStream", "LiveUpdate", "Message", "Model", "ModelNotFound",
    "Note", "Prediction", "ProtocolError", "RequestError", "Timeout", "Timeouts", "Timing",
    "TokenLogprob", "Transcript", "TransportError", "TrimodalError", "Turn", "Unavailable", "Usage",
    "Word",
]
