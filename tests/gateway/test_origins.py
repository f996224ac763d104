"""Pages of other sites, at a gateway that asks for no key."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import CHAT, Serve
from trimodal.gateway.keys import Key, add_key

CHAT_BODY = {"model": "llm", "messages": CHAT}


def post(url: str, key: str = "", **headers: str) -> tuple[int, str | None]:
    """Status and error code of a chat that comes with these headers."""
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    answer = httpx.post(f"{url}/v1/chat/completions", json=CHAT_BODY, headers=headers)
    return answer.status_code, answer.json().get("error", {}).get("code")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "[::1]:8080", "192.168.1.5", "localhost", "gateway:8080", socket.gethostname()]
    + ["gateway.default.svc.cluster.local", "box.local:80", "API.Example.com"],
)
def test_names_that_no_page_elsewhere_can_have(serve: Serve, host: str) -> None:
    assert post(serve(allowed_hosts=("api.example.com",)).url, host=host) == (200, None)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "a.b.", "[::1"]
)
def test_dns_rebinding(serve: Serve, file: Path, host: str) -> None:
    """The page's own name resolves to this machine, so to its browser nothing is foreign."""
    served = serve(without_keys=True)
    rebound = {"host": host, "origin": f"http://{host}"}
    assert post(served.url, **rebound) == (403, "host_not_allowed")
    for path in ("v1/models", "ready", "metrics", "page/", "health"):
        assert httpx.get(f"{served.url}/{path}", headers=rebound).status_code == 403
    assert served.triton.requests == []
    assert post(serve(allowed_hosts=("*",)).url, host=host)[0] == 200
    # No page sends a key that it does not have.
    key = add_key(file, Key(name="a"))
    assert post(serve(keys=file).url, key, host="evil.example")[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=a", "application/json"])
def test_posts_of_other_pages(serve: Serve, kind: str) -> None:
    """Plain text and forms are posted across origins without a preflight."""
    served = serve(cors_origins=("https://good.example",))
    for origin, status in (("https://evil.example", 403), ("null", 403), ("https://good.example", 400)):
        headers = {"origin": origin, "content-type": kind}
        answer = httpx.post(f"{served.url}/v1/audio/transcriptions", content=b"--a--", headers=headers)
        assert answer.status_code == status
    assert served.triton.requests == []
    assert httpx.get(f"{served.url}/v1/models", headers={"origin": served.url}).is_success
