"""Answers a talk, one response at a time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any, Literal

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.gateway.access import Caller, check_model
from trimodal.gateway.errors import ApiError, as_api_error
from trimodal.gateway.openai.generation import charging
from trimodal.gateway.quota import Quota
from trimodal.gateway.realtime.events import end_where_fatal, put_error
from trimodal.gateway.realtime.openai.config import ConversationSession, ResponseParams
from trimodal.gateway.realtime.openai.conversation import Conversation
from trimodal.gateway.realtime.openai.items import Item, new_id
from trimodal.gateway.realtime.openai.request import PreparedRequest, prepare
from trimodal.gateway.realtime.outbox import Outbox

Reason = Literal["turn_detected", "client_cancelled"]


class Response:
    """One answer from response.created to response.done."""

    def __init__(
        self, config: ConversationSession, params: ResponseParams, conversation: Conversation, outbox: Outbox
    ) -> None:
        limit = params.max_output_tokens or config.max_output_tokens
        self.max_tokens = None if limit == "inf" else limit
        self.instructions = config.instructions if params.instructions is None else params.instructions
        self.model = config.model
        self.truncation = config.model_dump(include={"truncation"})["truncation"]
        self.prepared: PreparedRequest | None = None
        self.question: str | None = None  # the last item of the talk that it answers, once that is read
        self.done = False
        self._conversation = conversation
        self._outbox = outbox
        self._item: Item | None = None
        self._texts: list[str] = []
        self._body: dict[str, Any] = {
            "id": new_id("resp"), "object": "realtime.response", "status": "in_progress",
            "status_details": None, "output": [], "output_modalities": ["text"],
            "max_output_tokens": limit, "metadata": params.metadata, "usage": None,
        }  # fmt: skip
        outbox.put("response.created", response=self._body)

    def add(self, text: str) -> None:
        """Tells of new text; the item comes with the first."""
        if self._item is None:
            self._begin()
        self._texts.append(text)
        self._put("output_text.delta", delta=text)

    def finish(self, status: str, **details: object) -> None:
        """Tells of the end; only the first counts. `details`: reason or error of a status but completed."""
        if self.done:
            return
        self.done = True
        if self._item is not None:
            self._end(self._item, "completed" if status == "completed" else "incomplete")
            self._body["output"] = [self._item]
        self._body["status"] = status
        if details:
            self._body["status_details"] = {"type": status, **details}
        if self.prepared is not None:
            used = self.prepared.stream.usage
            self._body["usage"] = {
                "total_tokens": used.prompt + used.completion,
                "input_tokens": used.prompt,
                "output_tokens": used.completion,
                "input_token_details": {"text_tokens": used.prompt, "cached_tokens": used.cached},
                "output_token_details": {"text_tokens": used.completion},
            }
            if status in ("completed", "incomplete"):
                self._body["trimodal"] = self.prepared.note
        self._outbox.put("response.done", response=self._body)

    def _begin(self) -> None:
        assert self.prepared is not None
        item = self._item = self._conversation.answer(self.question)
        place = {"response_id": self._body["id"], "output_index": 0}
        self._outbox.put("response.output_item.added", **place, item=item, **self.prepared.findings)
        self._put("content_part.added", part={"type": "text", "text": ""})

    def _end(self, item: Item, status: str) -> None:
        text = "".join(self._texts)
        self._put("output_text.done", text=text)
        self._put("content_part.done", part={"type": "text", "text": text})
        self._conversation.answered(item, text, status)
        self._outbox.put("response.output_item.done", response_id=self._body["id"], output_index=0, item=item)

    def _put(self, kind: str, **fields: object) -> None:
        assert self._item is not None
        place = {"response_id": self._body["id"], "item_id": self._item["id"]}
        self._outbox.put(f"response.{kind}", **place, output_index=0, content_index=0, **fields)


class Responses:
    """The responses of one session."""

    def __init__(
        self, client: Client, caller: Caller, quota: Quota, outbox: Outbox, conversation: Conversation
    ) -> None:
        self._client = client
        self._caller = caller
        self._quota = quota
        self._outbox = outbox
        self._conversation = conversation
        self._running: Response | None = None
        self._next: ConversationSession | None = None  # answers what was said meanwhile
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        return self._running is not None and not self._running.done

    def create(self, config: ConversationSession, params: ResponseParams) -> None:
        """Begins an answer to the talk. Raises: ApiError where one runs."""
        check_model(self._caller, config.model)
        if self.active:
            raise ApiError(
                409, "a response is active: wait for response.done, or send response.cancel",
                code="conversation_already_has_active_response",
            )  # fmt: skip
        self._running = Response(config, params, self._conversation, self._outbox)
        self._task = asyncio.ensure_future(self._answer(self._running, self._task))

    def answer(self, config: ConversationSession) -> None:
        """Answers what was just said: now, or when the answer that runs is done and did not answer it yet."""
        if self.active:
            self._next = config
        else:
            self.create(config, ResponseParams())

    def cancel(self, reason: Reason) -> bool:
        """Ends the answer that runs, at once; False: none does."""
        if not self.active or self._running is None or self._task is None:
            return False
        self._running.finish("cancelled", reason=reason)
        self._task.cancel()
        self._go_on()
        return True

    async def aclose(self) -> None:
        """Ends the answer that runs without a word."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _answer(self, response: Response, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:  # one that was cancelled may still be telling the server
                await asyncio.wait((before,))
            with self._quota.use(self._caller.key, held=True) as usage:
                await self._conversation.settled()
                options = self._caller.terms(
                    Options(max_tokens=response.max_tokens, truncation=response.truncation)
                )
                messages, response.question = self._conversation.messages(), self._conversation.last_id
                self._next = None
                prepared = response.prepared = await prepare(
                    self._client, self._caller, response.model, response.instructions, messages, options
                )
                async with charging([prepared.stream], usage), aclosing(prepared.texts()) as texts:
                    async for text in texts:
                        response.add(text)
            if prepared.stream.finish_reason in ("length", "deadline"):
                response.finish("incomplete", reason="max_output_tokens")
            else:
                response.finish("completed")
        except Exception as error:
            failure = as_api_error(error, self._caller.request_id)
            kind = failure.body["error"]["type"]
            response.finish("failed", error={"type": kind, "code": failure.code, "message": str(failure)})
            put_error(self._outbox, failure)
            end_where_fatal(self._outbox, error)
        self._go_on()

    def _go_on(self) -> None:
        config, self._next = self._next, None
        if config is not None and not self.active:
            try:
                self.create(config, ResponseParams())
            except ApiError as error:  # the key does not hold for the model any more
                put_error(self._outbox, error)
