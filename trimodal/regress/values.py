"""Values of a run of a golden set: answers, times and cache outcomes by case, and what served them.

A stored run is a baseline.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

_Count = Annotated[int, Field(ge=0)]
_Milliseconds = Annotated[float, Field(ge=0)]
Metric = Literal["ttft", "tpot", "total", "heard", "saw"]
METRICS: tuple[Metric, ...] = get_args(Metric)


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Said(_Stored):
    """One answer, whatever the task; two that are equal are the same answer.

    Attributes:
        text: of llm, speech and assistant; with `error`, the sentence.
        heard: what the assistant heard.
        labels: (label, score to four digits), best first.
        vector: of an embedding, to five digits.
        error: code of a refusal, such as UNAVAILABLE, or TIMEOUT; empty: there is an answer.
        cosine: to the case's `expect.text`; None: not asked for.
    """

    text: str = ""
    heard: str = ""
    finish_reason: str = ""
    labels: tuple[tuple[str, float], ...] = ()
    vector: tuple[float, ...] = ()
    error: str = ""
    cosine: float | None = None


class Observation(_Stored):
    """One request. Times in milliseconds; None: the task has no such time.

    Attributes:
        answer: which of the record's `answers` it got.
        first: it was the case's first one; its times are not compared.
        heard, saw: of the assistant's stages.
        cache: outcome, as in `Note`. tokens: completion tokens.
    """

    answer: int
    first: bool = False
    ttft: _Milliseconds | None = None
    tpot: _Milliseconds | None = None
    total: _Milliseconds = 0.0
    heard: _Milliseconds | None = None
    saw: _Milliseconds | None = None
    prompt_tokens: _Count = 0
    cached_tokens: _Count = 0
    tokens: _Count = 0
    cache: str = ""
    similarity: float = 0.0


class Record(_Stored):
    """One case: its distinct answers in the order they came, and each request."""

    task: str
    digest: str
    answers: tuple[Said, ...]
    observations: tuple[Observation, ...] = Field(min_length=1)

    @property
    def said(self) -> list[Said]:
        """The answer of each request."""
        return [self.answers[one.answer] for one in self.observations]


class ServedModel(_Stored):
    """A model that was ready: its version and the parameters of its config.pbtxt."""

    version: str
    parameters: dict[str, str] = Field(default_factory=dict)


class Server(_Stored):
    """What answered. Parameters with passwords in URLs are kept without them."""

    name: str = ""
    version: str = ""
    models: dict[str, ServedModel] = Field(default_factory=dict)


class Run(_Stored):
    """A golden set asked of a server, by case id.

    Attributes:
        control: milliseconds of the same work without any model, ten times a round: how fast the machine
            was.
    """

    # No defaults: they would be left out of the file.
    schema_version: Literal[1]
    recorded_at: str
    concurrency: int = Field(1, ge=1)
    control: tuple[Annotated[float, Field(gt=0)], ...] = ()
    server: Server = Server()
    cases: dict[str, Record] = Field(default_factory=dict)
