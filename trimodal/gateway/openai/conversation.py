"""Reads a chat whose messages may hold pictures and recordings, and asks the assistant about it.

OpenAI's API is stateless: with every question the whole talk comes again, pictures included. What was heard
and seen in earlier messages is remembered by the hash of the file, so that only what is new is looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.client.client import Client
from trimodal.client.values import Message, Prediction, Turn
from trimodal.gateway.errors import invalid
from trimodal.gateway.media import decode_base64, decode_data_url, recording
from trimodal.gateway.openai.schemas import AudioPart, ChatMessage, ImagePart, InputImage
from trimodal.gateway.quota import Cost, KeyUsage

REMEMBERED, REMEMBERED_CHARACTERS = 4096, 16 << 20
_MAX_AUDIO_S = 600
_BLOCK_S = 30.0


@dataclass(frozen=True)
class DecodedMessage:
    """One message: its words, and the files that came with it; its calls, or the id of the one it answers.

    `heard` and `labels`: what is known of files that do not come again.
    """

    role: str
    text: str
    image: bytes | None = None
    audio: bytes | None = None
    field: str = ""
    calls: Sequence[Mapping[str, Any]] = ()
    answers: str = ""
    heard: str = ""
    labels: Sequence[Prediction] = ()

    @property
    def is_plain(self) -> bool:
        """Whether no picture and no recording belongs to it."""
        return not (self.image or self.audio or self.heard or self.labels)

    @property
    def for_llm(self) -> Message:
        """As the llm takes it."""
        message = Message(role=self.role, content=self.text)
        if self.calls:
            message["tool_calls"] = self.calls
        if self.answers:
            message["tool_call_id"] = self.answers
        return message


def read_messages(messages: Sequence[ChatMessage]) -> list[DecodedMessage]:
    """Decodes the parts of all messages. Raises: ApiError 400 naming the part."""
    return [read_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def cost_of(messages: Sequence[DecodedMessage], answers: int = 1) -> Cost:
    """What is known of the cost of a talk's next answer."""
    images = sum(one.image is not None for one in messages)
    return Cost(answers, images, any(one.audio is not None for one in messages))


Finding = str | tuple[Prediction, ...]
"""What was heard in a recording, or seen in a picture."""


class FindingsCache:
    """What was heard and seen in files, by their hashes; the oldest are forgotten.

    Each tenant has its own: whether a file is known tells no other that it was sent.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Finding] = OrderedDict()
        self._characters = 0

    def keep(self, tenant: str, message: DecodedMessage, heard: str, labels: tuple[Prediction, ...]) -> None:
        """Remembers what the assistant heard and saw in a message's files."""
        if message.audio is not None:
            self._put(_key(tenant, message.audio), heard)
        if message.image is not None:
            self._put(_key(tenant, message.image), labels)

    async def turn(self, tenant: str, message: DecodedMessage, client: Client, usage: KeyUsage) -> Turn:
        """An earlier message as the assistant takes it; `client` asks what is not known."""
        found = await self.found(tenant, message, client, usage)
        turn = Turn(role=found.role, content=found.text)
        if found.heard or message.audio is not None:
            turn["heard"] = found.heard
        if found.labels:
            turn["labels"] = found.labels
        return turn

    async def found(
        self, tenant: str, message: DecodedMessage, client: Client, usage: KeyUsage
    ) -> DecodedMessage:
        """The message with what was heard and seen in its files, in place of them."""
        heard: object = message.heard
        labels: object = message.labels
        if message.audio is not None and (heard := self._get(_key(tenant, message.audio))) is None:
            samples = await read_samples(message.audio, message.field, usage)
            heard = (await client.transcribe(samples)).text.strip()
            usage.free(len(samples))
            self._put(_key(tenant, message.audio), heard)
        if message.image is not None and (labels := self._get(_key(tenant, message.image))) is None:
            (row,) = await client.classify([message.image])
            labels = tuple(row)
            self._put(_key(tenant, message.image), labels)
        assert isinstance(heard, str)
        assert isinstance(labels, tuple | list)
        return replace(message, image=None, audio=None, heard=heard, labels=labels)

    def _get(self, key: bytes) -> Finding | None:
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def _put(self, key: bytes, finding: Finding) -> None:
        self._characters += _characters(finding) - _characters(self._known.pop(key, ""))
        self._known[key] = finding
        while len(self._known) > REMEMBERED or self._characters > REMEMBERED_CHARACTERS:
            self._characters -= _characters(self._known.popitem(last=False)[1])


def _characters(finding: Finding) -> int:
    """An hour of speech has 50,000; labels are few."""
    return len(finding) if isinstance(finding, str) else 0


def _key(tenant: str, file: bytes) -> bytes:
    key = hashlib.sha256(tenant.encode() + b"\0")
    key.update(file)
    return key.digest()


async def read_samples(contents: bytes, field: str, usage: KeyUsage) -> Samples:
    """Decodes a recording as a whole, float32[n] at 16 kHz, and charges it.

    Its room is held until its request ends, or frees it. Raises: ApiError 400.
    """
    await usage.hold(most := _MAX_AUDIO_S * SAMPLE_RATE)
    left = threading.Event()
    try:
        samples = await asyncio.to_thread(_decoded, contents, field, left)
    finally:
        left.set()
    usage.free(most - len(samples))
    usage.hear(len(samples) / SAMPLE_RATE)
    return samples


def _decoded(contents: bytes, field: str, left: threading.Event) -> Samples:
    samples = np.empty(0, np.float32)
    for block in recording(contents, _BLOCK_S, field):
        at = len(samples)
        if at + len(block) > _MAX_AUDIO_S * SAMPLE_RATE:
            raise invalid(f"{field} is longer than {_MAX_AUDIO_S} s")
        if left.is_set():  # nobody waits for it, and its room is another's
            break
        samples.resize(at + len(block), refcheck=False)  # in place: blocks to be joined are a second copy
        samples[at:] = block
    return samples


def read_message(field: str, message: ChatMessage) -> DecodedMessage:
    """Decodes the parts of one message. Raises: ApiError 400 naming the part."""
    role = "system" if message.role == "developer" else message.role
    image: bytes | None = None
    audio: bytes | None = None
    for index, part in enumerate(message.content if isinstance(message.content, list) else ()):
        place = f"{field}.content[{index}]"
        if isinstance(part, ImagePart | InputImage | AudioPart) and role != "user":
            raise invalid(f"{place}: only a user's message may hold one of these")
        if isinstance(part, ImagePart | InputImage):
            if image is not None:
                raise invalid(f"{place}: one picture a message is taken")
            name, url = part.picture
            image = decode_data_url(url, f"{place}.{name}")
        elif isinstance(part, AudioPart):
            if audio is not None:
                raise invalid(f"{place}: one recording a message is taken")
            audio = decode_base64(part.input_audio.data, f"{place}.input_audio.data")
    calls = [call.model_dump() for call in message.tool_calls or ()]
    return DecodedMessage(role, message.text, image, audio, field, calls, message.tool_call_id or "")
