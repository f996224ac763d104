"""Asks for the answer to a talk: of the llm, or with pictures or recordings in it of the assistant."""

from __future__ import annotations

from collections.abc import Sequence

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.client.streams.ask import AskStream
from trimodal.client.transports.base import named
from trimodal.gateway.access import Caller, check_model
from trimodal.gateway.errors import invalid, unsupported
from trimodal.gateway.openai.conversation import DecodedMessage, FindingsCache, read_samples
from trimodal.gateway.openai.generation import Stream
from trimodal.gateway.quota import KeyUsage

ASSISTANT = "assistant"
# What the gateway keeps of a talk, within the bounds of one request to the models (1,024 messages, 256 KiB of
# JSON); the model server trims what is too long for its model.
MAX_TALK_BYTES = 200_000
_KEPT = 0.8


def newest_turns(roles: Sequence[str], sizes: Sequence[int], most: int, most_bytes: int) -> list[int]:
    """Which messages of a talk to keep, by their indexes: all, unless there are more, or more bytes.

    Then the oldest turns go, whole, down to 0.8 of that at once, so that what is left begins alike for a
    while; what is the system's and the last turn stay, as long as they are not twice too many themselves.
    """

    count, size, passed = len(roles), sum(sizes), 0

    def within(share: float) -> bool:
        return count <= share * most and size <= share * most_bytes

    if within(1):
        return list(range(count))
    start = 0
    for start in [at for at, role in enumerate(roles) if role == "user"] or [len(roles) - 1]:
        for at in range(passed, start):
            if roles[at] != "system":
                count, size = count - 1, size - sizes[at]
        passed = start
        if within(_KEPT):
            break
    kept = [at for at, role in enumerate(roles) if at >= start or role == "system"]
    while len(kept) > 1 and not within(2):
        count, size = count - 1, size - sizes[kept.pop(0)]
    return kept


class Talk:
    """The messages of one request, the last of which is to be answered; unless `is_plain` by the assistant.

    Raises: ApiError where the caller may not ask the assistant, or it cannot answer such a talk.
    """

    def __init__(
        self,
        messages: Sequence[DecodedMessage],
        model: str,
        client: Client,
        caller: Caller,
        findings: FindingsCache,
        *,
        tools: bool,
    ) -> None:
        self._messages = messages
        self._model = model
        self._client = client
        self._caller, self._tenant = caller, caller.key.tenant
        self._findings = findings
        self.is_plain = named(model)[0] != ASSISTANT and all(one.is_plain for one in messages)
        if not self.is_plain:
            check_model(caller, ASSISTANT)
            if tools or any(message.calls or message.answers for message in messages):
                raise unsupported("tools", "are not supported beside pictures and recordings")
            question = messages[-1]
            if question.role != "user":
                raise invalid(f"{question.field or 'input'}: the last message must be the user's")
            if not (question.text or question.audio or question.heard):
                raise invalid(f"{question.field or 'input'}: words or a recording are needed")

    async def streams(self, choices: Sequence[Options], usage: KeyUsage) -> Sequence[Stream]:
        """A stream for each choice; sent when they are read. What is heard for them is charged."""
        if self.is_plain:
            chat = [message.for_llm for message in self._messages]
            return [
                self._client.stream(
                    messages=chat,
                    model=self._caller.served(self._model),
                    request_id=self._caller.request_id,
                    **self._caller.terms(options),
                )
                for options in choices
            ]
        *earlier, question = self._messages
        history = [
            await self._findings.turn(self._tenant, message, self._client, usage) for message in earlier
        ]
        samples = None
        if question.audio is not None:
            samples = await read_samples(question.audio, question.field, usage)
        for options in choices:  # the assistant always answers a question
            options["add_generation_prompt"] = options["continue_final_message"] = None
        return [
            self._client.ask(
                question.text or None,
                image=question.image,
                audio=samples,
                history=history,
                request_id=self._caller.request_id,
                **self._caller.terms(options),
            )
            for options in choices
        ]

    def remember(self, stream: Stream) -> None:
        """Keeps what was heard and seen: the next question of the talk brings the same files."""
        if isinstance(stream, AskStream):
            self._findings.keep(self._tenant, self._messages[-1], stream.heard, stream.labels)

    async def without_files(self, usage: KeyUsage) -> list[DecodedMessage]:
        """The messages with what was heard and seen in their files, in place of the files.

        For when the question is answered: its recording is not needed any more.
        """
        usage.free(usage.held)
        return [
            await self._findings.found(self._tenant, message, self._client, usage)
            for message in self._messages
        ]
