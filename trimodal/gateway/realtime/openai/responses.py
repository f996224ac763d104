"""Answers a talk, one response at a time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Literal

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.gateway.access import Caller
from trimodal.gateway.errors import ApiError, as_api_error
from trimodal.gateway.openai.calls import CallReader, tool_options
from trimodal.gateway.quota import Cost, Quota
from trimodal.gateway.realtime.events import end_where_fatal, put_error
from trimodal.gateway.realtime.openai.config import ConversationSession, ResponseParams
from trimodal.gateway.realtime.openai.conversation import Conversation, ConversationMessage
from trimodal.gateway.realtime.openai.early import TTFT_DEADLINE_MS, EarlyAnswer, EarlyBudget, Outcome
from trimodal.gateway.realtime.openai.generation import Generation, Question
from trimodal.gateway.realtime.openai.items import Item, call_item, message_item, new_id
from trimodal.gateway.realtime.openai.request import PreparedRequest, prepare
from trimodal.gateway.realtime.openai.sentences import SentenceCutter
from trimodal.gateway.realtime.outbox import Outbox

Reason = Literal["turn_detected", "client_cancelled"]


class Response:
    """One answer from response.created to response.done."""

    def __init__(
        self, config: ConversationSession, params: ResponseParams, conversation: Conversation, outbox: Outbox
    ) -> None:
        given = {
            name: value
            for name, value in params
            if value is not None and name in ConversationSession.model_fields
        }
        self.config = config.model_copy(update=given)
        self.generation: Generation | None = None
        self.question: str | None = None  # the last item of the talk that it answers, once that is read
        self.done = False
        self._conversation = conversation
        self._outbox = outbox
        self._items: list[Item] = []
        self._reader = CallReader(calling=bool(self.config.tools) and self.config.tool_choice != "none")
        self._cutter = SentenceCutter() if self.config.deltas == "sentences" else None
        self._body: dict[str, Any] = {
            "id": new_id("resp"), "object": "realtime.response", "status": "in_progress",
            "status_details": None, "output": [], "output_modalities": ["text"],
            "max_output_tokens": self.config.max_output_tokens, "metadata": params.metadata, "usage": None,
        }  # fmt: skip
        outbox.put("response.created", response=self._body)

    @property
    def prepared(self) -> PreparedRequest | None:
        return self.generation.prepared if self.generation else None

    def add(self, text: str, *, last: bool = False) -> None:
        """Tells of new text, which may be calls of functions; an item comes with its first."""
        for part in self._reader.read(text, last=last):
            if "content" in part:
                for piece in self._cutter.push(part["content"]) if self._cutter else [part["content"]]:
                    self._write(piece)
            for call in part.get("tool_calls", ()):
                self._write_rest()
                self._call(call)
        if last:
            self._write_rest()

    def finish(self, status: str, **details: object) -> None:
        """Tells of the end; only the first counts. `details`: reason or error of a status but completed."""
        if self.done:
            return
        if status != "cancelled":  # else nobody is to hear half a sentence
            self._write_rest()
        self.done = True
        if self._items:
            cut = status != "completed"
            if self._items[-1]["type"] == "function_call":
                cut = self._reader.within
            self._end("incomplete" if cut else "completed")
            self._body["output"] = self._items
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

    def _write_rest(self) -> None:
        for piece in self._cutter.rest() if self._cutter else ():
            self._write(piece)

    def _write(self, text: str) -> None:
        if not self._items or self._items[-1]["type"] != "message":
            self._begin(message_item(new_id("item"), "assistant", [], "in_progress"))
            self._put("content_part.added", content_index=0, part={"type": "text", "text": ""})
            self._items[-1]["content"] = [{"type": "output_text", "text": ""}]
        self._items[-1]["content"][0]["text"] += text
        self._put("output_text.delta", content_index=0, delta=text)

    def _call(self, call: dict[str, Any]) -> None:
        function = call["function"]
        if "id" in call:
            called = {"call_id": call["id"], "name": function["name"], "arguments": ""}
            self._begin(call_item(new_id("item"), "function_call", "in_progress", **called))
        elif arguments := function["arguments"]:
            item = self._items[-1]
            item["arguments"] += arguments
            self._put("function_call_arguments.delta", call_id=item["call_id"], delta=arguments)

    def _begin(self, item: Item) -> None:
        assert self.prepared is not None
        if self._items:
            self._end("completed")
        self._conversation.answer(item, self._items[-1]["id"] if self._items else self.question)
        self._items.append(item)
        findings = self.prepared.findings if len(self._items) == 1 else {}
        place = {"response_id": self._body["id"], "output_index": len(self._items) - 1}
        self._outbox.put("response.output_item.added", **place, item=item, **findings)

    def _end(self, status: str) -> None:
        item = self._items[-1]
        if item["type"] == "message":
            text = item["content"][0]["text"]
            self._put("output_text.done", content_index=0, text=text)
            self._put("content_part.done", content_index=0, part={"type": "text", "text": text})
        else:
            called = {name: item[name] for name in ("call_id", "name", "arguments")}
            self._put("function_call_arguments.done", **called)
        self._conversation.answered(item, status)
        place = {"response_id": self._body["id"], "output_index": len(self._items) - 1}
        self._outbox.put("response.output_item.done", **place, item=item)

    def _put(self, kind: str, **fields: object) -> None:
        place = {"response_id": self._body["id"], "item_id": self._items[-1]["id"]}
        self._outbox.put(f"response.{kind}", **place, output_index=len(self._items) - 1, **fields)


class Responses:
    """The responses of one session."""

    def __init__(
        self,
        client: Client,
        caller: Caller,
        quota: Quota,
        outbox: Outbox,
        conversation: Conversation,
        budget: EarlyBudget,
    ) -> None:
        self._client = client
        self._caller = caller
        self._quota = quota
        self._outbox = outbox
        self._conversation = conversation
        self._early = EarlyAnswer(budget)
        self._running: Response | None = None
        self._next: ConversationSession | None = None  # answers what was said meanwhile
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        return self._running is not None and not self._running.done

    @property
    def waiting(self) -> bool:
        """Whether what was said is to be answered later."""
        return self._next is not None

    def create(self, config: ConversationSession, params: ResponseParams) -> None:
        """Begins an answer to the talk. Raises: ApiError where one runs."""
        if self.active:
            raise ApiError(
                409, "a response is active: wait for response.done, or send response.cancel",
                code="conversation_already_has_active_response",
            )  # fmt: skip
        self._next = None  # this answers that, too
        self._running = Response(config, params, self._conversation, self._outbox)
        self._task = asyncio.ensure_future(self._answer(self._running, self._task))

    def answer(self, config: ConversationSession, *, later: bool = False) -> None:
        """Answers what was just said: now, or when the answer that runs is done and did not answer it yet.

        `later`: together with what is said next, or when `go_on` says so.
        """
        if self.active or later:
            self._next = config
        else:
            self.create(config, ResponseParams())

    def foresee(self, config: ConversationSession, said: str) -> None:
        """Begins to answer what a user may have finished saying, and shows nothing of it yet."""
        talk = self._conversation.messages(said)
        unseen = any(one.picture and not one.picture.labels for one in talk)  # a file may be refused: aloud
        if said.strip() and not self.active and not unseen:
            question = self._question(config, talk)
            self._early.begin(question, lambda: self._generate(question, early=True))

    def give_up(self, outcome: Outcome) -> None:
        """Ends what `foresee` has begun."""
        self._early.drop(outcome)

    def cancel(self, reason: Reason) -> bool:
        """Ends the answer that runs, at once; False: none does."""
        if not self.active or self._running is None or self._task is None:
            return False
        self._running.finish("cancelled", reason=reason)
        self._task.cancel()
        self.go_on()
        return True

    def go_on(self) -> None:
        """Answers what was said and is to be answered still, if anything."""
        config, self._next = self._next, None
        if config is not None:
            self.answer(config)

    async def aclose(self) -> None:
        """Ends the answer that runs without a word."""
        if self._task is not None:  # first: the early answer that it shows is waited for below
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._early.aclose()

    def _question(self, config: ConversationSession, talk: list[ConversationMessage]) -> Question:
        limit = config.max_output_tokens
        truncation = config.model_dump(include={"truncation"})["truncation"]
        options = Options(max_tokens=None if limit == "inf" else limit, truncation=truncation)
        if config.tools:
            options |= tool_options(config.tools, config.tool_choice, parallel=config.parallel_tool_calls)
        return Question(config.model, config.instructions, self._caller.terms(options), tuple(talk))

    def _generate(self, question: Question, *, early: bool = False) -> Generation:
        options = Options(**question.options)  # type: ignore[typeddict-item]
        if early:
            own = options.get("ttft_deadline_ms") or TTFT_DEADLINE_MS
            options["ttft_deadline_ms"] = min(TTFT_DEADLINE_MS, own)
        make = partial(
            prepare, self._client, self._caller, question.model, question.instructions, question.talk, options
        )
        use = partial(self._quota.use, self._caller.key, Cost(requests=0 if early else 1), held=True)
        return Generation(make, use, shown=not early)

    async def _begun(self, question: Question) -> Generation:
        """The answer that was begun early, which counts as a request from now on, or another."""
        generation = self._early.take(question)
        if generation is None:
            return self._generate(question)
        try:
            await generation.begins()
            if not generation.refused:
                with self._quota.use(self._caller.key, held=True, reserve=False) as usage:
                    generation.show(usage)
                return generation
        except BaseException:
            await generation.aclose()
            raise
        return self._generate(question)  # it was refused for want of time: this one has more

    async def _answer(self, response: Response, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:  # one that was cancelled may still be telling the server
                await asyncio.wait((before,))
            await self._conversation.settled()
            messages, response.question = self._conversation.messages(), self._conversation.last_id
            self._next = None
            if not any(one.role != "system" for one in messages):
                raise ApiError(400, "there is nothing to answer: nothing was said or written yet")
            generation = response.generation = await self._begun(self._question(response.config, messages))
            async with aclosing(generation), aclosing(generation.texts()) as texts:
                async for text in texts:
                    response.add(text)
                response.add("", last=True)
            assert generation.prepared is not None
            if generation.prepared.stream.finish_reason in ("length", "deadline"):
                response.finish("incomplete", reason="max_output_tokens")
            else:
                response.finish("completed")
        except Exception as error:
            failure = as_api_error(error, self._caller.request_id)
            kind = failure.body["error"]["type"]
            response.finish("failed", error={"type": kind, "code": failure.code, "message": str(failure)})
            put_error(self._outbox, failure)
            end_where_fatal(self._outbox, error)
        self.go_on()
