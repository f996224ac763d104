"""Predicts the TTFT of a request with a safety margin and holds it against the deadline."""

from __future__ import annotations

import math

from trimodal.errors import Unavailable
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.estimators.safety_margin import SafetyMargin
from trimodal.llm.scheduler.first_token import LoadShare
from trimodal.llm.scheduler.queue_simulation import FirstText
from trimodal.llm.scheduler.retry_after import RetryAfter
from trimodal.llm.scheduler.ticket import Ticket

_TRIAL_S = 2.0
"""If nothing was scheduled for so long, one request is admitted although the forecast says no. Rejections
give no new measurements, so a bad estimate would never be corrected."""
_SURE = 0.98
"""Share of the requests scheduled at the last moment that are to be in time. It is higher than that of the
admitted: the engine's time is spent on them for certain, and they make the highest tier's 99th percentile."""
_DELIVERY_S = 0.010
"""From the engine's token to the client's text on a busy server. It cannot be measured here."""


class Deadlines:
    """Predicts TTFTs and learns from what came of them. `confidence`: share of the admitted to be in time."""

    def __init__(self, latency: LatencyModel, load: LoadShare, confidence: float, ageing_s: float) -> None:
        self._latency = latency
        self._load = load
        self._ageing_s = ageing_s
        self.margin = SafetyMargin(confidence)
        self.retry_after = RetryAfter()

    def predict(self, ticket: Ticket, forecast: FirstText | None, rank: float, now: float) -> None:
        """Predicts a ticket's TTFT. Newcomers of a priority above `rank` go before it."""
        ticket.predicted_ttft, ticket.queued = math.nan, False
        if forecast is None:
            return
        wait = forecast.wait
        ticket.queued = wait > 0
        if wait:
            # While it waits, newcomers of higher priorities take a part of what comes free.
            wait = self._load.stretched(wait, rank, self._ageing_s, now)
        elapsed = max(0.0, now - ticket.arrived)
        ticket.predicted_ttft = elapsed + self._latency.stall(now) + wait + forecast.first - forecast.wait

    def check(self, ticket: Ticket, now: float) -> None:
        """Refuses a ticket whose predicted TTFT and margin exceed its deadline.

        Raises:
            Unavailable: the deadline cannot be kept; says when to try again.
        """
        if math.isnan(ticket.predicted_ttft) or ticket.ttft_deadline == math.inf:
            return
        likely = ticket.predicted_ttft + self.margin.seconds(ticket, ticket.predicted_ttft, now)
        within = ticket.ttft_deadline - ticket.arrived
        if likely <= within:
            return
        if not ticket.queued and self.retry_after.idle_s(now) >= _TRIAL_S:
            ticket.trial = True
            return
        bound = f"{ticket.bound} is {within * 1e3:.0f}"
        alone = self._latency.alone(ticket.uncached)
        if alone > within:
            raise Unavailable(
                f"the first text of {ticket.prompt_tokens} prompt tokens would come after {_ms(alone)} ms "
                f"even with nothing before it: {bound}"
            )
        again = self.retry_after.hint(ticket.priority, likely - within, now)
        raise Unavailable(f"the first text would come after {_ms(likely)} ms: {bound}", again)

    def answered(self, ticket: Ticket, now: float) -> None:
        """Learns from a first text that came."""
        if not math.isnan(ticket.predicted_ttft):
            self.margin.learn(ticket, now - ticket.arrived, now)

    def soonest(self, uncached: int, now: float) -> float:
        """When the first text of a prompt handed over now will be there, almost surely; `now` if unknown."""
        latency = self._latency
        if not latency.ready:
            return now
        took = latency.ttft(uncached)
        error = latency.errors.quantile(_SURE, now)
        # No more than as long again: a few wild errors must not clear the queue.
        return now + took + _DELIVERY_S + (0.0 if math.isnan(error) else max(0.0, min(error, took)))

    def missed(self, ticket: Ticket, soonest: float, now: float) -> None:
        """Learns from a ticket that leaves the queue too late for its deadline, and says why it does."""
        if not math.isnan(ticket.predicted_ttft):
            self.margin.learn(ticket, soonest - ticket.arrived, now)
        waited = now - ticket.arrived
        ticket.problem = f"{ticket.bound} cannot be kept any more after {waited * 1e3:.0f} ms in the queue"
        ticket.retry_after_s = self.retry_after.hint(ticket.priority, waited + soonest - ticket.expires, now)


def _ms(seconds: float) -> int:
    """Whole milliseconds, rounded up: what exceeds a bound must not look equal to it."""
    return math.ceil(round(seconds * 1e3, 3))
