"""Who can still be in time: a forecast, its margin, and what those above will ask for, against a deadline."""

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
"""Without a hand-over for so long, one request is let in against the forecast: refusing teaches nothing,
and a speed learned in a bad spell would shut the door for ever."""
_SURE = 0.98
"""Share of those handed over at the last moment that are to be in time: more than of the admitted, as the
engine's time is spent on them for certain, and the highest tier's 99th percentile is made of them."""
_DELIVERY_S = 0.010
"""From the engine's token to the client's text, which nobody here sees: taken as this on a busy server."""


class Deadlines:
    """Promises and what came of them. `confidence`: share of the admitted that are to be in time."""

    def __init__(self, speed: LatencyModel, usage: LoadShare, confidence: float, ageing_s: float) -> None:
        self._speed = speed
        self._usage = usage
        self._ageing_s = ageing_s
        self.margin = SafetyMargin(confidence)
        self.retry_after = RetryAfter()

    def promise(self, ticket: Ticket, foreseen: FirstText | None, rank: float, now: float) -> None:
        """Foresees a ticket's TTFT. `rank` is its class: those above it go first whenever they come."""
        ticket.predicted_ttft, ticket.queued = math.nan, False
        if foreseen is None:
            return
        wait = foreseen.wait
        ticket.queued = wait > 0
        if wait:
            # As long as it waits, what comes free goes to newcomers of higher classes in part.
            wait = self._usage.stretched(wait, rank, self._ageing_s, now)
        elapsed = max(0.0, now - ticket.arrived)
        ticket.predicted_ttft = elapsed + self._speed.stall(now) + wait + foreseen.first - foreseen.wait

    def check(self, ticket: Ticket, now: float) -> None:
        """Holds the promise against the deadline.

        Raises:
            Unavailable: it cannot be kept; says when to try again.
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
        alone = self._speed.alone(ticket.uncached)
        if alone > within:
            raise Unavailable(
                f"the first text of {ticket.prompt_tokens} prompt tokens would come after {alone:.3g} s "
                f"even with nothing before it: {bound}"
            )
        again = self.retry_after.hint(ticket.priority, likely - within, now)
        raise Unavailable(f"the first text would come after {likely:.3g} s: {bound}", again)

    def answered(self, ticket: Ticket, now: float) -> None:
        """A first text came."""
        if not math.isnan(ticket.predicted_ttft):
            self.margin.learn(ticket, now - ticket.arrived, now)

    def soonest(self, uncached: int, now: float) -> float:
        """When the first text of a prompt handed over now will be there, almost surely; `now` if unknown."""
        speed = self._speed
        if not speed.ready:
            return now
        took = speed.ttft(uncached)
        error = speed.errors.quantile(_SURE, now)
        # No more than as long again: a few wild errors must not clear the queue.
        return now + took + _DELIVERY_S + (0.0 if math.isnan(error) else max(0.0, min(error, took)))

    def missed(self, ticket: Ticket, soonest: float, now: float) -> None:
        """A ticket leaves the queue because it cannot be in time any more."""
        if not math.isnan(ticket.predicted_ttft):
            self.margin.learn(ticket, soonest - ticket.arrived, now)
        waited = now - ticket.arrived
        ticket.problem = f"{ticket.bound} cannot be kept any more after {waited * 1e3:.0f} ms in the queue"
        ticket.retry_after_s = self.retry_after.hint(ticket.priority, waited + soonest - ticket.expires, now)
