"""Fakes the speech model for `FakeTransport`: scripted words at their times, whatever audio is sent.

    speech = FakeSpeech(("what", 0.1, 0.3), ("is", 0.4, 0.6))
    client = Client(transport=FakeTransport(speech=speech))

It enforces the rules of streams (START, END, one id each), not those of audio.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.client.transports.base import Array, Request
from trimodal.client.transports.tensors import strings
from trimodal.errors import InvalidArgument


@dataclass
class _Stream:
    received: int = 0
    committed: int = 0


class FakeSpeech:
    """The model. `streams` are those that have begun and not ended, by id.

    Args:
        words: (text, start, end), times in seconds since the stream began.
        delay_s: a word is tentative once it is over, and committed so much later.
    """

    def __init__(self, *words: tuple[str, float, float], delay_s: float = 0.5) -> None:
        self.streams: dict[int, _Stream] = {}
        self._words = tuple(Word(f" {text}", start, end, 0.9) for text, start, end in words)
        self._delay_s = delay_s

    def __call__(self, request: Request) -> dict[str, Array]:
        key = int(request.parameters["sequence_id"])
        if request.parameters["sequence_start"]:
            self.streams[key] = _Stream()
        if key not in self.streams:
            raise InvalidArgument(f"stream {key} has not begun: its first chunk needs START")
        stream = self.streams[key]
        stream.received += sum(array.size for array in request.inputs.values())
        received_s = stream.received / SAMPLE_RATE
        final = bool(request.parameters["sequence_end"])
        if final:
            del self.streams[key]
        heard = [word for word in self._words if word.end <= received_s]
        done = len(heard) if final else sum(word.end + self._delay_s <= received_s for word in heard)
        new, rest = heard[stream.committed : done], heard[done:]
        stream.committed = done
        lag_s = received_s - heard[done - 1].end if done else 0.0
        return speech_outputs(*new, tentative=rest, received_s=received_s, lag_s=lag_s, final=final)


def speech_outputs(
    *committed: Word,
    tentative: list[Word] | tuple[Word, ...] = (),
    received_s: float = 0.0,
    lag_s: float = 0.0,
    final: bool = False,
) -> dict[str, Array]:
    """Returns the outputs of one answer of the speech model."""
    texts = [word.text.encode() for word in committed]
    return {
        "committed": strings([b"".join(texts)]),
        "tentative": strings(["".join(word.text for word in tentative).encode()]),
        "words": strings(texts),
        "word_starts": np.array([word.start for word in committed], np.float64),
        "word_ends": np.array([word.end for word in committed], np.float64),
        "word_probabilities": np.array([word.probability for word in committed], np.float32),
        "received_s": np.array([received_s], np.float64),
        "lag_s": np.array([lag_s], np.float64),
        "final": np.array([final]),
    }
