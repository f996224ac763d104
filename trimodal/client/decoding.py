"""Decodes output tensors: labels, vectors, the note of an answer, updates of live speech.

What cannot be read is a ProtocolError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import Correction, HeardWindow, Word
from trimodal.client.errors import ProtocolError
from trimodal.client.transports.base import Array, Tensors
from trimodal.client.values import LiveUpdate, Note, Prediction, TokenLogprob
from trimodal.settings import shorten

# ArithmeticError: a number that is infinite or too large; RecursionError: JSON nested too deeply.
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
_MOST_QUOTED = 120


class readable:
    """Turns what goes wrong while an answer of `sender` is decoded, in its `with`, into a ProtocolError."""

    def __init__(self, sender: str) -> None:
        self._sender = sender

    def __enter__(self) -> None:
        """Nothing; contextlib's generators would take a third of a delta's decoding."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _UNREADABLE):
            why = shorten(repr(error), _MOST_QUOTED)
            raise ProtocolError(f"the answer of {self._sender} cannot be read: {why}") from None


def predictions(outputs: Tensors, count: int, model: str) -> list[list[Prediction]]:
    """Decodes the labels of `count` images, best first."""
    with readable(f"model '{model}'"):
        names, scores = (_rows(outputs, name, count) for name in ("labels", "scores"))
        return [labels(*row) for row in zip(names, scores, strict=True)]


def labels(names: Array, scores: Array) -> list[Prediction]:
    """Decodes the labels of one image."""
    return [Prediction(name.decode(), float(score)) for name, score in zip(names, scores, strict=True)]


def vectors(outputs: Tensors, count: int, model: str) -> list[tuple[NDArray[np.float32], int]]:
    """Decodes the vectors of `count` texts, float32[d] each, and the tokens that were read of each."""
    with readable(f"model '{model}'"):
        rows = _rows(outputs, "embedding", count)
        tokens = _rows(outputs, "tokens", count)[:, 0] if "tokens" in outputs else [0] * count
        return [(row, int(read)) for row, read in zip(rows, tokens, strict=True)]


def _rows(outputs: Tensors, name: str, count: int) -> Array:
    array = outputs[name]
    if array.ndim != 2 or len(array) != count:
        raise ValueError(f"{name} has shape {list(array.shape)}")
    return array


def read_note(outputs: Tensors) -> Note:
    """Decodes the note in `outputs`; an empty one from a server that sends none. For use in `readable`."""
    if "cache" not in outputs:
        return Note()
    foreseen = float(outputs["predicted_ttft_ms"][0])
    trimmed = bytes(outputs["trimmed"][0]).decode()
    return Note(
        cache=bytes(outputs["cache"][0]).decode(),
        similarity=float(outputs["similarity"][0]),
        trimmed={str(name): int(count) for name, count in json.loads(trimmed).items()} if trimmed else {},
        queue_ms=float(outputs["queue_ms"][0]),
        predicted_ttft_ms=foreseen if foreseen >= 0 else math.nan,
    )


def read_logprobs(outputs: Tensors, name: str = "logprobs") -> tuple[TokenLogprob, ...]:
    """Decodes the tokens of a text; none where they were not asked for. For use in `readable`."""
    if name not in outputs:
        return ()
    return tuple(map(_token, json.loads(bytes(outputs[name][0]))))


def _token(entry: Mapping[str, Any]) -> TokenLogprob:
    top = tuple(map(_token, entry.get("top_logprobs", ())))
    logprob = math.nan if entry["logprob"] is None else float(entry["logprob"])
    return TokenLogprob(str(entry["token"]), bytes(entry["bytes"]), logprob, top)


def read(outputs: Tensors) -> LiveUpdate:
    """Decodes one answer of the speech model."""
    with readable("the speech model"):
        flat = {name: array.reshape(-1) for name, array in outputs.items()}
        columns = [flat[f"word{name}"] for name in ("s", "_starts", "_ends", "_probabilities")]
        tokens = flat.get("word_tokens", [b""] * len(columns[0]))
        return LiveUpdate(
            committed=tuple(
                Word(
                    bytes(text).decode(),
                    float(start),
                    float(end),
                    float(probability),
                    tuple(map(int, bytes(ids).split())),
                )
                for text, start, end, probability, ids in zip(*columns, tokens, strict=True)
            ),
            text=bytes(flat["committed"][0]).decode(),
            tentative=bytes(flat["tentative"][0]).decode(),
            received_s=float(flat["received_s"][0]),
            lag_s=float(flat["lag_s"][0]),
            final=bool(flat["final"][0]),
            windows=tuple(HeardWindow(**json.loads(one)) for one in flat.get("windows", ())),
            corrections=tuple(_correction(json.loads(one)) for one in flat.get("corrections", ())),
        )


def _correction(entry: Mapping[str, Any]) -> Correction:
    first, count = int(entry["first"]), int(entry["count"])
    if first < 0 or count < 1:
        raise ValueError(f"a correction of {count} words from {first}")
    return Correction(first, count, tuple(map(_word, entry["words"])))


def _word(entry: Mapping[str, Any]) -> Word:
    start, end, probability = (float(entry[name]) for name in ("start", "end", "probability"))
    return Word(str(entry["text"]), start, end, probability, tuple(map(int, entry["tokens"])))


def merged(updates: Sequence[LiveUpdate]) -> LiveUpdate:
    """Answers to the pieces of one chunk, at least one, as one answer."""
    committed = tuple(word for update in updates for word in update.committed)
    windows = tuple(window for update in updates for window in update.windows)
    corrections = tuple(one for update in updates for one in update.corrections)
    text = "".join(update.text for update in updates)
    return replace(updates[-1], committed=committed, text=text, windows=windows, corrections=corrections)
