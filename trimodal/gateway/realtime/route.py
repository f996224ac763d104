"""Lets clients in at /v1/realtime: key, session."""

from __future__ import annotations

import asyncio
import re

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from trimodal.gateway.access import Access, check_model, request_id
from trimodal.gateway.errors import as_api_error, invalid
from trimodal.gateway.realtime.connection import Connection
from trimodal.gateway.realtime.hearing.turn import SPEECH
from trimodal.gateway.realtime.openai.config import ConversationSession, first_config
from trimodal.gateway.realtime.session import Session, Sessions

_NUMBER = re.compile(r"(?:event_)?([0-9]{1,15})")


def add_realtime(app: FastAPI, sessions: Sessions, access: Access) -> None:
    """The route /v1/realtime."""

    @app.websocket("/v1/realtime")
    async def realtime(websocket: WebSocket) -> None:
        identity, caller = request_id(websocket), None
        try:
            caller = access.identify(websocket)
            websocket.state.tenant = caller.key.tenant
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
                websocket.state.model = config.model if isinstance(config, ConversationSession) else SPEECH
        except Exception as error:
            refusal = as_api_error(error, identity)
            if refusal.status == 429 and caller is not None:
                await asyncio.sleep(access.quota.refusal_wait_s(caller.key))
            headers = {**refusal.headers, "x-request-id": identity}
            await websocket.send_denial_response(JSONResponse(refusal.body, refusal.status, headers))
            return
        offered = websocket.scope.get("subprotocols", ())
        await websocket.accept(
            "realtime" if "realtime" in offered else None, [(b"x-request-id", identity.encode())]
        )
        await Connection(websocket, session).run(after, resumed=resumed)


def _number(after: str) -> int:
    match = _NUMBER.fullmatch(after)
    if not match:
        raise invalid("after: the event_id of the last event that came is needed")
    return int(match[1])
