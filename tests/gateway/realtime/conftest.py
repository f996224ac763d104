"""A client of /v1/realtime that shows every event, checked against OpenAI's types."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from websockets.sync.client import ClientConnection, connect

from tests.gateway.conftest import LIMIT_S, Running
from trimodal.audio.values import SAMPLE_RATE, Correction, Word
from trimodal.client.transports.fake import FakeSpeech
from trimodal.client.transports.tensors import strings
from trimodal.gateway.realtime.hearing import detection
from trimodal.speech.session.vad import EnergyDetector

WORDS = "what is this? Well."  # what the fake speech model hears in three seconds
_SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)

Event = dict[str, Any]


def pcm(seconds: float, rate: int = 24_000, level: float = 0.1) -> str:
    """Noise, or with level 0 silence, in base64."""
    noise = np.random.default_rng(0).normal(0, level * 32_768, round(seconds * rate))
    return base64.b64encode(noise.clip(-32_768, 32_767).astype("<i2").tobytes()).decode()


class Peer:
    """One socket. OpenAI's events are checked against its package's types as they come."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.openai = True
        self.events: list[Event] = []

    def send(self, kind: str, **fields: object) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def append(self, seconds: float = 0.1, rate: int = 24_000, level: float = 0.1) -> None:
        self.send("input_audio_buffer.append", audio=pcm(seconds, rate, level))

    def say(self, seconds: float, silence: float = 1.0) -> None:
        """Speech, then silence."""
        self.append(seconds)
        self.append(silence, level=0.0)

    def ask(self, item: Event) -> None:
        """Adds an item and has the talk answered."""
        self.send("conversation.item.create", item=item)
        self.send("response.create")

    def settle(self) -> None:
        """Waits until what was sent before is handled."""
        self.send("conversation.item.retrieve", item_id="none")
        self.refused()

    def refused(self) -> Event:
        """The next error; what comes before it is in `events`."""
        while (event := self.receive())["type"] != "error":
            pass
        return event["error"]  # type: ignore[no-any-return]

    def receive(self, timeout_s: float = LIMIT_S) -> Event:
        event: Event = json.loads(self.socket.recv(timeout_s))
        if self.openai:
            _SERVER_EVENT.validate_python(event)
        self.events.append(event)
        return event

    def until(self, kind: str) -> Event:
        """The next event of this type; those before it are in `events`."""
        while (event := self.receive())["type"] != kind:
            assert event["type"] != "error", event
        return event

    def closed(self) -> tuple[int, str]:
        """Reads to the end: the close code and its reason."""
        try:
            while True:
                self.receive()
        except Exception:
            return self.socket.close_code or 0, self.socket.close_reason or ""

    def kinds(self) -> list[str]:
        """The types so far, repetitions once."""
        kinds = [event["type"] for event in self.events]
        return [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before]

    def deltas(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"].endswith(".delta"))


Dial = Callable[..., Peer]


@pytest.fixture
def dial() -> Iterator[Dial]:
    with ExitStack() as stack:

        def start(running: Running, query: str = "", **options: Any) -> Peer:
            url = running.url.replace("http", "ws") + f"/v1/realtime{query and '?' + query}"
            socket = stack.enter_context(connect(url, open_timeout=LIMIT_S, **options))
            return Peer(socket)

        yield start


@pytest.fixture
def _loud_is_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "speech_detector", EnergyDetector)


def transcription(**fields: object) -> Event:
    """A transcription session without detection, changed."""
    return {"type": "transcription", "audio": {"input": {"turn_detection": None, **fields}}}


def turns(**fields: object) -> Event:
    """A conversation whose turns are detected like this."""
    return {"type": "realtime", "audio": {"input": {"turn_detection": fields}}}


ONE = Correction(1, 2, (Word(" was", 0.4, 0.6, 0.9), Word(" that?", 0.7, 0.9, 0.9)))


class Corrects(FakeSpeech):
    """Hears committed words otherwise later.

    `told`: corrections, each with the seconds of audio from which on it is told, in its turn and once its
    words are committed; math.inf: at the end.
    """

    def __init__(
        self, *words: tuple[str, float, float], told: Sequence[tuple[float, Correction]] = ()
    ) -> None:
        super().__init__(*words)
        self._told = told or ((0.0, ONE),)
        self._next: dict[int, int] = {}  # by stream

    def _answer(self, stream, until_s, *, final=False):  # type: ignore[no-untyped-def]
        outputs = super()._answer(stream, until_s, final=final)
        at = self._next.get(id(stream), 0)
        if at < len(self._told):
            from_s, correction = self._told[at]
            is_due = final or stream.received / SAMPLE_RATE >= from_s
            if is_due and stream.committed >= correction.first + correction.count:
                self._next[id(stream)] = at + 1
                outputs["corrections"] = strings([json.dumps(asdict(correction)).encode()])
        return outputs
