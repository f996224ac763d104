"""Declares the requests for chat and text completions, with their limits; the server checks its own.

A field that is not declared is refused by name. Those of OpenAI's API that this server does not have are
refused by `refuse_unsupported`, unless they ask for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from trimodal.client.options import Options
from trimodal.gateway.errors import invalid, unsupported
from trimodal.llm.structured.reading import MAX_NESTING, nested_beyond

MAX_CHOICES = 16
MAX_MESSAGES = 1024
MAX_TOOLS = 64
MAX_TOP_LOGPROBS = 20


ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class Body(BaseModel):
    """A JSON object without unknown keys; numbers are not made of texts."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False


class Url(Body):
    url: str
    detail: Literal["auto", "low", "high"] | None = None


class AudioData(Body):
    data: str
    format: Literal["wav", "mp3", "flac", "ogg"]


class TextPart(Body):
    type: Literal["text"]
    text: str


class ImagePart(Body):
    type: Literal["image_url"]
    image_url: Url


class AudioPart(Body):
    type: Literal["input_audio"]
    input_audio: AudioData


Part = Annotated[TextPart | ImagePart | AudioPart, Field(discriminator="type")]


class FunctionCall(Body):
    name: str
    arguments: str
    parsed_arguments: Any = None  # of OpenAI's client, which sends its own objects back


class ToolCall(Body):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Body):
    """One entry of a chat. "developer" is OpenAI's newer name of "system"."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    # What answers have, and come back with them.
    refusal: str | None = None
    parsed: Any = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

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
            return "\n".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""


class Generation(Body):
    """What chat and text completions share. Unset: as the model's configuration says."""

    model: ModelName
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    seed: int | None = None
    stop: str | list[str] | None = None
    min_p: float | None = Field(default=None, ge=0, lt=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    logit_bias: dict[str, float] | None = None
    # They change nothing here.
    user: str | None = None

    @model_validator(mode="after")
    def _usage_only_in_streams(self) -> Generation:
        if self.stream_options and not self.stream:
            raise ValueError("stream_options: only allowed when stream is true")
        return self

    @property
    def wants_usage(self) -> bool:
        """Whether the stream's last chunk is to have the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def refuse_unsupported(self) -> None:
        """Raises: ApiError naming the field."""
        if self.logit_bias:
            raise unsupported("logit_bias", "is not supported by this model")

    def options(self, choice: int) -> Options:
        """The client's options; each choice of a seeded request has a seed of its own."""
        seed = None if self.seed is None else (self.seed + choice) % (1 << 64)
        return Options(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            seed=seed,
            stop=self.stop,
        )


Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


def _shallow(schema: dict[str, Any]) -> dict[str, Any]:
    if nested_beyond(schema, MAX_NESTING):
        raise ValueError(f"is nested too deeply: at most {MAX_NESTING} levels are taken")
    return schema


Schema = Annotated[dict[str, Any], AfterValidator(_shallow)]


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
        """As the model takes it; None: any text."""
        if self.json_schema is None:
            return None if self.type == "text" else {"type": self.type}
        return {"type": self.type, "json_schema": {"schema": self.json_schema.schema_}}


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

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    tools: list[Tool] | None = Field(default=None, min_length=1, max_length=MAX_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None  # as /v1/responses has it
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    @property
    def calls_tools(self) -> bool:
        """Whether the answer may be calls of functions."""
        return bool(self.tools) and self.tool_choice != "none"

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if not self.tools:
            for field in ("tool_choice", "parallel_tool_calls"):
                if getattr(self, field) not in (None, "none"):
                    raise invalid(f"{field} is only allowed when tools are given")
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs is only allowed when logprobs is true")
        if self.modalities and self.modalities != ["text"]:
            raise unsupported("modalities", "other than ['text'] are not supported by this model")
        if self.store:
            raise unsupported("store", "is not supported: this server keeps no conversations")

    def options(self, choice: int) -> Options:
        options = super().options(choice)
        options["max_tokens"] = self.max_completion_tokens or self.max_tokens
        options["response_format"] = self.response_format.for_model() if self.response_format else None
        options["top_logprobs"] = (self.top_logprobs or 0) if self.logprobs else None
        options["truncation"] = self.truncation
        if self.tools:
            which = self.tool_choice
            options["tools"] = [tool.model_dump(exclude_none=True) for tool in self.tools]
            options["tool_choice"] = which.model_dump() if isinstance(which, NamedTool) else which
            options["parallel_tool_calls"] = self.parallel_tool_calls
        return options


class CompletionRequest(Generation):
    """POST /v1/completions: prompts are continued as they stand; those of token ids are not taken."""

    prompt: str | list[str]
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.suffix:
            raise unsupported("suffix", "is not supported by this model")
        if self.echo and self.logprobs is not None:
            raise unsupported("echo", "is not supported beside logprobs: prompts have none here")
        if self.best_of is not None and self.best_of != self.n:
            raise unsupported("best_of", f"is {self.best_of} and n is {self.n}: this server takes equal ones")

    def options(self, choice: int) -> Options:
        return Options(**super().options(choice), top_logprobs=self.logprobs, apply_chat_template=False)
