"""Learns how fast an engine prefills and decodes under load, from what it does; no profile is needed.

first token after hand-over ≈ w0 + w1 · prompt tokens before it, its own included + w2 · streams decoding
time per token of a stream  ≈ d0 + d1 · streams decoding + d2 · prompt tokens computed per token
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimodal.llm.engines.prefill import OLDEST
from trimodal.llm.scheduler.estimators.least_squares import LeastSquares
from trimodal.llm.scheduler.estimators.safety_margin import Residuals
from trimodal.llm.scheduler.ticket import Ticket

_READY = 5  # observations before anything is predicted
_WINDOW_TOKENS = 16
"""Tokens of a stream that make one observation of the decode latency: one for each would cost too much."""
_PATIENCE = 3  # multiple of the usual time without any token from which on the engine counts as stalled


@dataclass
class _Observed:
    """Measures a ticket in the engine: the load that it met, then the present window of its tokens."""

    before: float
    uncached: int
    streams: int
    expected: float
    tokens: int = 0
    since: float = 0.0
    met_streams: int = 0
    met_prefilled: int = 0
    answered: bool = False


class LatencyModel:
    """Predicts the time to first token and between tokens, and counts what the engine has. In seconds.

    `shortest_first`: how the engine shares its steps out among prompts (engines/prefill.py); else in order.
    """

    def __init__(self) -> None:
        self.shortest_first = False
        self._prefill = LeastSquares(3, 0.97)
        self._decode = LeastSquares(3, 0.97)
        self._observed: dict[int, _Observed] = {}
        self._prefilled = 0
        self._moved = 0.0
        self.errors = Residuals()
        self.pending = 0
        """Prompt tokens handed over and not answered yet, without those that the prefix cache spares."""
        self.streams = 0  # streams that decode

    @property
    def ready(self) -> bool:
        """Whether the first token after a hand-over can be forecast."""
        return self._prefill.count >= _READY

    @property
    def decode_ready(self) -> bool:
        """Whether the time between tokens can be forecast."""
        return self._decode.count >= _READY

    @property
    def ttft_weights(self) -> tuple[float, float, float]:
        """Seconds: at least, a prompt token, a stream."""
        base, token, stream = self._prefill.weights
        return base, token, stream

    @property
    def gap_weights(self) -> tuple[float, float]:
        """Seconds between two tokens of a stream while nothing prefills: at least, and a stream."""
        return self._decode.weights[0], self._decode.weights[1]

    @property
    def prefill_s(self) -> float:
        """Seconds by which one prompt token holds up the streams that decode."""
        # Before streams have met a prefill, the first tokens' model stands in: it counts the steps as well.
        return self._decode.weights[2] or self._prefill.weights[1]

    def ttft(self, uncached: int) -> float:
        """Seconds to the first token of a prompt that is handed over now; nan before enough was seen."""
        if not self.ready:
            return math.nan
        return self._prefill.predict((1.0, self.before(uncached) + uncached, self.streams))

    def before(self, uncached: int) -> float:
        """Prompt tokens in the engine's hands that are computed before the end of so long a prompt."""
        if not self.shortest_first:
            return self.pending
        others = [one.uncached for one in self._observed.values() if not one.answered]
        shorter = sum(other for other in others if other <= uncached)
        # Of each step a part is the oldest one's, however long.
        return shorter + (uncached / (OLDEST - 1) if self.pending > shorter else 0.0)

    def alone(self, uncached: int) -> float:
        """Seconds to the first token of a prompt on an idle engine; nan before enough was seen."""
        return self._prefill.predict((1.0, uncached, 0)) if self.ready else math.nan

    def gap(self, streams: float) -> float:
        """Seconds between two tokens of a stream among `streams`, nothing prefilling; nan: not known yet."""
        return self._decode.predict((1.0, streams, 0.0)) if self.decode_ready else math.nan

    def stall(self, now: float) -> float:
        """Seconds by which the engine is overdue with any token; 0: it is not. Such a pause is taken to last
        as long again, as no measurement comes before it ends."""
        if not self._observed or not self.ready:
            return 0.0
        usual = max(self.ttft(0), self.gap(self.streams) if self.decode_ready else 0.0)
        return max(0.0, now - self._moved - _PATIENCE * usual)

    def started(self, ticket: Ticket) -> None:
        """Notes that a ticket was handed over."""
        if not self._observed:
            self._moved = ticket.started
        expected = self.ttft(ticket.uncached)
        before = self.before(ticket.uncached)
        self._observed[ticket.id] = _Observed(before, ticket.uncached, self.streams, expected)
        self.pending += ticket.uncached

    def first(self, ticket: Ticket, now: float) -> None:
        """Learns from a first token; the ticket's `cached_tokens` is known now."""
        self._moved = now
        observed = self._observed[ticket.id]
        took, uncached = now - ticket.started, ticket.prompt_tokens - ticket.cached_tokens
        self._prefill.learn((1.0, observed.before + uncached, observed.streams), took)
        if not math.isnan(observed.expected):
            self.errors.add(took - observed.expected, now)
        observed.answered = True
        self.pending -= observed.uncached
        self._prefilled += uncached
        self.streams += 1
        self._open(observed, now)

    def went_on(self, ticket: Ticket, tokens: int, now: float) -> None:
        """Learns from further tokens of a stream."""
        self._moved = now
        observed = self._observed[ticket.id]
        observed.tokens += tokens
        if observed.tokens < _WINDOW_TOKENS:
            return
        prefilled = (self._prefilled - observed.met_prefilled) / observed.tokens
        streams = (self.streams + observed.met_streams) / 2
        self._decode.learn((1.0, streams, prefilled), (now - observed.since) / observed.tokens)
        self._open(observed, now)

    def gone(self, ticket: Ticket) -> None:
        """Takes out a ticket that ended."""
        observed = self._observed.pop(ticket.id)
        if ticket.first_token:
            self.streams -= 1
        else:
            self.pending -= observed.uncached

    def emptied(self) -> None:
        """Forgets what the engine held; what was learned stays."""
        self._observed.clear()
        self.pending = self.streams = 0

    def _open(self, observed: _Observed, now: float) -> None:
        observed.tokens, observed.since = 0, now
        observed.met_streams, observed.met_prefilled = self.streams, self._prefilled
