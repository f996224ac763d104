"""Events of realtime sessions, of both dialects, one after another."""

from __future__ import annotations

import asyncio
import base64
import math
from functools import cache
from itertools import chain
from typing import Any

from tests.fuzz.choices import Choices
from tests.fuzz.hostile import dumped, spoil, spoil_bytes, text, value
from tests.fuzz.targets.app import App
from tests.fuzz.targets.pictures import FILES
from tests.fuzz.targets.promise import Broken
from tests.gateway.realtime.conftest import Corrects
from trimodal.audio.values import Correction, Word
from trimodal.client.client import Client
from trimodal.gateway.access import Access, Caller
from trimodal.gateway.errors import ApiError
from trimodal.gateway.keys import ANYBODY
from trimodal.gateway.quota import KeyUsage
from trimodal.gateway.realtime.openai.config import TENTATIVE, first_config
from trimodal.gateway.realtime.openai.early import EarlyBudget
from trimodal.gateway.realtime.session import Pace, Session

_AUDIO = base64.b64encode(b"\0\10" * 2400).decode()
_URL = "data:image/png;base64," + base64.b64encode(FILES["png"]).decode()
_HEARING = {
    "format": {"type": "audio/pcm", "rate": 24000},
    "transcription": {"model": "speech", "language": "en"},
    "turn_detection": None,
    "noise_reduction": None,
}
_VAD = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 200,
    "create_response": True,
    "interrupt_response": True,
    "idle_timeout_ms": None,
}
_SAYING = {
    "type": "message",
    "role": "user",
    "id": "item_1",
    "content": [{"type": "input_text", "text": "hi"}],
}
EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "input_audio_buffer.append", "audio": _AUDIO},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.commit", "final": True},
    {"type": "input_audio_buffer.clear"},
    {
        "type": "session.update",
        "session": {"type": "transcription", "include": [TENTATIVE], "audio": {"input": _HEARING}},
    },
    {
        "type": "session.update",
        "session": {"type": "transcription", "audio": {"input": {"turn_detection": _VAD}}},
    },
    {
        "type": "session.update",
        "session": {
            "type": "realtime",
            "instructions": "i",
            "max_output_tokens": 9,
            "output_modalities": ["text"],
            "audio": {"input": _HEARING},
        },
    },
    {"type": "session.update", "model": "speech", "tentative": True},
    {"type": "conversation.item.create", "item": _SAYING, "previous_item_id": "root"},
    {
        "type": "conversation.item.create",
        "item": {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": _URL, "detail": "low"},
                {"type": "input_text", "text": "what"},
            ],
        },
    },
    {"type": "conversation.item.delete", "item_id": "item_1"},
    {"type": "conversation.item.retrieve", "item_id": "item_1"},
    {
        "type": "response.create",
        "response": {"instructions": "i", "max_output_tokens": 4, "metadata": {"a": "b"}},
    },
    {"type": "response.create"},
    {"type": "response.cancel"},
)
_SPOKEN = ({"type": "session.update", "model": "speech", "tentative": True}, *[EVENTS[0]] * 3, *EVENTS[1:3])
HEARD = tuple(dumped(event).decode() for event in _SPOKEN)  # at the end: words, in either dialect
SAID = (("what", 0.01, 0.05), ("is", 0.06, 0.1), ("this?", 0.12, 0.14), ("Well.", 0.2, 0.25))
FATAL = 1011  # how a socket is closed after a failure of ours


@cache
def _app() -> App:
    return App()


def run(data: bytes) -> None:
    choices = Choices(data)
    app = _app()
    app.triton.functions["speech"] = Corrects(*SAID, told=_corrections(Choices(data[::-1])))
    app.run(_session(choices, app))
    del app.triton.requests[:]


def _corrections(choices: Choices) -> list[tuple[float, Correction]]:
    """What of the words is heard otherwise later, and when."""
    told = []
    for _ in range(choices.integer(1, 4)):
        words = tuple(
            Word(choices.pick((" no", "", " ", " what", "\u202e")), 0.0, 0.1, 0.5)
            for _ in range(choices.integer(0, 3))
        )
        first, count = choices.integer(0, len(SAID)), choices.integer(1, len(SAID))
        told.append((choices.pick((0.0, 0.4, math.inf)), Correction(first, count, words)))
    return told


def frame(choices: Choices) -> str:
    """One frame of a client (a binary one reaches no session): mostly an event, whole or spoilt."""
    kind = choices.integer(0, 9)
    if kind == 0:
        return choices.bytes(choices.integer(0, 60)).decode("utf-8", "replace")
    if kind == 1:
        return dumped(value(choices)).decode()
    event = choices.pick(EVENTS)
    if kind <= 5:
        return dumped(event).decode()
    if kind == 6:
        return spoil_bytes(choices, dumped(event)).decode("utf-8", "replace")
    return dumped(spoil(choices, event)).decode()


def query(choices: Choices) -> tuple[str | None, str | None]:
    """`intent` and `model` of the address."""
    return choices.pick(("transcription", None, None, "x")), choices.pick(
        (None, "llm", "assistant", text(choices))
    )


async def _session(choices: Choices, app: App) -> None:
    try:
        config = first_config(*query(choices))
    except ApiError:
        return
    session = Session(
        Client(transport=app.triton),
        Access(None),
        Caller(ANYBODY, "fuzz"),
        config,
        KeyUsage({}),
        EarlyBudget(),
        Pace().session(),
    )
    try:
        drawn = (frame(choices) for _ in range(choices.integer(1, 12)))
        for sent in chain(drawn, HEARD):
            await asyncio.wait_for(session.handle(sent), 10)
            if choices.chance(3):
                await asyncio.sleep(0.001)
            ending = session.outbox.ending
            if ending is not None and ending.code == FATAL:
                raise Broken(f"the session ended with {ending} after {sent!r:.1500}")
        await asyncio.sleep(0.005)
    finally:
        session.outbox.end(1000, "the client left")
        await asyncio.wait_for(session.run(), 10)
