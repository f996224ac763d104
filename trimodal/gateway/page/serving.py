"""Serves the files of the page: read once, under a policy that lets nothing from elsewhere in.

The page is a client like any other: it calls /v1 and /ready, and has no way in of its own.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response

from trimodal.gateway.errors import ApiError
from trimodal.paths import data_directory

FOLDER = Path(__file__).parent
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
    ".wav": "audio/wav",
}
# Of samples/: what the page suggests to ask about.
SAMPLES = ("photos/koala.jpg", "speech/austen-2-young-man.wav")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; media-src blob:; worker-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # Asked for again each time, answered with 304: a page of one version never runs scripts of another.
    "cache-control": "no-cache",
}


def add_page(app: FastAPI) -> None:
    """The page at /, and what it loads at /page/."""
    files = read_bundle() | read_samples()

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(request: Request) -> Response:
        return _answer(request, "index.html", files["index.html"])

    @app.api_route("/page/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def part(request: Request, path: str) -> Response:
        if path not in files:
            raise ApiError(404, f"there is no {request.url.path} here")
        return _answer(request, path, files[path])


def read_bundle() -> dict[str, bytes]:
    """Contents by path inside this folder; nothing else can be asked for."""
    found = (file for file in sorted(FOLDER.rglob("*")) if file.suffix in TYPES)
    return {file.relative_to(FOLDER).as_posix(): file.read_bytes() for file in found}


def read_samples() -> dict[str, bytes]:
    """Contents by path under /page/; what this installation lacks is left out, and the page says so."""
    files = (data_directory() / "samples" / name for name in SAMPLES)
    return {f"samples/{file.name}": file.read_bytes() for file in files if file.is_file()}


def _answer(request: Request, path: str, content: bytes) -> Response:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**HEADERS, "etag": tag, "content-type": TYPES[Path(path).suffix]}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)
