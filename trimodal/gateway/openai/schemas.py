"""Declares the requests of OpenAI's API that are taken, with their limits; the server checks its own.

A field that is not declared is refused by name. Fields that change nothing here are in IGNORED; those that
this server does not have are refused by `Generation.refuse_unsupported` unless they ask for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trimodal.client.options import Options
from trimodal.client.values import Message
from trimodal.gateway.errors import unsupported

MAX_CHOICES = 16
MAX_MESSAGES = 1024
MAX_TEXTS = 2048


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


class ChatMessage(Body):
    """One entry of a chat. "developer" is OpenAI's newer name of "system"."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        """Its words; parts of text are joined by line ends."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""


class Generation(Body):
    """What chat and text completions share. Unset: as the model's configuration says."""

    model: str = Field(min_length=1, max_length=256)
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


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[str] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.response_format and self.response_format.type != "text":
            raise unsupported(
                "response_format", f"'{self.response_format.type}' is not supported by this model"
            )
        for field in ("logprobs", "top_logprobs"):
            if getattr(self, field):
                raise unsupported(field, "is not supported by this model")
        if self.tools and self.tool_choice != "none":
            raise unsupported("tools", "are not supported by this model")
        if self.modalities and self.modalities != ["text"]:
            raise unsupported("modalities", "other than ['text'] are not supported by this model")
        if self.store:
            raise unsupported("store", "is not supported: this server keeps no conversations")

    def options(self, choice: int) -> Options:
        options = super().options(choice)
        options["max_tokens"] = self.max_completion_tokens or self.max_tokens
        return options


class CompletionRequest(Generation):
    """POST /v1/completions; prompts of token ids are not taken."""

    prompt: str | list[str]
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None
    logprobs: int | None = None

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.suffix:
            raise unsupported("suffix", "is not supported by this model")
        if self.logprobs is not None:
            raise unsupported("logprobs", "is not supported by this model")
        if self.best_of is not None and self.best_of != self.n:
            raise unsupported("best_of", f"is {self.best_of} and n is {self.n}: this server takes equal ones")


class InputText(Body):
    """A part of a message to /v1/responses. What was answered comes back with all of its fields."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputMessage(Body):
    """One entry of a talk with /v1/responses."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[InputText]
    id: str | None = None
    status: str | None = None
    phase: str | None = None

    @property
    def message(self) -> Message:
        """As the llm takes it."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return {"role": role, "content": self.content}
        return {"role": role, "content": "\n".join(part.text for part in self.content)}


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"]


class TextOptions(Body):
    format: TextFormat | None = None
    verbosity: str | None = None


class ResponseRequest(Body):
    """POST /v1/responses: text in, text out; nothing is kept for a later request."""

    model: str = Field(min_length=1, max_length=256)
    input: str | Annotated[list[InputMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    text: TextOptions | None = None
    tools: list[dict[str, Any]] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    store: bool | None = None
    top_logprobs: int | None = None
    metadata: dict[str, str] | None = None
    # They change nothing here.
    include: list[str] | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    truncation: str | None = None
    user: str | None = None

    @property
    def messages(self) -> list[Message]:
        """The talk as the llm takes it."""
        talk: list[Message] = []
        if self.instructions:
            talk.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*talk, {"role": "user", "content": self.input}]
        return talk + [one.message for one in self.input]

    def refuse_unsupported(self) -> None:
        """Raises: ApiError naming the field."""
        for field in ("previous_response_id", "conversation", "background", "store"):
            if getattr(self, field):
                raise unsupported(field, "is not supported: this server keeps no responses")
        if self.tools:
            raise unsupported("tools", "are not supported at this endpoint: use /v1/chat/completions")
        if self.top_logprobs:
            raise unsupported("top_logprobs", "is not supported at this endpoint")
        if self.text and self.text.format and self.text.format.type != "text":
            kind = f"'{self.text.format.type}' is not supported at this endpoint: use /v1/chat/completions"
            raise unsupported("text.format.type", kind)

    def options(self) -> Options:
        """The client's options."""
        return Options(max_tokens=self.max_output_tokens, temperature=self.temperature, top_p=self.top_p)


class EmbeddingRequest(Body):
    """POST /v1/embeddings."""

    model: str = Field(min_length=1, max_length=256)
    input: (
        Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class ClassificationRequest(Body):
    """POST /v1/images/classifications: data URLs of JPEG, PNG or WebP files."""

    model: str = Field(default="vision", min_length=1, max_length=256)
    input: str | Annotated[list[str], Field(min_length=1, max_length=64)]
    top_k: int | None = Field(default=None, ge=1)
