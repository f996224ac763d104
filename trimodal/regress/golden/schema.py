"""Defines the lines of a golden set. The server checks limits.

{"id": "lambda", "task": "llm", "input": {"prompt": "what is a lambda?"}, "expect": {"contains": "L"}}
{"id": "seven", "task": "vision", "input": {"image": "samples/seven.png"}, "expect": {"label": "7"}}
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator, model_validator

from trimodal.errors import OperatorError
from trimodal.regress.values import RecordedAnswer

MAX_REPEAT = 1000
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
    policy: Literal["live", "agreement", "vad", "window"] | None = None
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

    @model_validator(mode="after")
    def _a_question(self) -> AssistantInput:
        if self.text is None and self.audio is None:
            raise ValueError("at least one of text and audio is needed")
        return self


class Expectation(_Strict):
    """What an answer must be like, whatever it was before; all that is given must hold.

    Attributes:
        exact, contains, regex: of the answer's text. regex may match anywhere in it.
        label: the best one of an image.
        text: what was really said or meant, for the two below.
        wer_max: highest word error rate against `text`.
        similarity_min: lowest cosine of the embeddings of the answer (task embedding: of the
            input) and of `text`, made by the server's embedding model.
    """

    exact: str | None = None
    contains: str | tuple[str, ...] | None = None
    regex: str | None = None
    label: str | None = None
    text: str | None = None
    wer_max: float | None = Field(None, ge=0)
    similarity_min: float | None = Field(None, ge=-1, le=1)

    @field_validator("regex")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"it is no regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _reference(self) -> Expectation:
        needs = self.wer_max is not None or self.similarity_min is not None
        if needs and not (self.text or "").strip():
            raise ValueError("wer_max and similarity_min need text, the reference to compare with")
        if self.text is not None and not needs:
            raise ValueError("text alone checks nothing: add wer_max or similarity_min, or use exact")
        return self

    @property
    def contained(self) -> tuple[str, ...]:
        """The parts that the text must hold."""
        return (self.contains,) if isinstance(self.contains, str) else self.contains or ()


class CaseLine(_Strict, Generic[Task, Input]):
    """One line: a case of a task."""

    id: str = Field(pattern=r"^[\w.:-]{1,64}$")
    task: Task
    input: Input
    expect: Expectation = Expectation()
    repeat: int | None = Field(None, ge=1, le=MAX_REPEAT)

    @model_validator(mode="after")
    def _can_be_checked(self) -> CaseLine[Task, Input]:
        task, expect = self.task, self.expect
        if expect.label is not None and task not in ("vision", "assistant"):
            raise ValueError(f"expect.label: the task {task} gives no labels")
        texts = [expect.exact, expect.contains, expect.regex, expect.wer_max]
        if task in ("vision", "embedding") and any(value is not None for value in texts):
            raise ValueError(f"expect: the task {task} gives no text to check")
        if task == "vision" and expect.similarity_min is not None:
            raise ValueError("expect.similarity_min: the task vision gives no text to compare")
        return self


Line = (
    CaseLine[Literal["llm"], LlmInput]
    | CaseLine[Literal["vision"], VisionInput]
    | CaseLine[Literal["speech"], SpeechInput]
    | CaseLine[Literal["embedding"], EmbeddingInput]
    | CaseLine[Literal["assistant"], AssistantInput]
)
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="task")])


def broken(expect: Expectation, answer: RecordedAnswer) -> str:
    """The first part of the expectation that the answer breaks, as a short text; "" when it keeps all."""
    if expect == Expectation():
        return ""
    if answer.error:
        return f"{answer.error}: {answer.text}"
    if expect.exact is not None and answer.text != expect.exact:
        return f"is not {_short(expect.exact)}"
    for part in expect.contained:
        if part not in answer.text:
            return f"does not contain {_short(part)}"
    if expect.regex is not None and not re.search(expect.regex, answer.text):
        return f"does not match {_short(expect.regex)}"
    if expect.label is not None:
        best = answer.labels[0][0] if answer.labels else ""
        if best != expect.label:
            return f"label {_short(best)} is not {_short(expect.label)}"
    reference = expect.text or ""
    if expect.wer_max is not None and (rate := word_errors(reference, answer.text)) > expect.wer_max:
        return f"word error rate {rate:.3f} is above {expect.wer_max:g}"
    if expect.similarity_min is not None:
        if answer.cosine is None:
            return "no text to compare"
        if answer.cosine < expect.similarity_min:
            return f"similarity {answer.cosine:.3f} is below {expect.similarity_min:g}"
    return ""


def word_errors(reference: str, heard: str) -> float:
    """Word error rate of `heard` against `reference`, as the field counts it, without case and punctuation.

    Raises:
        OperatorError: the package for it is not installed.
    """
    from trimodal.audio.word_errors import normalise, word_error_rate

    if not normalise(reference):
        return float(bool(normalise(heard)))
    try:
        return word_error_rate([reference], [heard])
    except ImportError:
        raise OperatorError("word error rates need jiwer: pip install 'trimodal[audio]'") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
