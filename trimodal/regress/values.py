"""Values of a run of a golden set (answers, times and cache outcomes by case), and a difference of two runs.

A stored run is a baseline: it is written in one step, and damage is told in one sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimodal.errors import OperatorError
from trimodal.files import read_at_most, replace_file

_Milliseconds = Annotated[float, Field(ge=0)]
Metric = Literal["ttft", "tpot", "total"]
METRICS: tuple[Metric, ...] = get_args(Metric)

Verdict = Literal["worse", "known", "changed", "better"]
# In the order in which they are shown.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RecordedAnswer(_Stored):
    """One answer, whatever the task; two that are equal are the same answer.

    Attributes:
        text: of llm, speech and assistant; with `error`, the sentence.
        labels: (label, score to four digits), best first.
        vector: of an embedding, to five digits.
        error: code of a refusal, such as UNAVAILABLE, or TIMEOUT; empty: there is an answer.
    """

    text: str = ""
    finish_reason: str = ""
    labels: tuple[tuple[str, float], ...] = ()
    vector: tuple[float, ...] = ()
    error: str = ""


class Observation(_Stored):
    """One request. Times in milliseconds; None: the task has no such time.

    Attributes:
        cache: outcome, as in `Note`. tokens: completion tokens.
    """

    answer: RecordedAnswer
    ttft: _Milliseconds | None = None
    tpot: _Milliseconds | None = None
    total: _Milliseconds = 0.0
    tokens: Annotated[int, Field(ge=0)] = 0
    cache: str = ""


class Record(_Stored):
    """One case and its requests, in the order they were sent."""

    task: str
    digest: str
    observations: tuple[Observation, ...] = Field(min_length=1)

    @property
    def answers(self) -> list[RecordedAnswer]:
        """The distinct answers in the order they came."""
        return list(dict.fromkeys(one.answer for one in self.observations))


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
    """A golden set asked of a server, by case id."""

    # No defaults: they would be left out of the file.
    schema_version: Literal[2]
    recorded_at: str
    server: Server = Server()
    cases: dict[str, Record] = Field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One difference.

    Attributes:
        case: its id, or a group of cases such as "all llm".
        what: answer, expectation, cache, case, or a time (ttft, tpot, total).
        verdict: worse fails the run; known: a broken expectation that was broken before.
        p: chance of such a difference without a change, corrected for all that is tested;
            None: not a matter of chance.
    """

    case: str
    what: str
    verdict: Verdict
    before: str
    after: str
    detail: str = ""
    p: float | None = None


def write_baseline(path: Path, run: RecordedRun) -> None:
    """Replaces the file; a reader meanwhile sees the old one or the new one. Raises: OSError."""
    replace_file(path, run.model_dump_json(indent=1, exclude_defaults=True).encode() + b"\n")


def read_baseline(path: Path) -> RecordedRun:
    """Reads a recorded run. Raises: OSError; OperatorError saying what to do."""
    try:
        return RecordedRun.model_validate_json(read_at_most(path))
    except FileNotFoundError:
        raise OperatorError(
            f"no baseline {path}: record one with --record, or name it with --baseline"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "JSON"
        raise OperatorError(f"{path} is no baseline ({place}): record it again with --record") from None
