"""Values of a comparison: a finding about one case, and the limits that make it worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["worse", "doubtful", "better", "changed", "known"]

# In the order in which they are shown.
VERDICTS: tuple[Verdict, ...] = ("worse", "doubtful", "known", "changed", "better")


@dataclass(frozen=True)
class Limits:
    """How much may change before it is worse.

    Attributes:
        alpha: chance that a run without any change is called worse or better by its times.
        latency: share by which a time may grow; 0.2 lets 12 ms become 14.4.
        overlap: least `texts.overlap` of a new answer with a recorded one; 1: every change is worse.
        score: by how much an image's scores may move unmentioned.
        cosine: least of a vector and the recorded one.
    """

    alpha: float = 0.05
    latency: float = 0.2
    overlap: float = 1.0
    score: float = 0.05
    cosine: float = 0.999


@dataclass(frozen=True)
class Finding:
    """One difference.

    Attributes:
        case: its id, or a group of cases such as "all llm".
        what: answer, expectation, prompt, cache, case, or a time (ttft, tpot, total).
        verdict: worse fails the run; known: a broken expectation that was broken before;
            doubtful: a time that the machine, not the server, may have made worse.
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
