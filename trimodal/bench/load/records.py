"""Defines what one request did, and the metrics of it.

    latency   due → end of the answer
    ttft      due → first piece
    itl       each gap between two pieces
    tpot      (end − first piece) / (output tokens − 1)
    lag       of each word: heard → told

`due` is when an open loop should have sent the request, `sent` when it did: times count from `due`, so a
generator or a server that falls behind makes them worse, never better (coordinated omission). In a closed
loop both are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

OK = "ok"
TIMEOUT = "timeout"
UNREACHABLE = "unreachable"  # no server answers there, or it went away
UNSENT = "unsent"  # as many were under way as the generator may have


@dataclass(slots=True)
class Record:
    """What one request did, filled in while it runs.

    Times in seconds: of the event loop's clock, in a `LoadRun` from its begin.

    Attributes:
        number: of the request within its run, from 0.
        due: when it should have been sent.
        pieces: arrival of each piece with text or words; one for an image.
        outcome: OK, TIMEOUT, UNREACHABLE, UNSENT or the error's code in lower case.
        error: its sentence.
        items: images, texts or windows in it.
        audio_s: seconds of audio that it sent.
        text: what was heard in speech.
        lags: seconds from the end of each word in the audio until it was told.
    """

    number: int
    due: float
    sent: float
    pieces: list[float]
    ended: float
    outcome: str = OK
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    items: int = 1
    audio_s: float = 0.0
    lags: list[float] = field(default_factory=list)
    text: str = ""

    @classmethod
    def begun(cls) -> Record:
        """Of a request that is sent now."""
        now = asyncio.get_running_loop().time()
        return cls(0, now, now, [], now)

    def piece(self) -> None:
        """Notes text, words or a whole answer that has just come."""
        self.pieces.append(asyncio.get_running_loop().time())

    @property
    def latency(self) -> float:
        return self.ended - self.due

    @property
    def ttft(self) -> float | None:
        """None: no piece came."""
        return self.pieces[0] - self.due if self.pieces else None

    @property
    def itl(self) -> tuple[float, ...]:
        return tuple(later - at for at, later in pairwise(self.pieces))

    @property
    def tpot(self) -> float | None:
        """None below two tokens."""
        if not self.pieces or self.output_tokens < 2:
            return None
        return (self.ended - self.pieces[0]) / (self.output_tokens - 1)

    def since(self, began: float, number: int, due: float | None = None) -> Record:
        """The same with times from `began`; `due`: of the clock too, None for when it was sent."""
        return replace(
            self,
            number=number,
            due=(self.sent if due is None else due) - began,
            sent=self.sent - began,
            pieces=[at - began for at in self.pieces],
            ended=self.ended - began,
        )


# Metric → its values of one request in seconds: none, one, or one for each gap or word.
METRICS: Mapping[str, Callable[[Record], Sequence[float]]] = {
    "latency": lambda record: (record.latency,),
    "ttft": lambda record: () if record.ttft is None else (record.ttft,),
    "itl": lambda record: record.itl,
    "tpot": lambda record: () if record.tpot is None else (record.tpot,),
    "lag": lambda record: record.lags,
}
