"""One turn's audio on its way to the speech model."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import numpy as np
import pytest

from trimodal.audio.values import MOST_CORRECTED, SAMPLE_RATE, Correction, Samples, Word
from trimodal.client.client import Client
from trimodal.client.errors import Timeout
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import FakeSpeech, FakeTransport
from trimodal.client.values import LiveUpdate
from trimodal.gateway.realtime.hearing import turn as module
from trimodal.gateway.realtime.hearing.turn import AudioTurn, TurnText


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


def test_the_text_of_days_is_corrected_at_its_end_alone() -> None:
    text = TurnText()
    for number in range(1000):
        text.add(LiveUpdate((Word(f" {number}", number, number + 0.5, 0.9),), f" {number}"))
    text.add(LiveUpdate(corrections=(Correction(999, 1, (Word(" thousand", 999, 999.5, 0.9),)),)))
    assert text.correction == {"before": "999", "text": "thousand"}
    assert text.text == " ".join([*map(str, range(999)), "thousand"])
    assert len(text._words.words) == MOST_CORRECTED
    text.add(LiveUpdate())
    assert text.correction is None


def more_than_is_held() -> Samples:
    return np.zeros(round((module.HELD_S + 1) * SAMPLE_RATE), np.float32)


async def hear(turn: AudioTurn) -> None:
    async with aclosing(turn.updates()) as updates:
        async for _ in updates:
            pass


async def silent(request: Request) -> Tensors:
    await asyncio.Event().wait()
    return {}


async def test_audio_that_nobody_takes_is_not_waited_with_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    turn = AudioTurn(Client(transport=FakeTransport(speech=silent)), {})
    hearing = asyncio.ensure_future(hear(turn))
    await turn.put(np.zeros(SAMPLE_RATE, np.float32))  # the server has this
    await asyncio.sleep(0)
    await turn.put(more_than_is_held())
    with pytest.raises(Timeout, match=r"^no audio was taken for 0.05 s$"):
        await turn.put(np.zeros(SAMPLE_RATE, np.float32))
    hearing.cancel()
    await asyncio.wait([hearing])


async def test_a_turn_that_waits_for_the_end_of_another_one_is_not_a_servers_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In vLLM's dialect: a session was ended whose server was at work on the turn before."""
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    turn = AudioTurn(Client(transport=FakeTransport(speech=FakeSpeech())), {})
    await turn.put(more_than_is_held())
    putting = asyncio.ensure_future(turn.put(np.zeros(SAMPLE_RATE, np.float32)))
    await asyncio.sleep(0.2)
    assert not putting.done()
    hearing = asyncio.ensure_future(hear(turn))
    await asyncio.wait_for(putting, 20)
    turn.end()
    await asyncio.wait_for(hearing, 20)
    assert turn.seconds == module.HELD_S + 2


@pytest.mark.parametrize("steps", range(4))
async def test_a_turn_that_is_left_as_audio_comes_ends(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Its session waited for it for as long as the client stayed."""
    monkeypatch.setattr(module, "_QUIET_S", 60.0)
    turn, heard = AudioTurn(Client(transport=FakeTransport(speech=FakeSpeech())), {}), asyncio.Event()

    async def hear() -> None:
        async with aclosing(turn.updates()) as updates:
            async for _ in updates:
                heard.set()

    hearing = asyncio.ensure_future(hear())
    await turn.put(np.zeros(SAMPLE_RATE, np.float32))
    await heard.wait()
    await turn.put(np.zeros(SAMPLE_RATE, np.float32))
    for _ in range(steps):
        await asyncio.sleep(0)
    hearing.cancel()
    await asyncio.wait((hearing,), timeout=20)
    assert hearing.cancelled()


@pytest.mark.parametrize("steps", range(4))
async def test_who_leaves_as_there_is_room_for_audio_waits_no_more(steps: int) -> None:
    turn = AudioTurn(Client(transport=FakeTransport(speech=silent)), {})
    hearing = asyncio.ensure_future(hear(turn))
    await turn.put(np.zeros(SAMPLE_RATE, np.float32))
    await asyncio.sleep(0)  # the server has this
    await turn.put(more_than_is_held())
    putting = asyncio.ensure_future(turn.put(np.zeros(SAMPLE_RATE, np.float32)))
    for _ in range(2):
        await asyncio.sleep(0)
    hearing.cancel()
    while turn.full:
        await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    if putting.cancel():
        await asyncio.wait((putting,))
        assert putting.cancelled()
