"""Defines the typed errors: what a client, an operator or a build script may be told.

    TrimodalError
    ├── RequestError            one request is refused or ends; it carries a Triton code
    │   ├── InvalidArgument     INVALID_ARG   the request is wrong; sending it again is no use
    │   │   └── ModelNotFound   NOT_FOUND     the server has no such model, or not in this version
    │   ├── Unavailable         UNAVAILABLE   no room now; try again later
    │   ├── Cancelled           CANCELLED     the client asked for it to end
    │   └── InternalError       INTERNAL      our fault; the sentence says what, never where
    └── OperatorError           the server, a model or a build cannot start
        ├── SettingsError       a config.pbtxt parameter is unknown or malformed
        ├── ArtefactError       a built engine is missing, damaged or made for something else
        └── ServerError         tritonserver could not be found, started or kept running

Messages are one sentence that names the field and the limit. They never hold a
traceback, a path of the server's machine or a shared-memory name, except
OperatorError's, which name the file that an operator has to edit.
"""

from __future__ import annotations

import logging
import os
import re
from typing import ClassVar

logger = logging.getLogger(__name__)
# What Triton (2.51) says of a request that the queue of a model did not take, or kept for too long
# (default_queue_policy).
QUEUE_REFUSED = re.compile(r"exceeds maximum queue size|request timeout expired", re.I)
# What Python raises where the system lets it start no thread, or have no memory, at the moment.
STARVED = (RuntimeError, MemoryError)
_DESCRIPTOR = re.compile(r"/proc/self/fd/\d+")


def last_line(error: BaseException) -> str:
    """What is wrong, of an error whose first lines say where in a library; its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


def legible(text: str) -> str:
    """A text with a path in it, of whose bytes those that are no UTF-8 are marked: others take it then."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # half a character that stands for no byte, as JSON may have it
        return text.encode("utf-8", "replace").decode()


def by_own_names(text: str) -> str:
    """A text in which folders that go by a descriptor of this process have their own names again."""
    return _DESCRIPTOR.sub(_own_name, text)


def _own_name(descriptor: re.Match[str]) -> str:
    try:
        return os.readlink(descriptor[0])
    except OSError:  # none that is open
        return descriptor[0]


def refused_by_system(error: OSError) -> str:
    """What the system refused, such as a full disk: the file, where it names one, and why."""
    file = error.filename2 or error.filename
    if isinstance(error, FileNotFoundError) and not file:  # of getcwd(2)
        return "the working directory was removed: change to another"
    why = error.strerror.lower() if error.strerror else last_line(error)
    return f"{os.fsdecode(file)}: {why}" if isinstance(file, str | bytes) else why


def is_starved(error: BaseException) -> bool:
    """Whether the system let this process start no thread, or have no memory."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)


def as_request_error(error: BaseException, request_id: str = "") -> RequestError:
    """`error` if a client may be told it, else an InternalError; the traceback goes to the log."""
    if isinstance(error, RequestError):
        return error
    if is_starved(error):
        logger.error("a request is refused: %s: %s", type(error).__name__, error)
        return Unavailable("no thread or no memory is left for this request", 1.0)
    logger.error("the model failed on a request", exc_info=error, extra={"request_id": request_id})
    return InternalError("the model failed on this request; the server's log says why")


class TrimodalError(Exception):
    """Base of everything that this package raises on purpose."""


class RequestError(TrimodalError):
    """One request is refused or ends early. `code` is the name of Triton's error code."""

    code: ClassVar[str] = "INTERNAL"


class InvalidArgument(RequestError):
    """The request itself is wrong: names the field and the limit."""

    code = "INVALID_ARG"


class ModelNotFound(InvalidArgument):
    """The server has no model of that name, or not in that version."""

    code = "NOT_FOUND"


class Unavailable(RequestError):
    """No room at present; the same request may succeed later.

    Args:
        retry_after_s: when it is worth another try, seconds; the sentence then ends with
            "; retry after 0.4 s", the only way for it through Triton.
    """

    code = "UNAVAILABLE"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(
            message if retry_after_s is None else f"{message}; retry after {retry_after_s:.3g} s"
        )
        self.retry_after_s = retry_after_s


class Cancelled(RequestError):
    """The client cancelled, or went away."""

    code = "CANCELLED"


class InternalError(RequestError):
    """Something of ours failed; other requests go on."""

    code = "INTERNAL"


class OperatorError(TrimodalError):
    """Start-up, loading or building cannot go on: one sentence for the person who runs it.

    A path's stand-ins for bytes are letters again in it: Triton's stub (2.51), where all that is not ASCII is
    such a stand-in, is ended by an error that has one. A folder that goes by a descriptor has its name again.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(legible(by_own_names(str(message))))


class SettingsError(OperatorError):
    """A setting is unknown or malformed: names the file and the key."""


class ArtefactError(OperatorError):
    """A built engine is missing, damaged or does not fit: says what to rebuild."""


class ServerError(OperatorError):
    """tritonserver could not be found, started or kept running."""
