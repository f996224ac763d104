"""What is served at / and /page/: types, policy, size, nothing from elsewhere. Needs no browser."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import Serve
from trimodal.gateway.page import serving
from trimodal.gateway.page.serving import TYPES, read_bundle, read_samples

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; media-src blob:; worker-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def test_every_file_is_served_with_its_type_and_the_policy(serve: Serve) -> None:
    url = serve().url
    with httpx.Client() as client:
        for path, content in (read_bundle() | read_samples()).items():
            answer = client.get(f"{url}/page/{path}")
            assert answer.content == content
            assert answer.headers["content-type"] == TYPES[path[path.rindex(".") :]]
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
        page = client.get(f"{url}/")
        assert page.content == read_bundle()["index.html"]
        assert page.headers["content-security-policy"] == POLICY
        assert client.head(f"{url}/").status_code == 200


def test_a_file_that_the_browser_has_is_not_sent_again(serve: Serve) -> None:
    url = f"{serve().url}/page/page.css"
    first = httpx.get(url)
    again = httpx.get(url, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.get(url, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["__init__.py", "../app.py", "%2e%2e/app.py", "scripts", "", "no.js"])
def test_nothing_else_can_be_asked_for(serve: Serve, path: str) -> None:
    answer = httpx.get(f"{serve().url}/page/{path}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_the_page_needs_no_key_and_is_no_part_of_the_api(serve: Serve, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys.write_text("")
    url = serve(keys=keys).url
    assert httpx.get(f"{url}/v1/models").status_code == 401
    assert httpx.get(f"{url}/").status_code == 200
    assert not [path for path in httpx.get(f"{url}/openapi.json").json()["paths"] if "page" in path]


def test_it_is_small_and_loads_nothing_from_elsewhere() -> None:
    bundle = read_bundle()
    assert sum(map(len, bundle.values())) < 200_000
    for path, content in bundle.items():
        text = content.decode()
        addresses = set(re.findall(r"(?:https?|wss?):?//[^\s\"'`]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path  # the name of SVG, not an address
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)


def test_the_samples_that_the_page_suggests_are_there() -> None:
    suggested = re.findall(rb'data-(?:picture|recording)="([^"]+)"', read_bundle()["index.html"])
    assert {f"samples/{name.decode()}" for name in suggested} == set(read_samples())


def test_without_samples_the_gateway_serves_all_the_same(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of the gateway may have the package alone."""
    monkeypatch.setattr(serving, "data_directory", lambda: tmp_path)
    url = serve().url
    assert httpx.get(f"{url}/").status_code == 200
    assert httpx.get(f"{url}/page/samples/koala.jpg").status_code == 404


def test_every_file_is_used() -> None:
    everything = b"\n".join(read_bundle().values()).decode()
    for path in read_bundle():
        if path != "index.html":
            assert path.rpartition("/")[2] in everything, path
