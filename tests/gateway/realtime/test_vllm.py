"""vLLM's dialect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import Serve
from tests.gateway.realtime.conftest import WORDS, Dial, Peer, pcm
from trimodal.client.client import Client
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import FakeSpeech, FakeTransport
from trimodal.gateway.access import Caller
from trimodal.gateway.keys import ANYBODY
from trimodal.gateway.realtime.outbox import Outbox
from trimodal.gateway.realtime.vllm import VllmDialect


def opened(peer: Peer) -> Peer:
    peer.openai = False
    created = peer.receive()
    assert created["type"] == "session.created"
    assert created["id"].startswith("sess_")
    assert isinstance(created["created"], int)
    peer.send("session.update", model="speech")
    return peer


def refused(peer: Peer) -> str:
    event = peer.receive()
    assert event["type"] == "error"
    assert isinstance(event["error"], str)
    return str(event["code"])


def test_words_come_while_audio_does_and_final_ends_it(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = opened(dial(running))
    peer.send("input_audio_buffer.commit")
    for _ in range(16):
        peer.append(0.1, 16_000)
    peer.until("transcription.delta")
    for _ in range(16):
        peer.append(0.1, 16_000)
    peer.send("input_audio_buffer.commit", final=True)
    done = peer.until("transcription.done")
    assert done["text"] == peer.deltas() == WORDS
    assert done["usage"] is None
    assert done["seconds"] == pytest.approx(3.2)
    assert not running.triton.functions["speech"].streams  # type: ignore[union-attr]


def test_audio_may_come_before_the_commit_and_another_turn_after_it(serve: Serve, dial: Dial) -> None:
    peer = opened(dial(serve()))
    for _ in range(2):
        peer.append(3.2, 16_000)
        peer.send("input_audio_buffer.commit")
        peer.send("input_audio_buffer.commit")  # while it runs: nothing, as in vLLM
        peer.send("input_audio_buffer.commit", final=True)
    assert peer.until("transcription.done")["text"] == WORDS
    assert peer.until("transcription.done")["text"] == WORDS


def test_final_may_come_first(serve: Serve, dial: Dial) -> None:
    peer = opened(dial(serve()))
    peer.append(3.2, 16_000)
    peer.send("input_audio_buffer.commit", final=True)
    peer.send("input_audio_buffer.commit")
    assert peer.until("transcription.done")["text"] == WORDS


def test_errors_are_texts_and_leave_the_session_open(serve: Serve, dial: Dial) -> None:
    peer = dial(serve())
    peer.openai = False
    peer.receive()
    peer.send("session.update", model="other")
    assert refused(peer) == "model_not_found"
    peer.send("input_audio_buffer.commit")
    assert refused(peer) == "model_not_validated"
    peer.send("input_audio_buffer.append", audio="!")
    assert refused(peer) == "invalid_audio"
    peer.send("input_audio_buffer.append", audio="AAAA")  # three bytes
    assert refused(peer) == "invalid_audio"
    peer.send("input_audio_buffer.clear")
    assert refused(peer) == "unknown_event"
    peer.socket.send("{")
    assert refused(peer) == "invalid_json"
    peer.send("session.update", model="whisper-1")  # OpenAI's name of it
    peer.send("input_audio_buffer.commit", final=1)
    assert refused(peer) == "processing_error"
    peer.send("input_audio_buffer.commit")
    peer.append(3.2, 16_000)
    peer.send("input_audio_buffer.commit", final=True)
    assert peer.until("transcription.done")["text"] == WORDS


def test_audio_that_nobody_commits_is_refused_in_the_end(serve: Serve, dial: Dial) -> None:
    peer = opened(dial(serve()))
    for _ in range(4):
        peer.append(3.0, 16_000)
    assert refused(peer) == "buffer_full"


def test_leaving_in_the_middle_frees_the_stream(serve: Serve, dial: Dial) -> None:
    running = serve()
    streams = running.triton.functions["speech"].streams  # type: ignore[union-attr]
    peer = opened(dial(running))
    peer.send("input_audio_buffer.commit")
    peer.append(1.0, 16_000)
    wait_until(lambda: streams, "the stream begins")
    peer.socket.close()
    wait_until(lambda: not streams, "the stream ends")


def test_the_last_words_of_a_muted_microphone_come_without_more_audio(serve: Serve, dial: Dial) -> None:
    peer = opened(dial(serve()))
    peer.send("input_audio_buffer.commit")
    for _ in range(29):  # "Well." ends with the last sample
        peer.append(0.1, 16_000)
    while peer.deltas() != WORDS:
        peer.receive()
    peer.append(0.1, 16_000)  # and it goes on
    peer.send("input_audio_buffer.commit", final=True)
    assert peer.until("transcription.done")["text"] == WORDS


class LastWordsLate(FakeSpeech):
    """Answers the end of a stream when it may."""

    def __init__(self, *words: tuple[str, float, float]) -> None:
        super().__init__(*words)
        self.may = asyncio.Event()

    def __call__(self, request: Request) -> Any:
        outputs = super().__call__(request)
        return self._late(outputs) if request.parameters["sequence_end"] else outputs

    async def _late(self, outputs: Any) -> Any:
        await self.may.wait()
        return outputs


@pytest.mark.parametrize("left", [False, True])
async def test_words_of_a_turn_that_is_over_are_to_come_though_the_next_was_begun(left: bool) -> None:
    """A drain ended the session without them."""
    speech, outbox = LastWordsLate(("hello", 0.1, 0.3)), Outbox()
    client = Client(transport=FakeTransport(speech=speech))
    dialect = VllmDialect(client, Caller(ANYBODY, "one"), outbox)
    await dialect.handle({"type": "session.update", "model": "speech"})
    await dialect.handle({"type": "input_audio_buffer.append", "audio": pcm(1.0, 16_000)})
    for final in (False, True, False):
        await dialect.handle({"type": "input_audio_buffer.commit", "final": final})
    assert dialect.busy
    if not left:
        speech.may.set()
        async for line in outbox.lines():
            if '"transcription.done"' in line:
                break
        await asyncio.sleep(0)
        assert not dialect.busy, "the turn that goes on is not waited for"
    await dialect.aclose()
    await asyncio.sleep(0)
    assert not dialect.busy
    assert not speech.streams
