"""Frames that are no events: each is answered by an error, and the session goes on."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from tests.gateway.conftest import LIMIT_S, Serve
from tests.gateway.realtime.conftest import Dial, pcm, transcription
from trimodal.gateway.realtime.protocol import MAX_FRAME_BYTES, SPARE_FRAMES, RealtimeProtocol
from trimodal.llm.structured.reading import MAX_NESTING

APPEND = "input_audio_buffer.append"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("[]", "invalid_json"),
        ("null", "invalid_json"),
        ('"text"', "invalid_json"),
        ("[" * 15_000, "invalid_json"),
        ('{"a":' * 15_000, "invalid_json"),
        ('{"type": "session.update", "session": [' + "0," * 60_000 + "0]}", "too_many_values"),
        ('{"type": ' + "9" * 100_000 + "}", "invalid_json"),
        ("{}", "missing_required_parameter"),
        ('{"type": 7}', "missing_required_parameter"),
        ('{"type": "no.such.event"}', "unknown_event"),
        (json.dumps({"type": "x" * 100_000}), "unknown_event"),
        (json.dumps({"type": APPEND}), "invalid_audio"),
        (json.dumps({"type": APPEND, "audio": 7}), "invalid_audio"),
        (json.dumps({"type": APPEND, "audio": ""}), "invalid_audio"),
        (json.dumps({"type": APPEND, "audio": "§"}), "invalid_audio"),
        (json.dumps({"type": APPEND, "audio": "AAA"}), "invalid_audio"),
        (json.dumps({"type": APPEND, "audio": "AAAA AAAA"}), "invalid_audio"),
        (json.dumps({"type": APPEND, "audio": "AAAA"}), "invalid_audio"),
        (json.dumps({"type": APPEND, "audio": "\ud800"}), "invalid_audio"),
        ('{"type": "session.update", "session": {"type": "transcription", "audio": ' + '{"input": ' * 60
         + "1" + "}" * 62, "unknown_parameter"),
        ('{"type": "session.update", "session": {"type": "transcription", "\\ud800": 1}}', None),
        # Ended the session as a failure of the gateway's own, where Python reads it.
        *(
            ('{"type": "session.update", "session": {"type": "transcription"' + ', "a": {"b": 1' * levels
             + "}" * (levels + 2), "invalid_json")
            for levels in (67, 900, 2_000)
        ),
    ],
)  # fmt: skip
def test_an_error_and_an_open_session(serve: Serve, dial: Dial, frame: str, code: str) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.receive()
    peer.socket.send(frame)
    error = peer.receive()["error"]
    assert error["code"] == code
    assert len(error["message"]) < 1_000
    peer.send("session.update", session=transcription())
    peer.until("session.updated")
    peer.append(3.2)
    peer.send("input_audio_buffer.commit")
    peer.until("conversation.item.input_audio_transcription.completed")


def test_the_deepest_schema_of_a_tool_is_read(serve: Serve, dial: Dial) -> None:
    parameters: dict[str, object] = {"type": "object"}
    for _ in range((MAX_NESTING - 1) // 2):
        parameters = {"type": "object", "properties": {"a": parameters}}
    peer = dial(serve(), "model=llm")
    tool = {"type": "function", "name": "look", "parameters": parameters}
    peer.send("session.update", session={"type": "realtime", "tools": [tool]})
    assert peer.until("session.updated")["session"]["tools"][0]["parameters"] == parameters


def test_the_cause_is_told_where_it_has_an_id(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.receive()
    for identity, told in (("mine", "mine"), (7, None), (None, None)):
        peer.send("no.such.event", event_id=identity)
        assert peer.receive()["error"]["event_id"] == told


PART = "A" * (MAX_FRAME_BYTES // 4)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (json.dumps({"type": APPEND, "audio": "A" * MAX_FRAME_BYTES}), 1009),
        ([PART] * 5, 1009),
        (b"\xff\xfe", 1007),
        (bytearray(1_000_000), 1003),
    ],
    ids=["too large", "grows by fragments", "no UTF-8", "binary"],
)
def test_a_message_that_closes_the_socket(
    serve: Serve, dial: Dial, message: str | bytes | bytearray | list[str], code: int
) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.receive()
    with suppress(ConnectionClosed):
        peer.socket.send(message, text=not isinstance(message, bytearray))
    assert peer.closed()[0] == code


def test_compression_is_not_spoken(serve: Serve, dial: Dial) -> None:
    """A few bytes could stand for megabytes."""
    assert dial(serve(), compression="deflate").socket.protocol.extensions == []


def test_the_largest_frame_is_taken(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.send("session.update", session=transcription())
    peer.append(60.0)
    assert len(pcm(60.0)) > MAX_FRAME_BYTES * 0.9
    peer.send("input_audio_buffer.commit")
    completed = peer.until("conversation.item.input_audio_transcription.completed")
    assert completed["usage"]["seconds"] == pytest.approx(60.0, abs=0.01)


@pytest.mark.parametrize("kind", [Opcode.PING, Opcode.PONG, Opcode.CONT])
def test_frames_that_end_no_message_are_bounded(serve: Serve, dial: Dial, kind: Opcode) -> None:
    """One connection stopped everybody for 8 s, and what was kept of it grew for ever."""
    peer = dial(serve(), "intent=transcription")
    peer.receive()
    first = Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True)
    frame = Frame(kind, b"", fin=kind is not Opcode.CONT).serialize(mask=True)
    raw = peer.socket.socket
    with suppress(OSError):
        raw.sendall((first if kind is Opcode.CONT else b"") + frame * (20 * SPARE_FRAMES))
    assert peer.closed() == (1008, "too many frames that end no message")


def test_behind_a_ping_too_many_nothing_is_parsed(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 connections with a million pings each made other keys' first texts wait 3 times as long."""
    parsed: list[RealtimeProtocol] = []
    whole = RealtimeProtocol.handle_ping
    monkeypatch.setattr(RealtimeProtocol, "handle_ping", lambda self: (parsed.append(self), whole(self)))
    peer = dial(serve(), "intent=transcription")
    peer.receive()
    with suppress(OSError):
        peer.socket.socket.sendall(Frame(Opcode.PING, b"").serialize(mask=True) * 100_000)
    assert peer.closed() == (1008, "too many frames that end no message")
    assert 64 < len(parsed) < 150


def test_some_pings_and_parts_of_messages_change_nothing(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.receive()
    for _ in range(50):
        assert peer.socket.ping().wait(LIMIT_S)
    peer.socket.send([part for part in json.dumps({"type": "no.such.event"})])
    assert peer.receive()["error"]["code"] == "unknown_event"
    for _ in range(100):  # many that come at once are handled one after the other
        peer.socket.send("{}")
    assert [peer.receive()["error"]["code"] for _ in range(100)] == ["missing_required_parameter"] * 100


class _Wire(asyncio.Transport):
    """A connection of which it is noted how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.ended = b"", ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "aborted"

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest.mark.parametrize(
    "frames",
    [
        Frame(Opcode.PING, b"").serialize(mask=True) * (2 * SPARE_FRAMES),
        b"\xff" * 1_000,
        Frame(Opcode.BINARY, b"x").serialize(mask=True),
    ],
    ids=["pings", "no frames", "binary"],
)
@pytest.mark.parametrize("lost", [True, False], ids=["lost", "not lost yet"])
@pytest.mark.parametrize("refused", [False, True], ids=["accepted", "refused"])
async def test_frames_that_come_before_the_socket_is_answered(
    frames: bytes, refused: bool, lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of a flood's connections that was refused left a traceback of 50 lines, which took longest."""
    accepting = asyncio.Event()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await accepting.wait()
        if refused:
            await send({"type": "websocket.http.response.start", "status": 429, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"{}"})
        else:
            await send({"type": "websocket.accept"})

    wire, state = _Wire(), ServerState()
    protocol = RealtimeProtocol(uvicorn.Config(late, lifespan="off", log_config=None), state, {})
    protocol.connection_made(wire)
    protocol.data_received(
        b"GET /v1/realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    await asyncio.sleep(0)
    assert not wire.ended
    protocol.data_received(frames)
    assert wire.ended == "aborted"
    if lost:
        protocol.connection_lost(None)
    accepting.set()
    await asyncio.gather(*state.tasks)
    assert b"101" not in wire.written
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
