"""Keeps pages of other sites away from a gateway that lets everybody in: the names and origins it answers to.

A page anywhere may have its own name resolved to this machine (DNS rebinding): to the browser the gateway is
then that page's own server. And without a preflight a page may post forms and plain text to any address.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from trimodal.gateway.access import request_id
from trimodal.gateway.answering import refuse
from trimodal.gateway.errors import ApiError
from trimodal.gateway.settings import GatewaySettings
from trimodal.settings import shorten

# Ends of names that no public server gives out.
_PRIVATE = (".localhost", ".local", ".internal", ".home.arpa", ".svc", ".cluster.local")


class OriginCheck:
    """ASGI middleware: refuses browsers' pages of other origins, and without keys names that are not ours."""

    def __init__(self, app: ASGIApp, settings: GatewaySettings) -> None:
        self._app = app
        self._with_keys = settings.keys is not None
        self._origins = frozenset(settings.cors_origins)
        named = (urlsplit(origin).hostname for origin in settings.cors_origins)
        self._hosts = {*settings.allowed_hosts, *filter(None, named), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            connection = HTTPConnection(scope)
            try:
                self._check(connection, is_socket=scope["type"] == "websocket")
            except ApiError as error:
                identity = request_id(connection)
                if scope["type"] == "http":
                    await refuse(send, error, identity, close=True)
                else:
                    answer = JSONResponse(error.body, error.status, {"x-request-id": identity})
                    await WebSocket(scope, receive, send).send_denial_response(answer)
                return
        await self._app(scope, receive, send)

    def _check(self, connection: HTTPConnection, *, is_socket: bool) -> None:
        """Raises: ApiError 403. With keys only a WebSocket's origin counts: no page sends a key unasked."""
        host = connection.headers.get("host", "")
        origin = connection.headers.get("origin")
        if {"*", origin} & self._origins:
            return
        if not (self._with_keys or "*" in self._hosts or self._is_ours(host)):
            message = f"who needs no key may not come by the name '{shorten(host)}': see --allowed-host"
            raise ApiError(403, message, code="host_not_allowed")
        if origin is None or origin.partition("://")[2] == host:
            return
        if is_socket or not self._with_keys:
            message = "pages of this origin are not let in: see --cors-origin"
            raise ApiError(403, message, code="origin_not_allowed")

    def _is_ours(self, host: str) -> bool:
        """Whether no page elsewhere can have this name: an address, a name without a dot, a private one."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        name = name.rstrip(".")
        if "." not in name or name.endswith(_PRIVATE) or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
