"""One turn's audio on its way to the speech model."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from trimodal.audio.values import SAMPLE_RATE
from trimodal.client.client import Client
from trimodal.client.errors import Timeout
from trimodal.client.transports.fake import FakeSpeech, FakeTransport
from trimodal.gateway.realtime.hearing import turn as module
from trimodal.gateway.realtime.hearing.turn import AudioTurn


def test_captions_of_days_keep_no_word_that_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [(f"word{second}", second + 0.1, second + 0.4) for second in range(20)]
    client = Client(transport=FakeTransport(speech=FakeSpeech(*words)))
    stream = client.listen()
    monkeypatch.setattr(client, "listen", lambda **options: stream)

    async def hear() -> tuple[str, int]:
        turn, text, most = AudioTurn(client, {}), "", 0
        await turn.put(np.zeros(SAMPLE_RATE, np.float32))
        async for update in turn.updates():
            text += update.text
            most = max(most, len(stream.words))
            if turn.seconds < 20:
                await turn.put(np.zeros(SAMPLE_RATE, np.float32))
            else:
                turn.end()
        return text, most

    text, most = asyncio.run(hear())
    assert text.split() == [word for word, _, _ in words]
    assert most <= 2


def test_audio_that_nobody_takes_is_not_waited_with_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)

    async def put() -> None:
        turn = AudioTurn(Client(transport=FakeTransport(speech=FakeSpeech())), {})
        await turn.put(np.zeros(round((module.HELD_S + 1) * SAMPLE_RATE), np.float32))
        await turn.put(np.zeros(SAMPLE_RATE, np.float32))

    with pytest.raises(Timeout, match=r"^no audio was taken for 0.05 s$"):
        asyncio.run(put())
