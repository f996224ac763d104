"""Declares what session.update and response.create may set; what is left out stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from trimodal.audio.languages import is_language
from trimodal.audio.values import Delay
from trimodal.client.streams.live import Listening
from trimodal.gateway.errors import ApiError, invalid, invalid_body, unsupported
from trimodal.gateway.media import spoken_model, with_keywords
from trimodal.gateway.openai.schemas import MAX_TOOLS, Name, Schema
from trimodal.gateway.realtime.hearing.decoder import PCM
from trimodal.gateway.realtime.hearing.turn import SPEECH
from trimodal.speech.values import MAX_PROMPT

# Of `include`, ours: OpenAI's API has no words that may still change.
TENTATIVE = "item.input_audio_transcription.tentative"
# Of OpenAI's API; taken where they ask for nothing.
_UNSUPPORTED = {
    *(f"session.{name}" for name in ("truncation.token_limits", "audio.output")),
    *(f"session.audio.input.{name}" for name in ("noise_reduction", "turn_detection.idle_timeout_ms")),
    "session.audio.input.transcription.languages",
    *(f"response.{name}" for name in ("input", "audio")),
    *(f"{place}.{name}" for name in ("prompt", "reasoning", "tracing") for place in ("session", "response")),
}
_TAGS = ("server_vad", "semantic_vad")  # pydantic's, within the places of errors
_MOST_TOKENS = (1 << 31) - 1  # the model's input is an int32
_NOTHING: tuple[object, ...] = (None, [], {}, "", "auto", "none")


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AudioFormat(_Fields):
    """`rate` is of PCM; G.711 has one."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: Literal[8_000, 16_000, 24_000] = 24_000


class TranscriptionSettings(_Fields):
    model: Annotated[Literal["speech"], BeforeValidator(spoken_model)] = "speech"
    language: str | None = Field(default=None, max_length=16)
    prompt: str | None = Field(default=None, max_length=MAX_PROMPT)
    keywords: list[str] | None = None
    delay: Delay | None = None

    @property
    def listening(self) -> Listening:
        """What a turn's stream is asked for."""
        prompt = with_keywords(self.keywords or (), self.prompt)
        return {"language": self.language, "prompt": prompt, "delay": self.delay}

    @field_validator("language")
    @classmethod
    def _known(cls, language: str | None) -> str | None:
        if language and not is_language(language):
            raise ValueError(f"'{language}' is not known: a language as 'en', 'en-US' or 'English' is needed")
        return language

    @field_validator("keywords")
    @classmethod
    def _bounded(cls, keywords: list[str] | None, others: ValidationInfo) -> list[str] | None:
        with_keywords(keywords or (), others.data.get("prompt"))
        return keywords


class _TurnDetection(_Fields):
    create_response: bool = True
    interrupt_response: bool = True


class ServerVad(_TurnDetection):
    type: Literal["server_vad"]
    threshold: float = Field(default=0.5, ge=0, le=1)
    prefix_padding_ms: int = Field(default=300, ge=0, le=5_000)
    silence_duration_ms: int = Field(default=500, ge=100, le=10_000)


class SemanticVad(_TurnDetection):
    """A silence ends a turn that is as long as its audio and words ask for."""

    type: Literal["semantic_vad"]
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"


class AudioInput(_Fields):
    format: AudioFormat = AudioFormat()
    transcription: TranscriptionSettings | None = TranscriptionSettings()
    turn_detection: Annotated[ServerVad | SemanticVad, Field(discriminator="type")] | None = ServerVad(
        type="server_vad"
    )


class Audio(_Fields):
    input: AudioInput = AudioInput()


class _Session(_Fields):
    include: list[str] | None = None  # TENTATIVE, or nothing

    @property
    def tentative(self) -> bool:
        """Whether words are sent that may still change."""
        return bool(self.include)


class TranscriptionSession(_Session):
    """What was heard is written down."""

    type: Literal["transcription"] = "transcription"
    audio: Audio = Audio()


class RetentionRatio(_Fields):
    """Which share of the model's room a talk keeps when it is trimmed."""

    type: Literal["retention_ratio"]
    retention_ratio: float = Field(ge=0, le=1)


class Tool(_Fields):
    """A function that an answer may call."""

    type: Literal["function"] = "function"
    name: Name
    description: str | None = None
    parameters: Schema | None = None


class NamedFunction(_Fields):
    type: Literal["function"]
    name: str


def _countable(value: object) -> object:
    if value != "inf" and not (type(value) is int and 1 <= value <= _MOST_TOKENS):
        raise ValueError(f"1 to {_MOST_TOKENS}, or 'inf', is needed")
    return value


def _distinct(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    names = [one.name for one in tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"has two functions '{twice[0]}': each name once is needed")
    return tools


MaxTokens = Annotated[int | Literal["inf"], BeforeValidator(_countable)]
Tools = Annotated[tuple[Tool, ...], Field(max_length=MAX_TOOLS), AfterValidator(_distinct)]
Choice = Literal["none", "auto", "required"] | NamedFunction


class ConversationSession(_Session):
    """What was heard, or written, is answered."""

    type: Literal["realtime"] = "realtime"
    model: Literal["llm", "assistant"] = "llm"
    output_modalities: tuple[Literal["text"]] = ("text",)
    instructions: str = ""
    max_output_tokens: MaxTokens = "inf"
    truncation: Literal["auto", "disabled"] | RetentionRatio = "auto"
    tools: Tools = ()
    tool_choice: Choice = "auto"
    parallel_tool_calls: bool = True
    deltas: Literal["tokens", "sentences"] = "tokens"  # ours: what a delta of text is at least
    audio: Audio = Audio()

    @field_validator("tools")
    @classmethod
    def _of_the_llm(cls, tools: Tools, others: ValidationInfo) -> Tools:
        if tools and others.data.get("model") == "assistant":
            raise ValueError("are not supported by the model 'assistant'")
        return tools

    @field_validator("tool_choice")
    @classmethod
    def _among_tools(cls, choice: Choice, others: ValidationInfo) -> Choice:
        names = [one.name for one in others.data.get("tools", ())]
        if names and isinstance(choice, NamedFunction) and choice.name not in names:
            raise ValueError(f"names '{choice.name:.64}', which is none of the tools")
        return choice


Config = TranscriptionSession | ConversationSession


class ResponseParams(_Fields):
    """Of one response; None: as the session says."""

    instructions: str | None = None
    max_output_tokens: MaxTokens | None = None
    output_modalities: tuple[Literal["text"]] = ("text",)
    metadata: dict[str, str] | None = None
    tools: Tools | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    deltas: Literal["tokens", "sentences"] | None = None
    conversation: Literal["auto"] = "auto"


def first_config(intent: str | None, model: str | None) -> Config:
    """The configuration that a session begins with, by the query of its URL. Raises: ApiError 404."""
    if intent == "transcription" or spoken_model(model) in (None, SPEECH):
        return TranscriptionSession()
    return read(ConversationSession, {"model": model}, "")


def updated(config: Config, update: object, named: Callable[[str], str]) -> Config:
    """The configuration with what a session.update changes; `named`: see `Caller`. Raises: ApiError."""
    if not isinstance(update, dict):
        raise invalid("session: an object is needed")
    update = _without_aliases(update, named)
    if update.get("output_modalities") == ["text"] and isinstance(update.get("audio"), dict):
        # How audio is to sound that nobody asks for: @openai/agents-realtime (0.20) always says it.
        update["audio"].pop("output", None)
    kind = update.get("type")
    if kind == "transcription":
        before: Config = config if isinstance(config, TranscriptionSession) else TranscriptionSession()
        return read(TranscriptionSession, _merged(before.model_dump(), update), "session")
    if kind == "realtime":
        before = config if isinstance(config, ConversationSession) else ConversationSession()
        return read(ConversationSession, _merged(before.model_dump(), update), "session")
    code = "invalid_value" if kind else "missing_required_parameter"
    raise invalid("session.type: 'transcription' or 'realtime' is needed", code=code)


def by_silence(config: Config) -> Config:
    """The configuration with server_vad in place of semantic_vad."""
    heard = config.audio.input
    vad = heard.turn_detection
    shared = vad.model_dump(include=set(_TurnDetection.model_fields)) if vad else {}
    silent = heard.model_copy(update={"turn_detection": ServerVad(type="server_vad", **shared)})
    return config.model_copy(update={"audio": Audio(input=silent)})


def body(config: Config) -> dict[str, Any]:
    """The configuration as session.created and session.updated have it."""
    shown = config.model_dump(mode="json")
    if config.audio.input.format.type != PCM:
        del shown["audio"]["input"]["format"]["rate"]
    if not config.include:
        del shown["include"]
    return shown


Fields = TypeVar("Fields", bound=BaseModel)


def read(kind: type[Fields], given: Mapping[str, Any], place: str) -> Fields:
    """Checks given fields. Raises: ApiError naming the one that is wrong."""
    given = _supported(given, place)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        root = tuple(place.split(".")) if place else ()
        problems = [
            {**one, "loc": ("body", *root, *(part for part in one["loc"] if part not in _TAGS))}
            for one in error.errors()
        ]
        refused = invalid_body(RequestValidationError(problems))
        if refused.param and refused.param.endswith("model"):
            refused = ApiError(404, str(refused), param=refused.param, code="model_not_found")
        raise refused from None


def _supported(given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Without the fields of OpenAI's API that ask for nothing. Raises: ApiError for those that ask."""
    kept: dict[str, Any] = {}
    for name, value in given.items():
        path = f"{place}.{name}" if place else name
        if path in _UNSUPPORTED:
            if value not in _NOTHING:
                raise unsupported(path, "is not supported by this server")
        elif path == "session.include" and value not in (None, [], [TENTATIVE]):
            raise unsupported(path, f"asks for more than '{TENTATIVE}'")
        elif name == "output_modalities" and isinstance(value, list) and "audio" in value:
            raise unsupported(path, "has 'audio': this server answers in text")
        else:
            kept[name] = _supported(value, path) if isinstance(value, dict) else value
    return kept


def _without_aliases(given: Mapping[str, Any], named: Callable[[str], str]) -> dict[str, Any]:
    """A copy with the models' own names."""
    kept = dict(given)
    for name, value in given.items():
        if isinstance(value, dict):
            kept[name] = _without_aliases(value, named)
        elif name == "model" and isinstance(value, str):
            kept[name] = named(value)
    return kept


def _merged(before: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Objects field by field; null, an object of another type and whatever else replaces."""
    merged = dict(before)
    for name, value in update.items():
        old = merged.get(name)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("type") in (None, old.get("type")):
            value = _merged(old, value)
        merged[name] = value
    return merged
