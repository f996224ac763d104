"""Handles the events of OpenAI's Realtime API: transcription sessions, and conversations answered in text."""

from __future__ import annotations

from trimodal.client.client import Client
from trimodal.gateway.access import Caller, check_model
from trimodal.gateway.errors import ApiError, invalid, unsupported
from trimodal.gateway.openai.talk import ASSISTANT
from trimodal.gateway.quota import Cost, Quota
from trimodal.gateway.realtime.events import Event, put_error, unknown_event
from trimodal.gateway.realtime.hearing.decoder import audio_bytes
from trimodal.gateway.realtime.hearing.turn import SPEECH
from trimodal.gateway.realtime.openai.buffer import InputBuffer
from trimodal.gateway.realtime.openai.config import (
    Config,
    ConversationSession,
    ResponseParams,
    SemanticVad,
    by_silence,
    read,
    updated,
)
from trimodal.gateway.realtime.openai.config import body as config_body
from trimodal.gateway.realtime.openai.conversation import Conversation
from trimodal.gateway.realtime.openai.early import EarlyBudget
from trimodal.gateway.realtime.openai.items import read_item
from trimodal.gateway.realtime.openai.responses import Responses
from trimodal.gateway.realtime.outbox import Outbox

TURN = "turn"  # the model that semantic_vad asks
_NO_TURNS = f"semantic_vad: the model '{TURN}' is not served here, so a silence ends a turn, as in server_vad"
_KNOWN = (
    "session.update, input_audio_buffer.append, .commit and .clear, "
    "conversation.item.create, .retrieve and .delete, response.create and .cancel"
)


class OpenAIDialect:
    """One session's: `begun` once it has taken audio or text, `busy` while something asked for goes on."""

    def __init__(
        self,
        session_id: str,
        client: Client,
        caller: Caller,
        quota: Quota,
        outbox: Outbox,
        config: Config,
        budget: EarlyBudget,
    ) -> None:
        self._client = client
        self._note: dict[str, object] = {}
        self._session_id = session_id
        self._caller = caller
        self._quota = quota
        self._outbox = outbox
        self._config = config
        self._conversation = Conversation(outbox)
        self._responses = Responses(client, caller, quota, outbox, self._conversation, budget)
        self._buffer = InputBuffer(client, caller, outbox, self._conversation, self._responses, config)

    @property
    def begun(self) -> bool:
        return self._buffer.begun or not self._conversation.empty

    @property
    def seconds(self) -> float:
        """Of audio that was sent."""
        return self._buffer.seconds

    @property
    def busy(self) -> bool:
        return self._buffer.busy or self._responses.active

    @property
    def session(self) -> dict[str, object]:
        """The session as its events tell it."""
        kind = (
            "realtime.session"
            if isinstance(self._config, ConversationSession)
            else "realtime.transcription_session"
        )
        return {"id": self._session_id, "object": kind, **config_body(self._config), **self._note}

    async def handle(self, event: Event) -> None:
        """Does what an event asks for. Raises: ApiError, RequestError, TransportError."""
        kind = event["type"]
        if kind == "input_audio_buffer.append":
            data = audio_bytes(event.get("audio"))
            if not self._buffer.begun:
                check_model(self._caller, SPEECH)
            await self._buffer.append(data)
        elif kind == "input_audio_buffer.commit":
            await self._buffer.commit()
        elif kind == "input_audio_buffer.clear":
            await self._buffer.clear()
        elif kind == "session.update":
            await self._update(event.get("session"))
        else:
            self._talk(kind, event)

    def tell(self, error: ApiError, cause: str | None = None) -> None:
        put_error(self._outbox, error, cause)

    async def aclose(self) -> None:
        await self._buffer.aclose()
        await self._responses.aclose()

    async def _update(self, session: object) -> None:
        config, note = updated(self._config, session, self._caller.named), self._note
        if isinstance(config.audio.input.turn_detection, SemanticVad):
            note = {}
            if not await self._client.ready(TURN):
                config, note = by_silence(config), {"trimodal": {"turn_detection": _NO_TURNS}}
        if config.type != self._config.type and self.begun:
            raise invalid("session.type cannot change any more")
        check_model(self._caller, config.model if isinstance(config, ConversationSession) else SPEECH)
        self._buffer.configure(config)
        self._config, self._note = config, note
        self._outbox.put("session.updated", session=self.session)

    def _talk(self, kind: str, event: Event) -> None:
        if kind == "conversation.item.create":
            item, picture = read_item(event.get("item"))
            if picture is not None:
                check_model(self._caller, ASSISTANT)
                with self._quota.use(self._caller.key, Cost(0, images=1), held=True, reserve=False):
                    pass
            self._conversation.create(item, picture, event.get("previous_item_id"))
        elif kind == "conversation.item.delete":
            self._conversation.delete(event.get("item_id"))
        elif kind == "conversation.item.retrieve":
            self._conversation.retrieve(event.get("item_id"))
        elif kind == "response.create":
            if not isinstance(self._config, ConversationSession):
                raise unsupported("response.create", "is for sessions of type 'realtime'")
            given = event.get("response") or {}
            if not isinstance(given, dict):
                raise invalid("response: an object is needed")
            self._responses.create(self._config, read(ResponseParams, given, "response"))
        elif kind == "response.cancel":
            if not self._responses.cancel("client_cancelled"):
                raise ApiError(400, "no response is active", code="response_cancel_not_active")
        else:
            raise unknown_event(event, _KNOWN)
