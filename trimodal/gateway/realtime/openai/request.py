"""Prepares the request that answers a talk: to the llm, or to the assistant where there are pictures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.client.values import Delta, ImageFindings, Message, Turn
from trimodal.errors import InvalidArgument
from trimodal.gateway.access import Caller, check_model
from trimodal.gateway.errors import ApiError, unsupported
from trimodal.gateway.openai.generation import Stream, findings_body, note_body
from trimodal.gateway.openai.talk import ASSISTANT
from trimodal.gateway.realtime.openai.conversation import ConversationMessage
from trimodal.gateway.realtime.openai.items import Picture

# How the assistant's refusals of a picture begin: the model's that sees, and its own.
_REFUSALS = ("saw: ", "image")


class PreparedRequest:
    """A request that answers a talk; it is sent when its texts are read."""

    def __init__(self, stream: Stream, question: ConversationMessage) -> None:
        self.stream = stream
        self._question = question

    @property
    def findings(self) -> dict[str, dict[str, Any]]:
        """What was heard and what the assistant saw, as the field "trimodal" of an event; {}: of the llm."""
        body = findings_body(self.stream)
        if body:  # the assistant itself has heard nothing: it was given the words
            body["trimodal"]["heard"] = self._question.text if self._question.spoken else ""
        return body

    @property
    def note(self) -> dict[str, Any]:
        """How the answer came about, as chat has it in the field "trimodal"; after the end."""
        return {**note_body(self.stream), **self.findings.get("trimodal", {})}

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yields new text as it comes. Raises: ApiError (no picture), RequestError, TransportError."""
        picture = self._question.picture
        try:
            async for item in self.stream:
                if isinstance(item, ImageFindings) and picture is not None:
                    picture.labels = item.labels
                elif isinstance(item, Delta) and item.text:
                    yield item.text
        except InvalidArgument as error:
            if picture is not None and str(error).startswith(_REFUSALS):
                raise _refused(picture, error) from None
            raise


async def prepare(
    client: Client,
    caller: Caller,
    model: str,
    instructions: str,
    talk: Sequence[ConversationMessage],
    options: Options,
) -> PreparedRequest:
    """Prepares a request to the session's model, or with pictures to the assistant.

    Without a picture the llm gets what the assistant would hand on to it: as shipped, what was heard just
    as it was heard. Where an operator has changed the assistant's template or system message, a session of
    the model "assistant" has the answers that /v1/chat/completions gives to recordings.

    Raises:
        ApiError: the assistant has nothing to answer, an earlier picture is none, or the key does not hold
            for the model that would be asked.
        RequestError, TransportError: an earlier picture could not be looked at.
    """
    *earlier, question = talk
    if model != ASSISTANT and not any(one.picture for one in talk):
        check_model(caller, model)
        messages = [one.for_llm for one in talk]
        if instructions:
            messages.insert(0, Message(role="system", content=instructions))
        stream = client.stream(messages=messages, model=model, request_id=caller.request_id, **options)
        return PreparedRequest(stream, question)
    check_model(caller, ASSISTANT)
    if options.get("tools") or any(one.calls for one in talk):
        raise unsupported("tools", "are not supported beside pictures, nor by the model 'assistant'")
    if question.role != "user" or not question.text:
        raise ApiError(400, "there is nothing to answer: a user's words must be the last of the talk")
    await _look(client, [one.picture for one in earlier if one.picture])
    history = [_turn(one) for one in earlier]
    if instructions:
        history.insert(0, Turn(role="system", content=instructions))
    answer = client.ask(
        # As text, what was heard makes the same prompt as its audio would, and is not heard once more.
        question.text,
        image=question.picture.contents if question.picture else None,
        history=history,
        request_id=caller.request_id,
        **options,
    )
    return PreparedRequest(answer, question)


async def _look(client: Client, pictures: Sequence[Picture]) -> None:
    """Finds out what pictures show that were never the question's. Raises: ApiError, RequestError."""
    unseen = [picture for picture in pictures if not picture.labels]
    if not unseen:
        return
    rows = await client.classify([picture.contents for picture in unseen], return_exceptions=True)
    for picture, row in zip(unseen, rows, strict=True):
        if isinstance(row, InvalidArgument):
            raise _refused(picture, row)
        if isinstance(row, Exception):
            raise row
        picture.labels = tuple(row)


def _refused(picture: Picture, error: InvalidArgument) -> ApiError:
    """Forgets a picture that is none: the talk goes on without it."""
    picture.forget()
    why = str(error).removeprefix("saw: ")
    return ApiError(400, f"item '{picture.item_id}' is forgotten: {why}", param="item.content")


def _turn(message: ConversationMessage) -> Turn:
    labels = message.picture.labels if message.picture else ()
    return Turn(role=message.role, content=message.text, labels=labels)
