"""Calls another model of the same Triton (BLS) and turns its error into the one its own client would get."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from trimodal.errors import (
    QUEUE_REFUSED,
    Cancelled,
    InternalError,
    InvalidArgument,
    RequestError,
    Unavailable,
)

# Of 32: the others are for responses, cancellations and metrics.
AT_ONCE = 24
_LOOK_S = 0.02


class Gate:
    """Lets `at_once` calls wait together."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._free = threading.Semaphore(at_once)

    @contextmanager
    def waiting(self, check: Callable[[], None]) -> Iterator[None]:
        """A call may wait inside. `check`: looked at while the gate is full; raises to give up."""
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
_DIED = re.compile(r"Stub process '(\S+)_\d+_\d+' is not healthy")
_RETRY_S = 2.0  # a model is mostly loaded again by then
_FIELD = re.compile(r"(\w+)(\[\d+\])?[: ]")
_BEGINNINGS: tuple[tuple[re.Pattern[str], type[RequestError]], ...] = (
    (re.compile(r"speech: |speech is being unloaded"), Unavailable),
    (re.compile(r"stream \d+ was started anew"), Cancelled),
)


def infer(
    pb_utils: Any,
    model: str,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Collection[str],
    fields: Collection[str],
    **more: Any,
) -> dict[str, NDArray[Any]]:
    """The outputs of a model that gives one response, each flat; blocks.

    Args:
        model: its name; "speech@2" is version 2 of it, without one Triton takes the highest.
        fields: as for `called_error`.
        more: arguments of `InferenceRequest`, as flags.

    Raises:
        RequestError: of the kind that the model answered with.
    """
    name, _, version = model.partition("@")
    if version:
        more["model_version"] = int(version)
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    response = pb_utils.InferenceRequest(
        model_name=name, requested_output_names=list(outputs), inputs=tensors, **more
    ).exec()
    if response.has_error():
        raise called_error(pb_utils, response.error(), fields)
    get = pb_utils.get_output_tensor_by_name
    return {name: get(response, name).as_numpy().reshape(-1) for name in outputs}


def called_error(pb_utils: Any, error: Any, fields: Collection[str]) -> RequestError:
    """`error` of a BLS response (with `code()` and `message()`).

    Args:
        fields: inputs and parameters that the caller's own client chose: a sentence that begins with one of
            them is a refusal of what that client sent.
    """
    sentence = _PREAMBLE.sub("", error.message())
    if coded := _CODED.fullmatch(sentence):
        return _KINDS[coded[1]](coded[2])
    if (field := _FIELD.match(sentence)) and field[1] in fields:  # first: it may quote what the client sent
        return InvalidArgument(sentence)
    if missing := _NOT_READY.search(sentence):
        return Unavailable(f"the model '{(missing[1] or missing[2])}' is not ready; try again later")
    if died := _DIED.search(sentence):
        return Unavailable(f"the process of model '{died[1]}' died: it is loaded again", _RETRY_S)
    if QUEUE_REFUSED.search(sentence):
        return Unavailable(sentence)
    for beginning, kind in _BEGINNINGS:
        if beginning.match(sentence):
            return kind(sentence)
    kinds = {getattr(pb_utils.TritonError, name): kind for name, kind in _KINDS.items()}
    return kinds.get(error.code(), InternalError)(sentence)
