"""Declares the requests for chat and text completions, with their limits; the server checks its own."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from trimodal.client.options import Options
from trimodal.gateway.errors import invalid, unsupported
from trimodal.gateway.openai.fields import Body, ModelBody, Number, Refusal, Whole
from trimodal.llm.structured.reading import MAX_NESTING, nested_beyond

MAX_CHOICES = 16
MAX_MESSAGES = 1024
MAX_ANSWERS = 128  # of all prompts of one request
MAX_TOOLS = 64
MAX_TOP_LOGPROBS = 20


_NO_FILES = "is not supported: this server keeps no files; image_url takes a data URL"


class StreamOptions(Body):
    include_usage: bool = False


class Url(Body):
    url: str


class AudioData(Body):
    data: str
    format: Literal["wav", "mp3", "flac", "ogg"]


class TextPart(Body):
    type: Literal["text"]
    text: str


class InputText(Body):
    """As /v1/responses has it."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(Body):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class ImagePart(Body):
    type: Literal["image_url"]
    image_url: Url

    @property
    def picture(self) -> tuple[str, str]:
        """Its field, and the URL in it."""
        return "image_url.url", self.image_url.url


class InputImage(Body):
    """As /v1/responses has it."""

    refused = {"file_id": Refusal(_NO_FILES)}  # noqa: RUF012
    type: Literal["input_image"]
    image_url: str = ""

    @property
    def picture(self) -> tuple[str, str]:
        return "image_url", self.image_url


class AudioPart(Body):
    type: Literal["input_audio"]
    input_audio: AudioData


Part = Annotated[TextPart | RefusalPart | ImagePart | AudioPart, Field(discriminator="type")]


class FunctionCall(Body):
    name: str
    arguments: str


class ToolCall(Body):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Body):
    """One entry of a chat. "developer" is OpenAI's newer name of "system"."""

    refused = {  # noqa: RUF012
        "audio": Refusal("is not supported: an answer of an earlier talk is needed as text"),
        "function_call": Refusal("is not supported: tool_calls are"),
    }
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _tools_where_they_belong(self) -> ChatMessage:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls are only an assistant's")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("tool_call_id is needed with role tool, and only there")
        return self

    @property
    def text(self) -> str:
        """Its words; parts of text are joined by line ends."""
        if isinstance(self.content, list):
            parts = (part for part in self.content if isinstance(part, TextPart | InputText | RefusalPart))
            return "\n".join(part.text for part in parts)
        return self.content or self.refusal or ""


_NOT_HERE = "is not supported by this model"
_REFUSED: Mapping[str, Refusal] = {
    **dict.fromkeys(
        ("allowed_token_ids", "logprob_token_ids", "bad_words", "prompt_logprobs", "truncate_prompt_tokens"),
        Refusal(_NOT_HERE, ([],)),
    ),
    **dict.fromkeys(
        ("use_beam_search", "include_stop_str_in_output", "return_token_ids", "return_tokens_as_token_ids"),
        Refusal(_NOT_HERE, (False,)),
    ),
    **dict.fromkeys(
        ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        Refusal("is not supported: response_format is"),
    ),
    "skip_special_tokens": Refusal(_NOT_HERE, (True,)),
    "repetition_detection": Refusal(_NOT_HERE),
    "thinking_token_budget": Refusal(_NOT_HERE, (-1,)),
}
"""What vLLM's server takes and would change the answer."""


class Sampling(ModelBody):
    """How text is made, at every endpoint. Unset: as the model's configuration says."""

    refused = _REFUSED
    stream: bool = False
    temperature: Number | None = Field(default=None, ge=0, le=2)
    top_p: Number | None = Field(default=None, gt=0, le=1)
    top_k: Whole | None = Field(default=None, ge=-1)
    seed: Whole | None = None
    stop: str | list[str] | None = None
    min_p: Number | None = Field(default=None, ge=0, lt=1)
    presence_penalty: Number | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: Number | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: Number | None = Field(default=None, gt=0, le=10)
    logit_bias: dict[str, Number] | None = None
    min_tokens: Whole | None = Field(default=None, ge=0)
    ignore_eos: bool | None = None
    stop_token_ids: list[Whole] | None = None
    cache_salt: str | None = Field(default=None, min_length=1, max_length=256)

    def options(self, choice: int = 0) -> Options:
        """The client's options of one of the choices."""
        options: Options = Options(**self.model_dump(include=_SAMPLING))  # type: ignore[typeddict-item]
        options["seed"] = None if self.seed is None else (self.seed + choice) % (1 << 64)
        options["logit_bias"] = self.logit_bias or None
        return options

    def own_name(self, sentence: str) -> str:
        """What the model, or its client, says of a field, with the field's name in this request in front."""
        return sentence


_SAMPLING = Sampling.model_fields.keys() - {"model", "stream"}


class Generation(Sampling):
    """What chat and text completions share."""

    stream_options: StreamOptions | None = None
    n: Whole = Field(default=1, ge=1, le=MAX_CHOICES)
    max_tokens: Whole | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _usage_only_in_streams(self) -> Generation:
        if self.stream_options and not self.stream:
            raise ValueError("stream_options: only allowed when stream is true")
        return self

    @property
    def wants_usage(self) -> bool:
        """Whether the stream's last chunk is to have the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def answers(self) -> int:
        """How many answers are asked for."""
        return self.n

    def options(self, choice: int = 0) -> Options:
        """Each of several choices has a seed of its own, so that no two are alike."""
        options = super().options(choice)
        options["max_tokens"] = self.max_tokens
        if self.seed is None and self.n > 1:
            options["seed"] = secrets.randbits(63)
        return options


Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


def _shallow(schema: dict[str, Any]) -> dict[str, Any]:
    if nested_beyond(schema, MAX_NESTING):
        raise ValueError(f"is nested too deeply: at most {MAX_NESTING} levels are taken")
    return schema


Schema = Annotated[dict[str, Any], AfterValidator(_shallow)]


def form_for_model(kind: str, schema: Mapping[str, Any] | None, strict: bool | None) -> dict[str, Any] | None:
    """A form as the model takes it; None: any text."""
    if schema is None:
        return None if kind == "text" else {"type": kind}
    return {"type": kind, "json_schema": {"schema": schema, "strict": bool(strict)}}


class JsonSchema(Body):
    name: Name
    schema_: Schema = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _strict_enough(self) -> JsonSchema:
        if self.strict:
            check_strict(self.schema_)
        return self


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_where_it_belongs(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema is needed with type json_schema, and only there")
        return self

    def for_model(self) -> dict[str, Any] | None:
        named = self.json_schema
        schema, strict = (named.schema_, named.strict) if named else (None, None)
        return form_for_model(self.type, schema, strict)


class Function(Body):
    name: Name
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _strict_enough(self) -> Function:
        if self.strict and self.parameters:
            check_strict(self.parameters)
        return self


class Tool(Body):
    type: Literal["function"]
    function: Function


class FunctionName(Body):
    name: str


class NamedTool(Body):
    type: Literal["function"]
    function: FunctionName


class Allowed(Body):
    mode: Literal["auto", "required"]
    tools: list[NamedTool]


class AllowedTools(Body):
    type: Literal["allowed_tools"]
    allowed_tools: Allowed


def template_kwargs(given: Mapping[str, Any] | None, effort: str | None) -> Mapping[str, Any] | None:
    """What the chat template is given. One that does not know `reasoning_effort` takes no notice of it."""
    own = {} if effort is None else {"reasoning_effort": effort}
    return {**own, **(given or {})} or None


def check_strict(schema: Any) -> None:
    """Raises ValueError where OpenAI's strict mode does: properties without names, or that may be missing."""
    if isinstance(schema, list):
        for one in schema:
            check_strict(one)
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            raise ValueError("strict needs 'additionalProperties': false in every object")
        required = schema.get("required")
        for name in properties if isinstance(properties, dict) else ():
            if not isinstance(required, list) or name not in required:
                raise ValueError(f"strict needs every property in 'required': '{name}' is not")
    for key, value in schema.items():
        # The keys of these are names, not keywords.
        if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
            check_strict(list(value.values()))
        elif key in ("items", "anyOf", "allOf", "oneOf", "prefixItems"):
            check_strict(value)


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

    refused = {  # noqa: RUF012
        **_REFUSED,
        "modalities": Refusal("other than ['text'] are not supported by this model", (["text"], [])),
        "functions": Refusal("are not supported: tools are", ([],)),
        "function_call": Refusal("is not supported: tool_choice is", ("none", "auto")),
        "web_search_options": Refusal("is not supported: this server searches nothing"),
        "documents": Refusal(f"{_NOT_HERE}: put them into the messages", ([],)),
        "chat_template": Refusal("is not supported: the model's own is used"),
        "add_special_tokens": Refusal("is not supported: the chat template writes them", (False,)),
        "echo": Refusal("is not supported in chats", (False,)),
    }
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: Whole | None = Field(default=None, ge=1)
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    tools: list[Tool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: (
        Literal["none", "auto", "required"]
        | Annotated[NamedTool | AllowedTools, Field(discriminator="type")]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Schema | None = None
    reasoning_effort: str | None = None
    truncation: Literal["auto", "disabled"] | None = None  # as /v1/responses has it

    @property
    def calls_tools(self) -> bool:
        """Whether the answer may be calls of functions."""
        return bool(self.tools) and self.tool_choice != "none"

    def refuse_unsupported(self) -> None:
        """Raises: ApiError naming the field."""
        if not self.tools and self.tool_choice not in (None, "none", "auto"):
            raise invalid("tool_choice is only allowed when tools are given")
        if isinstance(self.tool_choice, AllowedTools) and not self._allowed(self.tool_choice):
            raise invalid("tool_choice: its tools are none of those that are given")
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs is only allowed when logprobs is true")

    def options(self, choice: int = 0) -> Options:
        options = super().options(choice)
        options["max_tokens"] = self.max_completion_tokens or self.max_tokens
        options["response_format"] = self.response_format.for_model() if self.response_format else None
        options["top_logprobs"] = (self.top_logprobs or 0) if self.logprobs else None
        options["add_generation_prompt"] = self.add_generation_prompt
        options["continue_final_message"] = self.continue_final_message
        options["chat_template_kwargs"] = template_kwargs(self.chat_template_kwargs, self.reasoning_effort)
        options["truncation"] = self.truncation
        if self.tools:
            tools: Sequence[Tool] = self.tools
            which: Any = self.tool_choice
            if isinstance(which, AllowedTools):
                tools, which = self._allowed(which), which.allowed_tools.mode
            options["tools"] = [tool.model_dump(exclude_none=True) for tool in tools]
            options["tool_choice"] = which.model_dump() if isinstance(which, NamedTool) else which
            options["parallel_tool_calls"] = self.parallel_tool_calls
        return options

    def _allowed(self, choice: AllowedTools) -> list[Tool]:
        names = {one.function.name for one in choice.allowed_tools.tools}
        return [tool for tool in self.tools or () if tool.function.name in names]

    def own_name(self, sentence: str) -> str:
        renamed = self.max_completion_tokens is not None
        return re.sub(r"^max_tokens\b", "max_completion_tokens", sentence) if renamed else sentence


class CompletionRequest(Generation):
    """POST /v1/completions: prompts, as texts or token ids, are continued as they stand."""

    refused = {  # noqa: RUF012
        **_REFUSED,
        "prompt_embeds": Refusal(_NOT_HERE),
        "add_special_tokens": Refusal("is not supported: the tokenizer adds them as it wants", (True,)),
        "suffix": Refusal(
            "is not supported: write the model's fill-in-the-middle tokens into the prompt", ("",)
        ),
    }
    prompt: str | list[str] | list[int] | list[list[int]]
    echo: bool = False
    best_of: Whole | None = None
    response_format: ResponseFormat | None = None
    logprobs: Whole | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        given: Any = self.prompt
        return [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else given

    @property
    def answers(self) -> int:
        return len(self.prompts) * self.n

    def refuse_unsupported(self) -> None:
        """Raises: ApiError naming the field."""
        if not 0 < self.answers <= MAX_ANSWERS:
            raise invalid(
                f"prompt: {self.answers} answers are asked for, n for each: 1 to {MAX_ANSWERS} are given"
            )
        for index, prompt in enumerate(self.prompts):
            if isinstance(prompt, list) and not (prompt and all(0 <= id < 1 << 31 for id in prompt)):
                raise invalid(f"prompt[{index}]: a list of token ids is needed, at least one")
        if self.echo and self.logprobs is None and not all(isinstance(one, str) for one in self.prompts):
            raise unsupported("echo", "is not supported beside prompts of token ids without logprobs")
        if self.best_of is not None and self.best_of != self.n:
            raise unsupported("best_of", f"is {self.best_of} and n is {self.n}: this server takes equal ones")

    def own_name(self, sentence: str) -> str:
        sentence = re.sub(r"^(text_input|prompt_token_ids)\b", "prompt", sentence)
        return re.sub(r"^(top|prompt)_logprobs\b", "logprobs", sentence)

    def options(self, choice: int = 0) -> Options:
        options = super().options(choice)
        options["response_format"] = self.response_format.for_model() if self.response_format else None
        of_prompt = self.logprobs if self.echo else None
        return Options(
            **options, top_logprobs=self.logprobs, prompt_logprobs=of_prompt, apply_chat_template=False
        )
