"""The speech model's answers as values. Sending and errors of the transport are not its affair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimodal.client.errors import ProtocolError
from trimodal.client.transport import Tensors
from trimodal.client.values import LiveUpdate
from trimodal.speech.values import Word


def read(outputs: Tensors) -> LiveUpdate:
    """One answer. Raises ProtocolError when it is not what the model's contract says."""
    try:
        flat = {name: array.reshape(-1) for name, array in outputs.items()}
        columns = (flat[f"word{name}"] for name in ("s", "_starts", "_ends", "_probabilities"))
        return LiveUpdate(
            committed=tuple(
                Word(bytes(text).decode(), float(start), float(end), float(probability))
                for text, start, end, probability in zip(*columns, strict=True)
            ),
            text=bytes(flat["committed"][0]).decode(),
            tentative=bytes(flat["tentative"][0]).decode(),
            received_s=float(flat["received_s"][0]),
            lag_s=float(flat["lag_s"][0]),
            final=bool(flat["final"][0]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(f"the answer of the speech model cannot be read: {error!r}") from None


def merged(updates: Sequence[LiveUpdate]) -> LiveUpdate:
    """Answers to the pieces of one chunk, at least one, as one answer."""
    committed = tuple(word for update in updates for word in update.committed)
    return replace(updates[-1], committed=committed, text="".join(update.text for update in updates))
