"""How sessions end: nothing is silent, and nothing stays behind."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import LIMIT_S, Running, Serve, connect, fake_triton
from tests.gateway.realtime.conftest import Dial, Peer, pcm, transcription
from tests.gateway.realtime.test_access import bearer, status
from trimodal.client.errors import ConnectError
from trimodal.client.transports.fake import FakeSpeech, llm_outputs, scripted
from trimodal.gateway import server
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.realtime import outbox, protocol
from trimodal.gateway.realtime import session as sessions
from trimodal.gateway.realtime.hearing import turn
from trimodal.gateway.realtime.protocol import RealtimeProtocol
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings

COMPLETED = "conversation.item.input_audio_transcription.completed"
DEAD = "the model server did not answer"


def opened(peer: Peer) -> Peer:
    peer.send("session.update", session=transcription())
    peer.until("session.updated")
    return peer


def begun(running: Running, peer: Peer) -> dict[int, object]:
    """Sends a second of audio; the streams in Triton, of which there is one now."""
    streams: dict[int, object] = running.triton.functions["speech"].streams  # type: ignore[union-attr]
    peer.append(1.0)
    wait_until(lambda: streams, "the stream begins")
    return streams


class Draining:
    """A gateway of its own that is told to go down."""

    def __init__(self, drain_timeout_s: float, **models: object) -> None:
        triton = fake_triton(**models)
        settings = GatewaySettings(port=0, drain_timeout_s=drain_timeout_s)
        self._server = GatewayServer(settings, lambda address: triton)
        self.running = Running(self._server.listen(), triton, None)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when it is down."""
        self._server.stop()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


def test_sessions_are_told_when_the_gateway_goes_down(dial: Dial) -> None:
    gateway = Draining(30 * LIMIT_S)  # nobody waits for audio that may never come
    peers = [opened(dial(gateway.running, "intent=transcription")) for _ in range(3)]
    streams = begun(gateway.running, peers[0])
    gateway.stop()
    for peer in peers:
        assert peer.closed() == (1001, "the server is going down")
        assert peer.events[-1]["error"]["code"] == "server_shutdown"
    assert not streams


@pytest.mark.parametrize(("drain_s", "words", "finished"), [(30 * LIMIT_S, 40, True), (2.0, 10_000, False)])
def test_a_response_is_finished_before_but_not_longer_than_the_drain_lasts(
    dial: Dial, drain_s: float, words: int, finished: bool
) -> None:
    gateway = Draining(drain_s, llm=scripted("word " * words, step=0.02))
    peer = dial(gateway.running, "model=llm")
    content = [{"type": "input_text", "text": "hi"}]
    peer.ask({"type": "message", "role": "user", "content": content})
    peer.until("response.output_text.delta")
    gateway.stop()
    assert peer.closed()[0] == 1001
    done = [event["response"]["status"] for event in peer.events if event["type"] == "response.done"]
    assert ("completed" in done) == finished


def test_a_server_that_dies_while_it_hears(serve: Serve, dial: Dial) -> None:
    triton = fake_triton()
    running = serve(triton)
    peer = opened(dial(running, "intent=transcription"))
    begun(running, peer)
    triton.reachable = False
    peer.append()
    assert peer.closed() == (1011, DEAD)
    failed, error = peer.events[-2:]
    assert failed["type"] == "conversation.item.input_audio_transcription.failed"
    assert failed["error"]["code"] == error["error"]["code"] == "upstream_failed"


def test_no_server_in_vllms_dialect(serve: Serve, dial: Dial) -> None:
    def dies(request):  # type: ignore[no-untyped-def]
        raise ConnectError("no server at 10.0.0.7")

    peer = dial(serve(fake_triton(speech=dies)))
    peer.openai = False
    peer.send("session.update", model="speech")
    peer.send("input_audio_buffer.commit")
    peer.append(0.5, 16_000)
    error = peer.until("error")
    assert "no model server takes requests now" in error["error"]
    assert "10.0.0.7" not in json.dumps(peer.events)
    # Another server may be there the next time.
    peer.send("nonsense")
    assert peer.until("error")["code"] == "unknown_event"


async def silent(request):  # type: ignore[no-untyped-def]
    await asyncio.sleep(LIMIT_S)


def broken(request):  # type: ignore[no-untyped-def]
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("speech", "reason", "code"),
    [(silent, DEAD, "timeout"), (broken, "internal error", "internal_error")],
)
def test_silence_and_our_own_failure_are_told(
    serve: Serve, dial: Dial, speech: object, reason: str, code: str
) -> None:
    peer = opened(dial(serve(fake_triton(speech=speech), silence=0.5), "intent=transcription"))
    peer.append()
    assert peer.closed() == (1011, reason)
    assert peer.events[-1]["error"]["code"] == code


def test_a_server_that_stands_still_is_told_before_its_client_is_taken_for_gone(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket is not read then, nor its pongs: after 40 s it was closed like a dead client's."""
    monkeypatch.setattr(turn, "ANSWER_S", 4.0)
    for module in (protocol, server):
        monkeypatch.setattr(module, "PING_S", 1.0)  # what a client that is read has for its pong, too
    peer = opened(dial(serve(fake_triton(speech=silent)), "intent=transcription", ping_interval=None))
    for _ in range(10):
        peer.append(1.0)
    assert peer.closed() == (1011, DEAD)
    assert peer.events[-1]["error"]["code"] == "timeout"


def test_a_session_without_events_ends(serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "IDLE_S", 0.5)
    running = serve()
    peer = opened(dial(running, "intent=transcription"))
    streams = begun(running, peer)
    assert peer.closed()[0] == 1008
    assert peer.events[-1]["error"]["code"] == "session_idle"
    wait_until(lambda: not streams, "the stream ends")


def test_a_client_that_does_not_read_is_let_go_of(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_UNREAD_BYTES", 100_000)

    async def much(request):  # type: ignore[no-untyped-def]
        while True:
            yield llm_outputs("x" * 10_000)
            await asyncio.sleep(0.002)

    running = serve(fake_triton(llm=much))
    with connect(running.url) as plain:
        key = base64.b64encode(os.urandom(16)).decode()
        head = "GET /v1/realtime?model=llm HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
        head += f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        plain.sendall(head.encode())
        assert plain.recv(1_000).startswith(b"HTTP/1.1 101 ")
        content = [{"type": "input_text", "text": "hi"}]
        said = {"type": "message", "role": "user", "content": content}
        for event in ({"type": "conversation.item.create", "item": said}, {"type": "response.create"}):
            data = json.dumps(event).encode()
            size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
            plain.sendall(b"\x81" + size + bytes(4) + data)
        wait_until(lambda: running.triton.cancelled, "the generation ends")


def test_a_client_that_sends_too_fast_loses_nothing(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LIVE_BYTES_PER_S", 1)
    monkeypatch.setattr(sessions, "BURST_BYTES", 1)
    monkeypatch.setattr(sessions, "BYTES_PER_S", 100 * sessions.EVENT_BYTES)
    peer = opened(dial(serve(), "intent=transcription"))
    for _ in range(100):
        peer.send("input_audio_buffer.append", audio="AAAA" * 80)
    peer.send("input_audio_buffer.commit")
    usage = peer.until(COMPLETED)["usage"]
    assert usage["seconds"] == pytest.approx(100 * 120 / 24_000, abs=0.01)


def test_the_pace_lets_a_burst_through_and_then_its_rate() -> None:
    now = 0.0
    key = sessions.Pace(lambda: now)
    one, other = key.session(), key.session()
    live = sessions.LIVE_BYTES_PER_S
    assert one(live + sessions.BURST_BYTES) == 0.0
    assert one(3 * sessions.BYTES_PER_S) == 3.0
    assert other(live) == 0.0, "who speaks is not held up by another session of the key"
    assert other(1) == pytest.approx(3 + sessions.EVENT_BYTES / sessions.BYTES_PER_S), "of the least size"
    assert key.session()(live + sessions.BYTES_PER_S) > 4.0, "a new session has no new room"
    now = 3600.0
    assert one(live + sessions.BURST_BYTES) == 0.0, "never more than a burst"
    assert one(sessions.BYTES_PER_S) == 1.0
    for second in range(3601, 3700):
        now = second
        assert other(live) == 0.0
    for _ in range(6_000):  # a minute in chunks of 10 ms, which count as the least size
        now += 0.01
        assert other(855) == 0.0


def test_a_server_that_is_behind_holds_the_client_up(serve: Serve, dial: Dial) -> None:
    """Audio waits in the socket, not in the gateway, and all of it is heard."""
    speech = FakeSpeech(("one", 0.1, 0.2), ("two", 58.0, 59.0))
    taken = 0.0

    async def slow(request):  # type: ignore[no-untyped-def]
        nonlocal taken
        await asyncio.sleep(0.05)
        taken += sum(array.size for array in request.inputs.values()) / 16_000
        return speech(request)

    running = serve(fake_triton(speech=slow))
    peer = opened(dial(running, "intent=transcription"))
    for _ in range(60):
        peer.append(1.0)
    peer.send("input_audio_buffer.commit")
    assert peer.until(COMPLETED)["transcript"] == "one two"
    assert taken == pytest.approx(60.0, abs=0.1)
    largest = max(array.size for one in running.triton.requests for array in one.inputs.values())
    assert largest <= 16_000 * 8, "what waited at once"


@pytest.mark.usefixtures("_loud_is_speech")
def test_a_piece_of_many_turns_whose_client_has_left(serve: Serve, dial: Dial, file: Path) -> None:
    key = bearer(add_key(file, Key(name="one", max_streams=1)))
    speech = FakeSpeech(("one", 0.1, 0.2))

    async def slow(request):  # type: ignore[no-untyped-def]
        await asyncio.sleep(0.1)
        return speech(request)

    running = serve(fake_triton(speech=slow), keys=file)
    peer = dial(running, "intent=transcription", **key)
    turns = [base64.b64decode(pcm(seconds, level=level)) for seconds, level in ((7.0, 0.1), (1.0, 0.0))] * 6
    peer.send("input_audio_buffer.append", audio=base64.b64encode(b"".join(turns)).decode())
    peer.until("input_audio_buffer.speech_started")
    peer.socket.close()
    wait_until(lambda: status(dial, running, **key) == 101, "the session is over")
    assert not speech.streams


def test_a_client_that_left_before_its_socket_was_accepted(
    serve: Serve, dial: Dial, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session held a place of its key for five minutes, and was logged as accepted."""
    caplog.set_level("INFO", "trimodal")
    key = bearer(add_key(file, Key(name="one", max_streams=1)))
    running = serve(keys=file)
    with monkeypatch.context() as patch:
        whole = RealtimeProtocol.send

        async def late(self: RealtimeProtocol, message: Any) -> None:
            if message["type"] == "websocket.accept":
                self.abort()
                await asyncio.sleep(0.01)
            await whole(self, message)

        patch.setattr(RealtimeProtocol, "send", late)
        with pytest.raises((OSError, InvalidMessage)):
            dial(running, "model=llm", **key)
    wait_until(lambda: status(dial, running, **key) == 101, "the session is over", LIMIT_S)
    logged = {one.fields["status"] for one in caplog.records if hasattr(one, "fields")}
    assert 499 in logged
    assert 101 not in logged, "the last one goes on"


def test_streams_and_keys_are_free_however_it_ends(serve: Serve, dial: Dial) -> None:
    running = serve()
    streams = running.triton.functions["speech"].streams  # type: ignore[union-attr]
    generator = np.random.default_rng(7)
    for _ in range(12):
        peer = opened(dial(running, "intent=transcription"))
        for _ in range(int(generator.integers(1, 5))):
            peer.send("input_audio_buffer.append", audio=pcm(0.3))
        match int(generator.integers(0, 4)):
            case 0:
                peer.send("input_audio_buffer.commit")
                peer.until(COMPLETED)
            case 1:
                peer.send("input_audio_buffer.clear")
            case 2:
                with suppress(ConnectionClosed):
                    peer.socket.send("x" * (5 << 20))
        peer.socket.close()
    wait_until(lambda: not streams, "all streams end")


def test_a_connection_that_is_cut_off_leaves_nothing(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens sessions and cuts them off, hundreds a second, made the gateway hold all of some seconds."""
    monkeypatch.setattr(protocol, "_LINGER_S", 3600.0)
    running = serve()

    def held() -> int:
        gc.collect()
        return sum(type(one) is RealtimeProtocol for one in gc.get_objects())  # isinstance would ask each

    before = held()
    for _ in range(5):
        peer = opened(dial(running))
        streams = begun(running, peer)
        peer.socket.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda streams=streams: not streams, "the stream ends")
    wait_until(lambda: held() <= before, "the connections are forgotten")
