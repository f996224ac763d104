"""Values of a run of a golden set: answers, times and cache outcomes by case, and what served them.

A stored run is a baseline: it is written in one step, and damage is told in one sentence.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimodal.errors import OperatorError

_Count = Annotated[int, Field(ge=0)]
_Milliseconds = Annotated[float, Field(ge=0)]
Metric = Literal["ttft", "tpot", "total", "heard", "saw"]
METRICS: tuple[Metric, ...] = get_args(Metric)


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RecordedAnswer(_Stored):
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
    answers: tuple[RecordedAnswer, ...]
    observations: tuple[Observation, ...] = Field(min_length=1)

    @property
    def responses(self) -> list[RecordedAnswer]:
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


class RecordedRun(_Stored):
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


def baseline_path(golden: Path) -> Path:
    """Where a golden set's baseline lies by default: golden.baseline.json beside golden.jsonl."""
    return golden.with_name(f"{golden.stem}.baseline.json")


def check_writable(path: Path, golden: Path) -> None:
    """Checks, before minutes of requests, that a baseline can be written.

    Raises:
        OperatorError: no baseline can be written there, or what is there must not be replaced by one.
    """
    if path.exists() and (not path.is_file() or path.samefile(golden)):
        what = "the golden set itself" if path.is_file() else "no file"
        raise OperatorError(f"{path} is {what}: name another file with --baseline")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        reason = "permission denied" if path.parent.is_dir() else "no such directory"
        raise OperatorError(f"{path} cannot be written: {reason}")


def write_baseline(path: Path, run: RecordedRun) -> None:
    """Replaces the file; a reader meanwhile sees the old one or the new one.

    Raises:
        OperatorError: it cannot be written.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(run.model_dump_json(indent=1, exclude_defaults=True) + "\n")
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would keep it from others who share the golden set
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise OperatorError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


def read_baseline(path: Path) -> RecordedRun:
    """Reads a recorded run. Raises OperatorError: there is none, or it cannot be read; says what to do."""
    try:
        run = RecordedRun.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise OperatorError(
            f"no baseline {path}: record one with --record, or name it with --baseline"
        ) from None
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "JSON"
        raise OperatorError(f"{path} is no baseline ({place}): record it again with --record") from None
    for name, record in run.cases.items():
        if any(not 0 <= one.answer < len(record.answers) for one in record.observations):
            raise OperatorError(f"{path} is damaged (cases.{name}): record it again with --record")
    return run
