"""Defines the lines of a golden set. The server checks limits.

{"id": "a", "task": "llm", "input": {"prompt": "The capital of Japan?"}, "expect": {"contains": "Tokyo"}}
{"id": "b", "task": "vision", "input": {"image": "photos/koala.jpg"}, "expect": {"label": "koala"}}
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from trimodal.audio.values import PolicyName
from trimodal.audio.word_errors import normalise, word_error_rate
from trimodal.regress.values import RecordedAnswer

Task = TypeVar("Task", bound=str)
Input = TypeVar("Input", bound="_Strict")


class _Strict(BaseModel):
    # Strict: "12" is not the number 12. A field with a typo is refused, not ignored.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Turn(_Strict):
    """One entry of a chat."""

    role: str
    content: str


class Generating(_Strict):
    """Options of a generated answer, as the client's `Options`; what is left out is as the server says."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    tenant: str | None = None
    tier: str | None = None
    priority: int | None = None
    ttft_deadline_ms: int | None = None
    deadline_ms: int | None = None
    cache_control: str | None = None
    cache_namespace: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Those that are given."""
        return self.model_dump(include=set(Generating.model_fields), exclude_none=True)


class LlmInput(Generating):
    """A prompt, or a chat."""

    prompt: str | None = None
    messages: tuple[Turn, ...] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> LlmInput:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("one of prompt and messages is needed")
        return self


class VisionInput(_Strict):
    """An image file, relative to the golden set."""

    image: str
    top_k: int | None = Field(None, ge=1)


class SpeechInput(_Strict):
    """A recording, relative to the golden set, and how it is listened to."""

    audio: str
    policy: PolicyName | None = None
    language: str | None = None
    prompt: str | None = None


class EmbeddingInput(_Strict):
    """A text that becomes a vector."""

    text: str


class AssistantInput(Generating):
    """A question as text, as audio or both, and perhaps an image; files relative to the golden set."""

    text: str | None = None
    image: str | None = None
    audio: str | None = None


def _compiled(text: Any, compile: ValidatorFunctionWrapHandler) -> re.Pattern[str]:
    """What pydantic makes of it; it lets through what `re` raises besides its own error."""
    try:
        pattern: re.Pattern[str] = compile(text)
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"it cannot be compiled: {error}") from None
    return pattern


class Expectation(_Strict):
    """What an answer must be like, whatever it was before; all that is given must hold.

    Attributes:
        exact, contains, regex: of the answer's text. regex may match anywhere in it.
        label: the best one of an image.
        text: what was really said. wer_max: highest word error rate against it.
    """

    exact: str | None = None
    contains: str | tuple[str, ...] | None = None
    regex: Annotated[re.Pattern[str], WrapValidator(_compiled)] | None = None
    label: str | None = None
    text: str | None = None
    wer_max: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _reference(self) -> Expectation:
        if (self.wer_max is not None) != bool(normalise(self.text or "")):
            raise ValueError("wer_max goes with text, the reference to compare with")
        return self


class CaseLine(_Strict, Generic[Task, Input]):
    """One line: a case of a task."""

    id: str = Field(pattern=r"^[\w.:-]{1,64}$")
    task: Task
    input: Input
    expect: Expectation = Expectation()


Line = (
    CaseLine[Literal["llm"], LlmInput]
    | CaseLine[Literal["vision"], VisionInput]
    | CaseLine[Literal["speech"], SpeechInput]
    | CaseLine[Literal["embedding"], EmbeddingInput]
    | CaseLine[Literal["assistant"], AssistantInput]
)
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="task")])


def broken(expect: Expectation, answer: RecordedAnswer) -> str:
    """The first part of the expectation that the answer breaks, as a short text; "" when it keeps all.

    Raises:
        AudioError: the package that counts word errors is not installed.
    """
    if expect == Expectation():
        return ""
    if answer.error:
        return f"{answer.error}: {answer.text}"
    if expect.exact is not None and answer.text != expect.exact:
        return f"is not {_short(expect.exact)}"
    for part in (expect.contains,) if isinstance(expect.contains, str) else expect.contains or ():
        if part not in answer.text:
            return f"does not contain {_short(part)}"
    if expect.regex is not None and not expect.regex.search(answer.text):
        return f"does not match {_short(expect.regex.pattern)}"
    if expect.label is not None:
        best = answer.labels[0][0] if answer.labels else ""
        if best != expect.label:
            return f"label {_short(best)} is not {_short(expect.label)}"
    if expect.wer_max is not None:
        rate = word_error_rate([expect.text or ""], [answer.text])
        if rate > expect.wer_max:
            return f"word error rate {rate:.3f} is above {expect.wer_max:g}"
    return ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
