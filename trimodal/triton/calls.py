"""An error of a model that was called inside Triton → the typed error that its own client would get."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trimodal.errors import Cancelled, InternalError, InvalidArgument, RequestError, Unavailable

# Of 32: the others are for responses, cancellations and metrics.
AT_ONCE = 24
_LOOK_S = 0.02


class Gate:
    """Lets `at_once` calls wait together."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._free = threading.Semaphore(at_once)

    @contextmanager
    def waiting(self, check: Callable[[], None]) -> Iterator[None]:
        """A call may wait inside.

        Args:
            check: looked at while the gate is full; raises to give up.
        """
        while not self._free.acquire(timeout=_LOOK_S):
            check()
        try:
            yield
        finally:
            self._free.release()


_KINDS: dict[str, type[RequestError]] = {
    kind.code: kind for kind in (InvalidArgument, Unavailable, Cancelled, InternalError)
}
# Decoupled models begin the sentence with the code.
_CODED = re.compile(rf"({'|'.join(_KINDS)}): (.*)", re.DOTALL)
_PREAMBLE = re.compile(r"^(?:\[request id: [^\]]*\] |in ensemble '[^']*', )*")
# Triton 2.51 hands an error of the others on without its code: they are told apart by how they begin.
_NOT_READY = re.compile(r"Model '?(\S+?)'? .*is not (?:ready|found)|Model '?(\S+?)'? is not (?:ready|found)")
_BEGINNINGS: tuple[tuple[re.Pattern[str], type[RequestError]], ...] = (
    (re.compile(r"(image|audio|audio_int16|policy|language)\b(\[\d+\])?:"), InvalidArgument),
    (re.compile(r"speech: |speech is being unloaded"), Unavailable),
    (re.compile(r"stream \d+ was started anew"), Cancelled),
)


def called_error(pb_utils: Any, error: Any) -> RequestError:
    """`error` of a BLS response (with `code()` and `message()`)."""
    told = _PREAMBLE.sub("", error.message())
    if coded := _CODED.fullmatch(told):
        return _KINDS[coded[1]](coded[2])
    if found := _NOT_READY.search(told):
        return Unavailable(f"the model '{(found[1] or found[2])}' is not ready; try again later")
    for beginning, kind in _BEGINNINGS:
        if beginning.match(told):
            return kind(told)
    code = error.code()
    kinds = {getattr(pb_utils.TritonError, name): kind for name, kind in _KINDS.items()}
    return kinds.get(code, InternalError)(told)
