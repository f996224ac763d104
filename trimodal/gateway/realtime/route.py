"""Lets clients in at /v1/realtime: key, page, session."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from trimodal.gateway.access import Access, check_model, request_id
from trimodal.gateway.errors import ApiError, as_api_error, invalid
from trimodal.gateway.realtime.connection import Connection
from trimodal.gateway.realtime.openai.config import ConversationSession, first_config
from trimodal.gateway.realtime.session import Session, Sessions
from trimodal.gateway.settings import GatewaySettings, is_loopback

_NUMBER = re.compile(r"(?:event_)?([0-9]{1,15})")


def add_realtime(app: FastAPI, sessions: Sessions, access: Access, settings: GatewaySettings) -> None:
    """The route /v1/realtime."""

    @app.websocket("/v1/realtime")
    async def realtime(websocket: WebSocket) -> None:
        identity = request_id(websocket)
        try:
            check_origin(websocket, settings)
            caller = access.identify(websocket)
            query = websocket.query_params
            resumed = "session" in query
            if resumed:
                after = _number(query.get("after", "0"))
                session: Session = sessions.find(query["session"], caller, after)
            else:
                after = 0
                model = query.get("model")
                config = first_config(query.get("intent"), model and caller.named(model))
                if isinstance(config, ConversationSession):
                    check_model(caller, config.model)
                session = sessions.open(caller, config)
        except Exception as error:
            refusal = as_api_error(error, identity)
            headers = {**refusal.headers, "x-request-id": identity}
            await websocket.send_denial_response(JSONResponse(refusal.body, refusal.status, headers))
            return
        offered = websocket.scope.get("subprotocols", ())
        await websocket.accept(
            "realtime" if "realtime" in offered else None, [(b"x-request-id", identity.encode())]
        )
        await Connection(websocket, session).run(after, resumed=resumed)


def check_origin(websocket: WebSocket, settings: GatewaySettings) -> None:
    """Refuses browsers' pages of other origins: they could use who is let in here. Raises: ApiError 403.

    Without keys, a page of a name that resolves to this machine is another origin too.
    """
    origin, host = websocket.headers.get("origin"), websocket.headers.get("host", "")
    if origin is None or {"*", origin} & set(settings.cors_origins):
        return
    own = urlsplit(origin).netloc == host
    if own and settings.keys is None and not settings.without_keys:
        own = is_loopback(urlsplit(f"//{host}").hostname or "")
    if not own:
        raise ApiError(
            403, "pages of this origin are not let in: see --cors-origin", code="origin_not_allowed"
        )


def _number(after: str) -> int:
    match = _NUMBER.fullmatch(after)
    if not match:
        raise invalid("after: the event_id of the last event that came is needed")
    return int(match[1])
