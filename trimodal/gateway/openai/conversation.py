"""Reads a chat whose messages may hold pictures and recordings, and asks the assistant about it.

OpenAI's API is stateless: with every question the whole talk comes again, pictures included. What was heard
and seen in earlier messages is remembered by the hash of the file, so that only what is new is looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimodal.audio.values import Samples
from trimodal.client.client import Client
from trimodal.client.values import Message, Prediction, Turn
from trimodal.gateway.errors import ApiError
from trimodal.gateway.media import decode_base64, decode_data_url, recording
from trimodal.gateway.openai.schemas import AudioPart, ChatMessage, ImagePart

_REMEMBERED = 4096
_MAX_AUDIO_S = 600
_BLOCK_S = 30.0


@dataclass(frozen=True)
class Said:
    """One message: its words, and the files that came with it; its calls, or the id of the one it answers."""

    role: str
    text: str
    image: bytes | None = None
    audio: bytes | None = None
    field: str = ""
    calls: Sequence[Mapping[str, Any]] = ()
    answers: str = ""

    @property
    def message(self) -> Message:
        """As the llm takes it."""
        message = Message(role=self.role, content=self.text)
        if self.calls:
            message["tool_calls"] = self.calls
        if self.answers:
            message["tool_call_id"] = self.answers
        return message


def read_messages(messages: Sequence[ChatMessage]) -> list[Said]:
    """Decodes the parts of all messages. Raises: ApiError 400 naming the part."""
    return [_said(f"messages[{index}]", message) for index, message in enumerate(messages)]


def plain(chat: Sequence[Said]) -> list[Message] | None:
    """The chat for the llm; None where it holds pictures or recordings."""
    if any(said.image or said.audio for said in chat):
        return None
    return [said.message for said in chat]


class Findings:
    """What was heard and seen in files, by their hashes; the oldest are forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, str | tuple[Prediction, ...]] = OrderedDict()

    def keep(self, said: Said, heard: str, labels: tuple[Prediction, ...]) -> None:
        """Remembers what the assistant told of a message's files."""
        if said.audio is not None:
            self._put(said.audio, heard)
        if said.image is not None:
            self._put(said.image, labels)

    async def turn(self, said: Said, client: Client) -> Turn:
        """An earlier message as the assistant takes it; `client` asks what is not known."""
        turn = Turn(role=said.role, content=said.text)
        if said.audio is not None:
            heard = self._get(said.audio)
            if heard is None:
                samples = await asyncio.to_thread(read_samples, said.audio, said.field)
                heard = (await client.transcribe(samples)).text.strip()
                self._put(said.audio, heard)
            turn["heard"] = str(heard)
        if said.image is not None:
            labels = self._get(said.image)
            if labels is None:
                (row,) = await client.classify([said.image])
                labels = tuple(row)
                self._put(said.image, labels)
            assert not isinstance(labels, str)
            turn["labels"] = labels
        return turn

    def _get(self, file: bytes) -> str | tuple[Prediction, ...] | None:
        key = hashlib.sha256(file).digest()
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def _put(self, file: bytes, found: str | tuple[Prediction, ...]) -> None:
        self._known[hashlib.sha256(file).digest()] = found
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def read_samples(contents: bytes, field: str) -> Samples:
    """Decodes a recording as a whole, float32[n] at 16 kHz. Raises: ApiError 400."""
    blocks = []
    for block in recording(contents, _BLOCK_S, field):
        blocks.append(block)
        if len(blocks) * _BLOCK_S > _MAX_AUDIO_S:
            raise ApiError(400, f"{field} is longer than {_MAX_AUDIO_S} s", param=field)
    return np.concatenate(blocks)


def _said(field: str, message: ChatMessage) -> Said:
    role = "system" if message.role == "developer" else message.role
    image: bytes | None = None
    audio: bytes | None = None
    for index, part in enumerate(message.content if isinstance(message.content, list) else ()):
        place = f"{field}.content[{index}]"
        if part.type != "text" and role != "user":
            raise ApiError(400, f"{place}: only a user's message may hold one of these", param=place)
        if isinstance(part, ImagePart):
            if image is not None:
                raise ApiError(400, f"{place}: one picture a message is taken", param=place)
            image = decode_data_url(part.image_url.url, f"{place}.image_url.url")
        elif isinstance(part, AudioPart):
            if audio is not None:
                raise ApiError(400, f"{place}: one recording a message is taken", param=place)
            audio = decode_base64(part.input_audio.data, f"{place}.input_audio.data")
    unsent = {"function": {"parsed_arguments"}}
    calls = [call.model_dump(exclude=unsent) for call in message.tool_calls or ()]
    return Said(role, message.text, image, audio, field, calls, message.tool_call_id or "")
