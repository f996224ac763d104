"""Streams the assistant's answer: what was heard, what was seen, then the text."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from trimodal.client.async_iteration import pumped
from trimodal.client.decoding import labels, readable
from trimodal.client.options import Options, as_json, generation_inputs, listed
from trimodal.client.streams.answer import BaseStream
from trimodal.client.streams.chunks import Audio, blocks_of, checked
from trimodal.client.transports.base import Array, Responses, Tensors, utf8
from trimodal.client.transports.tensors import strings
from trimodal.client.values import AudioFindings, Delta, ImageFindings, Prediction, Turn
from trimodal.errors import InvalidArgument
from trimodal.files import read_at_most

# What is decoded at once of a file; the server bounds the whole.
_BLOCK_S = 30.0
_MAX_FILE_S = 600
_TURNS = "messages with role and content are needed"
Part = TypeVar("Part")


class AskStream(BaseStream["AudioFindings | ImageFindings | Delta"]):
    """Findings and deltas of one question, to be iterated once; sent when the first one is asked for.

        async with client.ask("what is this?", image="photo.jpg") as stream:
            async for item in stream:
                print(item)
        print(stream.heard, stream.labels, stream.text, stream.stages)

    `AudioFindings` and `ImageFindings` come in either order, if there was audio or an image; then `Delta`s.

    Attributes:
        heard: what was said in the audio. labels: what the image shows, best first.
        stages: after the end, milliseconds of heard, saw, queue, ttft, answer and total; None where a
            stage was not needed.
    """

    _of = "the assistant"

    def __init__(self, send: Callable[[], Coroutine[Any, Any, Responses]]) -> None:
        super().__init__(send)
        self.heard = ""
        self.labels: tuple[Prediction, ...] = ()
        self.stages: dict[str, float | None] = {}

    def _item(self, outputs: Tensors) -> AudioFindings | ImageFindings | Delta | None:
        with readable(self._of):
            stage = bytes(outputs["stage"][0]).decode()
            if stage == "heard":
                self.heard = bytes(outputs["text_output"][0]).decode()
                return AudioFindings(self.heard)
            if stage == "saw":
                self.labels = tuple(labels(outputs["labels"], outputs["scores"]))
                return ImageFindings(self.labels)
            if "timing" in outputs:
                self.stages = dict(json.loads(bytes(outputs["timing"][0])))
        return self._delta(outputs)


async def ask_inputs(
    text: str | None,
    image: bytes | str | Path | None,
    audio: str | Path | Audio | None,
    history: Sequence[Turn],
    options: Options,
) -> dict[str, Array]:
    """Makes the input tensors of the assistant; files are read and decoded in a daemon thread.

    Raises:
        InvalidArgument: a value has no place in its tensor's type, or the image file cannot be read.
        AudioError: the file cannot be read as audio.
        TypeError, ValueError: samples of another type or shape.
    """
    if options.get("cancel_key") is not None:
        raise InvalidArgument("cancel_key: the assistant takes none; cancel or leave its stream")
    inputs = generation_inputs(None, None, options)
    if text is not None:
        inputs["text_input"] = strings([utf8("text", text)])
    if turns := [_turn(one) for one in listed("history", history, _TURNS)]:
        inputs["history"] = strings([as_json("history", turns)])
    if image is not None:
        if not isinstance(image, bytes | str | Path):
            raise InvalidArgument(
                f"image is {type(image).__name__}: the bytes of a file, or its path, are needed"
            )
        inputs["image"] = strings([image] if isinstance(image, bytes) else await _read(_file(image)))
    if audio is not None:
        samples = np.concatenate(await _read(_samples(audio)))
        inputs["audio_int16" if samples.dtype == np.int16 else "audio"] = samples
    return inputs


def _turn(turn: Turn) -> dict[str, object]:
    if not isinstance(turn, Mapping):
        raise InvalidArgument(f"history has {type(turn).__name__}: {_TURNS}")
    given = turn.get("labels")
    labels = []
    for one in () if given is None else listed("labels of history", given):
        if not isinstance(one, Prediction):
            raise InvalidArgument(f"labels of history have {type(one).__name__}: Predictions are needed")
        labels.append({"label": one.label, "score": one.score})
    return {**turn, "labels": labels}


async def _read(parts: Generator[Part, None, None]) -> list[Part]:
    async with aclosing(pumped(parts)) as read:
        return [part async for part in read]


def _file(path: str | Path) -> Generator[bytes, None, None]:
    try:
        yield read_at_most(Path(path))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from None


def _samples(audio: str | Path | Audio) -> Generator[Audio, None, None]:
    if not isinstance(audio, str | Path):
        yield checked(audio)
        return
    for count, block in enumerate(blocks_of(audio, _BLOCK_S), 1):
        if count * _BLOCK_S > _MAX_FILE_S:
            raise InvalidArgument(f"{audio}: longer than {_MAX_FILE_S} s, which no assistant takes")
        yield block
