"""Lets clients in at /v1/realtime, and connects each WebSocket with its session until either ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from trimodal.gateway.access import Access, Caller, check_model, request_id
from trimodal.gateway.errors import as_api_error
from trimodal.gateway.realtime.hearing.turn import SPEECH
from trimodal.gateway.realtime.openai.config import ConversationSession, first_config
from trimodal.gateway.realtime.outbox import Close
from trimodal.gateway.realtime.session import Session, Sessions

# For the last events and the closing of a client that may not read.
_CLOSE_S = 2.0


def add_realtime(app: FastAPI, sessions: Sessions, access: Access) -> None:
    """The route /v1/realtime."""

    @app.websocket("/v1/realtime")
    async def realtime(websocket: WebSocket) -> None:
        identity, caller = request_id(websocket), None
        try:
            caller = access.identify(websocket)
            session = _begin(websocket, sessions, caller)
        except Exception as error:
            refusal = as_api_error(error, identity)
            if refusal.status == 429 and caller is not None:
                await asyncio.sleep(access.quota.refusal_wait_s(caller.key))
            headers = {**refusal.headers, "x-request-id": identity}
            await websocket.send_denial_response(JSONResponse(refusal.body, refusal.status, headers))
            return
        offered = websocket.scope.get("subprotocols", ())
        try:
            await websocket.accept(
                "realtime" if "realtime" in offered else None, [(b"x-request-id", identity.encode())]
            )
        except BaseException:
            session.outbox.end(1006, "the client left")
            raise
        await _connect(websocket, session)


def _begin(websocket: WebSocket, sessions: Sessions, caller: Caller) -> Session:
    """The session that a client asks for. Raises: ApiError."""
    model = websocket.query_params.get("model")
    config = first_config(websocket.query_params.get("intent"), model and caller.named(model))
    if isinstance(config, ConversationSession):
        check_model(caller, config.model)
    session = sessions.open(caller, config)
    websocket.state.model = config.model if isinstance(config, ConversationSession) else SPEECH
    return session


async def _connect(websocket: WebSocket, session: Session) -> None:
    """Passes frames in and events out. Returns when the socket is closed; its session ends with it."""
    reading = asyncio.ensure_future(_read(websocket, session))
    writing = asyncio.ensure_future(_write(websocket, session))
    tasks = (reading, writing, asyncio.ensure_future(session.over.wait()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if session.outbox.ending and not reading.done():
            await asyncio.wait((reading, writing), timeout=_CLOSE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        left = await _result(reading)
        await _result(writing)
        ending = session.outbox.ending or Close(1000, "the client left")
        session.outbox.end(ending.code, ending.reason)
    if not left:
        with suppress(asyncio.TimeoutError, RuntimeError, WebSocketDisconnect):
            await asyncio.wait_for(websocket.close(ending.code, ending.reason), _CLOSE_S)


async def _read(websocket: WebSocket, session: Session) -> bool:
    """Handles frames, the next when the last one is done. True: the client has left."""
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        await session.handle(message["text"])
    return True


async def _write(websocket: WebSocket, session: Session) -> None:
    async for line in session.outbox.lines():
        await websocket.send_text(line)


async def _result(task: asyncio.Task[Any]) -> Any:
    """What a task gave; None where it was cancelled or its socket was lost."""
    try:
        return await task
    except (asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
        return None
