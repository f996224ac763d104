"""Declares POST /v1/responses with its limits, and reads its items as the messages of a chat."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    TypeAdapter,
    model_validator,
)

from trimodal.client.options import Options
from trimodal.gateway.errors import ApiError, invalid
from trimodal.gateway.openai.calls import chat_call, check_arguments, tool_options
from trimodal.gateway.openai.conversation import DecodedMessage, read_message
from trimodal.gateway.openai.fields import Body, Refusal, Whole
from trimodal.gateway.openai.schemas import (
    MAX_MESSAGES,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
    AudioPart,
    ChatMessage,
    Function,
    InputImage,
    InputText,
    Name,
    RefusalPart,
    Sampling,
    Schema,
    check_strict,
    form_for_model,
    template_kwargs,
)

LOGPROBS = "message.output_text.logprobs"
Part = Annotated[InputText | InputImage | AudioPart | RefusalPart, Field(discriminator="type")]


class InputMessage(Body):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]


class FunctionCallItem(Body):
    """A call of an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: Name
    arguments: str
    status: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended within its arguments: they are no JSON, which no model's server takes."""
        return self.status == "incomplete"

    def check(self, field: str) -> None:
        """Raises: ApiError naming the arguments where they are no object."""
        check_arguments(self.arguments, f"{field}.arguments")


class FunctionOutput(Body):
    """What a called function returned."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[InputText]


class Reasoning(Body):
    """Thoughts of an earlier answer; nothing is made of them."""

    type: Literal["reasoning"]


class ItemReference(Body):
    """An item of an earlier answer, which its response has kept: Vercel's AI SDK sends no other."""

    type: Literal["item_reference"]
    id: str


def _kind(item: Any) -> str:
    given = item.get("type") if isinstance(item, Mapping) else getattr(item, "type", None)
    return str(given or "message")


Item = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionOutput, Tag("function_call_output")]
    | Annotated[Reasoning, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(
        _kind,
        custom_error_type="item_type",
        custom_error_message="type must be message, function_call, function_call_output, reasoning or "
        "item_reference",
    ),
]
_read_item: TypeAdapter[Item] = TypeAdapter(Item)


class TextFormat(Body):
    """As chat's `response_format`, without its inner object."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Name | None = None
    schema_: Schema | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _schema_where_it_belongs(self) -> TextFormat:
        if (self.type == "json_schema") != (self.schema_ is not None):
            raise ValueError("schema is needed with type json_schema, and only there")
        if self.strict:
            check_strict(self.schema_)
        return self

    def for_model(self) -> dict[str, Any] | None:
        return form_for_model(self.type, self.schema_, self.strict)


class TextOptions(Body):
    format: TextFormat = TextFormat()


class ReasoningOptions(Body):
    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class FunctionTool(Function):
    type: Literal["function"]


def _a_function(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if kind not in (None, "function"):
        raise ValueError(f"type is {kind!r:.64}: this server takes functions only")
    return tool


Tool = Annotated[FunctionTool, BeforeValidator(_a_function)]


class NamedFunction(Body):
    type: Literal["function"]
    name: str


class AllowedTools(Body):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedFunction]


Choice = Annotated[NamedFunction | AllowedTools, Field(discriminator="type")]
_OWN_NAMES = {
    r"^max_tokens\b": "max_output_tokens",
    r"^messages\b": "input",
    r"^response_format\b": "text.format",
    r"^(tools\[\d+\])\.function\b": r"\1",
}
_Key = Annotated[str, StringConstraints(max_length=64)]
_Value = Annotated[str, StringConstraints(max_length=512)]


class ResponseRequest(Sampling):
    """POST /v1/responses. Unset: as the model's configuration says."""

    refused = {  # noqa: RUF012
        **Sampling.refused,
        "background": Refusal("is not supported: an answer comes with its request", (False,)),
        "conversation": Refusal("is not supported: previous_response_id is"),
        "prompt": Refusal("is not supported: this server keeps no prompts"),
        "context_management": Refusal("is not supported: truncation is", ([],)),
        "moderation": Refusal("is not supported by this server"),
    }
    input: str | Annotated[list[Item], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Whole | None = Field(default=None, ge=1)
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: Schema | None = None
    text: TextOptions = TextOptions()
    tools: list[Tool] = Field(default=[], max_length=MAX_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | Choice = "auto"
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    store: bool = True
    truncation: Literal["auto", "disabled"] | None = None
    top_logprobs: Whole | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    include: list[str] = []
    metadata: dict[_Key, _Value] = Field(default={}, max_length=16)

    @model_validator(mode="after")
    def _tools_to_choose(self) -> ResponseRequest:
        if not self.tools and self.tool_choice not in ("none", "auto"):
            raise ValueError("tool_choice is only allowed when tools are given")
        if isinstance(self.tool_choice, AllowedTools):
            known = {tool.name for tool in self.tools}
            if not known.intersection(one.name for one in self.tool_choice.tools):
                raise ValueError("tool_choice: its tools are none of those that are given")
        return self

    @property
    def calls_tools(self) -> bool:
        """Whether the answer may be calls of functions."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in self.include or bool(self.top_logprobs)

    @property
    def wants_summary(self) -> bool:
        """Whether the thoughts are to be told as a summary."""
        return self.reasoning is not None and self.reasoning.summary is not None

    @property
    def trims(self) -> Literal["auto", "disabled"]:
        """OpenAI's `truncation`; unasked, a talk that is kept here is trimmed: no client can shorten it."""
        return self.truncation or ("auto" if self.previous_response_id else "disabled")

    @property
    def references(self) -> list[str]:
        """The ids of items that are only named."""
        items = [] if isinstance(self.input, str) else self.input
        return [item.id for item in items if isinstance(item, ItemReference)]

    def resolve(self, kept: Mapping[str, Any]) -> None:
        """Puts items that are kept, by their ids, in place of their names. Raises: ApiError 404."""
        assert not isinstance(self.input, str)
        for index, item in enumerate(self.input):
            if not isinstance(item, ItemReference):
                continue
            if item.id not in kept:
                raise ApiError(
                    404, f"input[{index}]: there is no item {item.id!r:.80}: it was answered with store: "
                    "false, or is not kept any more", param="input", code="item_not_found",
                )  # fmt: skip
            self.input[index] = _read_item.validate_python(kept[item.id])

    def messages(self) -> list[DecodedMessage]:
        """The items as messages: calls of functions are an assistant's. Raises: ApiError naming the part."""
        if isinstance(self.input, str):
            return [DecodedMessage("user", self.input)]
        found: list[DecodedMessage] = []
        calls: list[Mapping[str, Any]] = []  # of the last message found, if it may have more
        cut: set[str] = set()  # calls, by their ids, of which the last one was
        for index, item in enumerate(self.input):
            if isinstance(item, FunctionCallItem):
                (cut.add if item.is_cut else cut.discard)(item.call_id)
            if isinstance(item, FunctionCallItem | FunctionOutput) and item.call_id in cut:
                continue
            if isinstance(item, FunctionCallItem):
                item.check(f"input[{index}]")
                if not found or found[-1].role != "assistant":
                    found.append(DecodedMessage("assistant", ""))
                    calls = []
                calls.append(chat_call(item.call_id, item.name, item.arguments))
                last = found[-1]
                found[-1] = DecodedMessage(last.role, last.text, calls=calls)
            elif isinstance(item, FunctionOutput):
                output = item.output
                text = output if isinstance(output, str) else "\n".join(part.text for part in output)
                found.append(DecodedMessage("tool", text, answers=item.call_id))
            elif isinstance(item, InputMessage):
                content: Any = item.content
                message = ChatMessage.model_construct(role=item.role, content=content)
                found.append(read_message(f"input[{index}]", message))
                calls = []
        if not found:
            raise invalid("input: there is nothing to answer in it")
        return found

    def options(self, choice: int = 0) -> Options:
        options = super().options(choice)
        options["max_tokens"] = self.max_output_tokens
        options["truncation"] = self.trims
        if self.wants_logprobs:
            options["top_logprobs"] = self.top_logprobs or 0
        options["response_format"] = self.text.format.for_model()
        effort = self.reasoning.effort if self.reasoning else None
        options["chat_template_kwargs"] = template_kwargs(self.chat_template_kwargs, effort)
        tools, wanted = self.tools, self.tool_choice
        if isinstance(wanted, AllowedTools):
            allowed = {one.name for one in wanted.tools}
            tools, wanted = [tool for tool in tools if tool.name in allowed], wanted.mode
        if tools:
            options |= tool_options(tools, wanted, parallel=self.parallel_tool_calls)
        return options

    def own_name(self, sentence: str) -> str:
        for name, own in _OWN_NAMES.items():
            sentence = re.sub(name, own, sentence)
        return sentence
