"""Who is let in at /v1/realtime, and for how long."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import Running, Serve
from tests.gateway.realtime.conftest import Dial, transcription
from tests.gateway.test_metrics import read
from trimodal.gateway.keys import Key, add_key, revoke_key
from trimodal.gateway.quota import Quota


def bearer(secret: str) -> dict[str, object]:
    return {"additional_headers": {"authorization": f"Bearer {secret}"}}


def offered(secret: str) -> dict[str, object]:
    protocols = ["realtime", f"openai-insecure-api-key.{secret}", "openai-beta.realtime-v1"]
    return {"subprotocols": [Subprotocol(one) for one in protocols]}


def status(dial: Dial, running: Running, query: str = "", **options: object) -> int:
    """101 where it is let in."""
    try:
        dial(running, query, **options).receive()
    except InvalidStatus as refused:
        return refused.response.status_code
    return 101


def test_keys_come_in_a_header_or_as_a_subprotocol(serve: Serve, dial: Dial, file: Path) -> None:
    secret = add_key(file, Key(name="one"))
    running = serve(keys=file)
    assert status(dial, running, **bearer(secret)) == 101
    peer = dial(running, **offered(secret))
    assert peer.socket.subprotocol == "realtime"
    assert status(dial, running) == 401
    assert status(dial, running, **bearer("tm-wrong")) == 401
    assert status(dial, running, **offered("tm-wrong")) == 401


def test_a_key_holds_for_its_models_only(serve: Serve, dial: Dial, file: Path) -> None:
    texts = add_key(file, Key(name="texts", models=("llm",)))
    speech = add_key(file, Key(name="speech", models=("speech",)))
    running = serve(keys=file)
    assert status(dial, running, "model=llm", **bearer(speech)) == 403
    peer = dial(running, "model=llm", **bearer(texts))
    peer.receive()
    peer.append()
    assert peer.receive()["error"]["code"] == "model_not_allowed"
    peer.send("session.update", model="speech")
    peer.openai = False
    assert peer.receive()["code"] == "model_not_allowed"
    peer = dial(running, "intent=transcription", **bearer(speech))
    peer.receive()
    peer.send("session.update", session={"type": "realtime"})
    assert peer.receive()["error"]["code"] == "model_not_allowed"


def test_unknown_models_are_refused_before_anything(serve: Serve, dial: Dial) -> None:
    assert status(dial, serve(), "model=gpt-realtime") == 404


def test_a_revoked_key_ends_its_session_(serve: Serve, dial: Dial, file: Path) -> None:
    secret = add_key(file, Key(name="one"))
    running = serve(keys=file)
    peer = dial(running, "intent=transcription", **bearer(secret))
    peer.send("session.update", session=transcription())
    peer.append(1.0)
    streams = running.triton.functions["speech"].streams  # type: ignore[union-attr]
    wait_until(lambda: streams, "the stream begins")
    revoke_key(file, "one")
    assert peer.closed() == (1008, "this API key was revoked")
    assert peer.events[-1]["error"]["code"] == "invalid_api_key"
    wait_until(lambda: not streams, "the stream ends")


def test_a_response_counts_as_a_request_of_its_key(serve: Serve, dial: Dial, file: Path) -> None:
    secret = add_key(file, Key(name="one", requests_per_minute=2, max_streams=1))
    peer = dial(serve(keys=file), "model=llm", **bearer(secret))
    content = [{"type": "input_text", "text": "hi"}]
    peer.ask({"type": "message", "role": "user", "content": content})
    assert peer.until("response.done")["response"]["status"] == "completed"
    peer.send("response.create")
    response = peer.until("response.done")["response"]
    assert response["status_details"]["error"]["code"] == "rate_limit_exceeded"


def test_live_audio_and_pictures_are_charged_while_they_come(serve: Serve, dial: Dial, file: Path) -> None:
    key = add_key(file, Key(name="one", audio_seconds_per_minute=1, images_per_minute=1))
    peer = dial(serve(keys=file), "model=llm", **bearer(key))
    peer.append(1.2)
    peer.append(0.1)
    assert peer.until("error")["error"]["code"] == "rate_limit_exceeded"
    picture = [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]
    for expected in ("conversation.item.added", "error"):
        peer.send("conversation.item.create", item={"type": "message", "role": "user", "content": picture})
        peer.until(expected)


def test_what_a_session_uses_is_counted_by_its_tenant(serve: Serve, dial: Dial, file: Path) -> None:
    """No metric had the tokens, pictures and audio of sessions."""
    key = add_key(file, Key(name="one", tenant="acme"))
    operator = add_key(file, Key(name="prometheus", operator=True))
    running = serve(keys=file)
    peer = dial(running, "model=llm", **bearer(key))
    audio = {"input": {"turn_detection": None}}
    peer.send("session.update", session={"type": "realtime", "audio": audio})
    peer.append(1.2)
    text = {"type": "input_text", "text": "what is it?"}
    picture = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    peer.ask({"type": "message", "role": "user", "content": [text, picture]})
    tokens = peer.until("response.done")["response"]["usage"]["total_tokens"]
    wait_until(lambda: read(running.url, operator)["tokens_total", "acme"] == tokens, "they are counted")
    found = read(running.url, operator)
    assert found["images_total", "acme"] == 1
    assert found["audio_seconds_total", "acme"] == pytest.approx(1.2, abs=0.02), "while it goes on"


def test_who_asks_on_and_on_beyond_its_streams_hears_less_often(
    serve: Serve, dial: Dial, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    monkeypatch.setattr(Quota, "refusal_wait_s", lambda quota, key: held.append(key.name) or 0.0)
    secret = add_key(file, Key(name="one", max_streams=1))
    running = serve(keys=file)
    assert status(dial, running, **bearer(secret)) == 101
    assert status(dial, running, **bearer(secret)) == 429
    assert held == ["one"]


@pytest.mark.parametrize(
    ("origin", "settings", "expected"),
    [
        ("{url}", {}, 101),
        ("http://evil.example", {}, 403),
        ("null", {}, 403),
        ("http://127.0.0.1:1", {}, 403),  # another server on this machine
        ("http://evil.example", {"cors_origins": ("https://good.example",)}, 403),
        ("https://good.example", {"cors_origins": ("https://good.example",)}, 101),
        ("https://any.example", {"cors_origins": ("*",)}, 101),
    ],
)
def test_pages_of_other_origins_are_refused(
    serve: Serve, dial: Dial, origin: str, settings: dict[str, object], expected: int
) -> None:
    running = serve(**settings)
    assert status(dial, running, origin=Origin(origin.format(url=running.url))) == expected


def test_a_name_that_resolves_here_is_another_origin(serve: Serve, dial: Dial, tmp_path: Path) -> None:
    """DNS rebinding: the page and its host agree, but nobody has shown a key."""

    def page(running: Running) -> int:
        host, port = running.url.removeprefix("http://").split(":")
        connected = socket.create_connection((host, int(port)))
        evil = Running(f"http://evil.example:{port}", running.triton, running.clients)
        return status(dial, evil, sock=connected, origin=Origin(evil.url))

    assert page(serve()) == 403
    assert page(serve(without_keys=True)) == 403
    assert page(serve(allowed_hosts=("evil.example",))) == 101


def test_every_session_has_a_line_in_the_log(
    serve: Serve, dial: Dial, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trimodal")
    secret = add_key(file, Key(name="one", tenant="acme"))
    running = serve(keys=file)
    peer = dial(
        running, "model=llm", additional_headers={"authorization": f"Bearer {secret}", "x-request-id": "a-1"}
    )
    peer.receive()
    assert not [one for one in caplog.records if hasattr(one, "fields")], "it goes on"
    peer.socket.close()
    assert status(dial, running) == 401
    wait_until(lambda: sum(hasattr(one, "fields") for one in caplog.records) == 2, "the lines")
    lines = {one.fields["status"]: one for one in caplog.records if hasattr(one, "fields")}
    assert lines[101].getMessage() == lines[401].getMessage() == "WebSocket /v1/realtime"
    assert lines[101].fields.items() >= {"model": "llm", "tenant": "acme"}.items()
    assert (lines[101].request_id, lines[401].fields["error"]) == ("a-1", "no_api_key")
