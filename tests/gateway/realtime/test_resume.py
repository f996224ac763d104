"""A client that was cut off comes back: no word is lost and none comes twice."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tests.gateway.conftest import LIMIT_S, Running, Serve, fake_triton, wait_until
from tests.gateway.realtime.conftest import Dial, Event, Peer, pcm, transcription
from trimodal.client.transports.fake import FakeSpeech
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.quota import Quota
from trimodal.gateway.realtime import session as sessions
from trimodal.gateway.realtime.openai.config import TENTATIVE

COMPLETED = "conversation.item.input_audio_transcription.completed"


def cut(peer: Peer) -> None:
    """The network goes: no close frame."""
    peer.socket.socket.shutdown(socket.SHUT_RDWR)
    peer.socket.socket.close()


def streams(running: Running) -> dict[int, object]:
    return running.triton.functions["speech"].streams  # type: ignore[union-attr,return-value]


def opened(running: Running, dial: Dial, **options: object) -> tuple[Peer, str]:
    peer = dial(running, "intent=transcription", **options)
    identity = peer.receive()["session"]["id"]
    peer.send("session.update", session=transcription())
    peer.until("session.updated")
    return peer, identity


def refusal(dial: Dial, running: Running, query: str, **options: object) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught:
        dial(running, query, **options)
    return caught.value.response.status_code, caught.value.response.body.decode()


@pytest.mark.parametrize("include", [[], [TENTATIVE]])
@pytest.mark.parametrize("seed", range(4))
def test_no_word_is_lost_and_none_comes_twice(
    serve: Serve, dial: Dial, seed: int, include: list[str]
) -> None:
    """The client does what the documentation says, and is cut off wherever it happens to be."""
    words = [(f"w{number}", number * 0.1, number * 0.1 + 0.08) for number in range(100)]
    running = serve(fake_triton(speech=FakeSpeech(*words)))
    chance = random.Random(seed)
    todo: list[Event] = [
        {"type": "session.update", "session": {**transcription(), "include": include}},
        *({"type": "input_audio_buffer.append", "audio": pcm(0.1)} for _ in range(100)),
        {"type": "input_audio_buffer.commit"},
    ]
    peer = dial(running, "intent=transcription")
    peer.openai = not include
    identity = peer.receive()["session"]["id"]
    seen: list[Event] = []
    sent = cuts = 0
    while not seen or seen[-1]["type"] != COMPLETED:
        if sent < len(todo):
            peer.send(**{"kind" if name == "type" else name: value for name, value in todo[sent].items()})
            sent += 1
        if chance.random() < 0.2 or sent == len(todo):
            with suppress(TimeoutError):  # nothing is there yet
                seen.append(peer.receive(0.01 if sent < len(todo) else LIMIT_S))
        if chance.random() < 0.08 and cuts < 8:
            cut(peer)
            cuts += 1
            after = seen[-1]["event_id"] if seen else "event_1"
            peer = dial(running, f"session={identity}&after={after}")
            peer.openai = not include
            resumed = peer.receive()
            assert (resumed["type"], resumed["id"]) == ("session.resumed", identity)
            assert resumed["received"] <= sent
            sent = resumed["received"]
    assert cuts
    assert [event["event_id"] for event in seen] == [f"event_{n}" for n in range(2, len(seen) + 2)]
    guesses = [event["text"] for event in seen if event["type"].endswith(".tentative")]
    assert guesses[-1:] == ([""] if include else [])
    assert any(guesses) == bool(include)
    deltas = "".join(event["delta"] for event in seen if event["type"].endswith(".delta"))
    assert deltas == seen[-1]["transcript"] == " ".join(word for word, _, _ in words)
    assert not streams(running)


def test_the_stream_is_kept_open_meanwhile(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer, identity = opened(running, dial)
    peer.append(1.0)
    wait_until(lambda: streams(running), "the stream begins")
    (stream,) = streams(running)
    cut(peer)
    peer = dial(running, f"session={identity}&after=2")
    assert peer.receive()["received"] == 2
    peer.append(2.2)
    peer.send("input_audio_buffer.commit")
    assert peer.until(COMPLETED)["transcript"] == "what is this? Well."
    assert {request.parameters["sequence_id"] for request in running.triton.requests} == {stream}


def test_a_client_that_stays_away_loses_it(serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "RESUME_S", 0.5)
    running = serve()
    peer, identity = opened(running, dial)
    peer.append(1.0)
    wait_until(lambda: streams(running), "the stream begins")
    cut(peer)
    wait_until(lambda: not streams(running), "the stream ends")
    status, body = refusal(dial, running, f"session={identity}")
    assert (status, "session_not_found" in body) == (404, True)


def test_a_client_that_leaves_ends_it_at_once(serve: Serve, dial: Dial) -> None:
    running = serve()
    for code in (1000, 1001):
        peer, identity = opened(running, dial)
        peer.append(1.0)
        wait_until(lambda: streams(running), "the stream begins")
        peer.socket.close(code)
        wait_until(lambda: not streams(running), "the stream ends")
        assert refusal(dial, running, f"session={identity}")[0] == 404


def test_the_later_connection_has_it(serve: Serve, dial: Dial) -> None:
    """The network may be gone long before the gateway learns of it."""
    running = serve()
    first, identity = opened(running, dial)
    second = dial(running, f"session={identity}&after=event_2")
    assert second.receive()["type"] == "session.resumed"
    assert first.closed() == (1008, "the session goes on over another connection")
    second.append(3.2)
    second.send("input_audio_buffer.commit")
    second.until(COMPLETED)


def test_only_the_same_key_finds_it(serve: Serve, dial: Dial, file: Path) -> None:
    mine, other = (add_key(file, Key(name=name)) for name in ("mine", "other"))
    running = serve(keys=file)

    def key(secret: str) -> dict[str, object]:
        return {"additional_headers": {"authorization": f"Bearer {secret}"}}

    peer, identity = opened(running, dial, **key(mine))
    cut(peer)
    assert refusal(dial, running, f"session={identity}", **key(other))[0] == 404
    assert refusal(dial, running, f"session={identity}")[0] == 401
    assert dial(running, f"session={identity}&after=1", **key(mine)).receive()["type"] == "session.resumed"


def test_a_key_holds_its_stream_until_the_session_is_over(
    serve: Serve, dial: Dial, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    monkeypatch.setattr(Quota, "refusal_wait_s", lambda quota, key: held.append(key.name) or 0.0)
    monkeypatch.setattr(sessions, "RESUME_S", 1.0)
    header = {"authorization": f"Bearer {add_key(file, Key(name='one', max_streams=1))}"}
    running = serve(keys=file)
    peer, _ = opened(running, dial, additional_headers=header)
    cut(peer)
    assert refusal(dial, running, "", additional_headers=header)[0] == 429
    assert held == ["one"], "who asks on and on hears less often"

    def free() -> bool:
        try:
            return bool(dial(running, "", additional_headers=header).receive())
        except InvalidStatus:
            return False

    wait_until(free, "the stream is the key's again")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("session=sess_no", 404, "session_not_found"),
        ("session={}&after=3", 404, "events_not_kept"),  # none has that number yet
        ("session={}&after=-1", 400, "after"),
        ("session={}&after=event_", 400, "after"),
    ],
)
def test_what_cannot_be_resumed(serve: Serve, dial: Dial, query: str, status: int, code: str) -> None:
    running = serve()
    _, identity = opened(running, dial)
    refused, body = refusal(dial, running, query.format(identity))
    assert (refused, code in body) == (status, True)
