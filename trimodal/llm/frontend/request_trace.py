"""Notes when what happened to one request whose client wants its trace."""

from __future__ import annotations

import time

from trimodal.trace import Span, span


class RequestTrace:
    """Times of one request, `time.perf_counter`. Made when its prompt is tokenized.

    Attributes:
        arrived: when the service got it.
        queued: when it was let into the queue; 0: it was not (the cache answered, or it joined another).
    """

    def __init__(self, arrived: float) -> None:
        self.arrived, self.tokenized, self.queued = arrived, time.perf_counter(), 0.0
        self._texts: list[tuple[float, int]] = []

    def text(self, tokens: int) -> None:
        """New text came; the answer has so many tokens by now."""
        self._texts.append((time.perf_counter(), tokens))

    def spans(self, started: float) -> list[Span]:
        """What took how long, in order. `started`: when the engine got it; 0: never."""
        first, last = (self._texts[at][0] for at in (0, -1)) if self._texts else (time.perf_counter(),) * 2
        found = [span("tokenize", self.arrived, self.tokenized)]
        if self.queued and started:
            found += [
                span("admission", self.tokenized, self.queued),
                span("queue", self.queued, started),
                span("first token", started, first),
            ]
        else:
            found.append(span("answer of another request", self.tokenized, first))
        found.append(span("next tokens", first, last))
        return found + [span("text", at, at, tokens=tokens) for at, tokens in self._texts]
