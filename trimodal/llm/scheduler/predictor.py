"""Owns the estimators and answers the scheduler's two questions: is a deadline met, may a prompt go now.

Each estimator learns one thing: latency, answer lengths, prefix hits, load by priority, errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.deadlines import Deadlines
from trimodal.llm.scheduler.estimators.answer_lengths import AnswerLengths
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.estimators.prefix_hits import PrefixHits
from trimodal.llm.scheduler.first_token import FirstTokenForecast, LoadShare
from trimodal.llm.scheduler.prefill_budget import PrefillBudget
from trimodal.llm.scheduler.stats import SchedulerStats
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import Key
from trimodal.llm.settings import LlmSettings


class Predictor:
    """All that is learned of an engine and its load. With "fifo" nothing is refused or delayed."""

    def __init__(self, settings: LlmSettings, clock: Callable[[], float]) -> None:
        self._fifo = settings.scheduler == "fifo"
        self._clock = clock
        batch = settings.max_num_batched_tokens
        self._latency = LatencyModel()
        self._lengths = AnswerLengths()
        self._prefixes = PrefixHits()
        self._load = LoadShare(clock())
        self._prefill_budget = PrefillBudget(self._latency, batch)
        self._deadlines = Deadlines(
            self._latency, self._load, settings.admission_confidence, settings.ageing_s
        )
        self._forecast = FirstTokenForecast(self._latency, self._lengths, self._prefill_budget, batch)

    @property
    def advice(self) -> str:
        return self._prefill_budget.advice

    def stats(self, counts: Mapping[str, int]) -> SchedulerStats:
        """The figures as of now, with the scheduler's own counts."""
        p50, p90 = self._deadlines.margin.errors()
        latency = self._latency
        return SchedulerStats(
            **counts,
            error_p50_s=p50,
            error_p90_s=p90,
            token_s=latency.gap(max(1, latency.streams)),
            prefill_token_s=latency.prefill_s,
        )

    def uncached(self, ticket: Ticket) -> int:
        """Prompt tokens that the engine will have to compute."""
        return self._prefixes.uncached(ticket.prefix, ticket.prompt_tokens)

    def check_deadline(
        self,
        ticket: Ticket,
        rank: float,
        lines: Sequence[Sequence[Key]],
        running: Collection[Ticket],
        admission: Admission,
    ) -> None:
        """Predicts a ticket's TTFT. Newcomers above `rank` go before it; `lines` is `WaitingQueue.before`.

        Raises:
            Unavailable: its first text would come after its deadline.
        """
        now = self._clock()
        ticket.expected_tokens = self._forecast.left(ticket)
        forecast = self._forecast.first_text(lines, ticket, running, admission)
        self._deadlines.predict(ticket, forecast, rank, now)
        if not self._fifo:
            self._deadlines.check(ticket, now)

    def may_prefill(self, ticket: Ticket) -> bool:
        """Whether its prompt may be handed over now without breaking running streams' ITL bounds."""
        return self._prefill_budget.allows(ticket.uncached)

    def soonest(self, uncached: int) -> float:
        """By when a prompt that is handed over now has its first text in 98 of 100 cases."""
        return self._deadlines.soonest(uncached, self._clock())

    def again_s(self, ticket: Ticket) -> float:
        """Seconds after which a ticket for which there is no place is worth another try."""
        return self._deadlines.retry_after.hint(ticket.priority, 0.0, self._clock())

    def missed(self, ticket: Ticket, soonest: float) -> None:
        """Learns from a ticket that leaves the queue too late for its deadline, and says why it does."""
        self._deadlines.missed(ticket, soonest, self._clock())

    def handed_over(self, ticket: Ticket) -> None:
        """Notes that the engine was given a ticket."""
        self._latency.started(ticket)
        self._deadlines.retry_after.handed_over(ticket.started)

    def progressed(self, ticket: Ticket, tokens: int) -> None:
        """Learns from new tokens of a running ticket."""
        now = self._clock()
        if ticket.first_token:
            self._latency.went_on(ticket, tokens, now)
            return
        ticket.first_token = now
        self._latency.first(ticket, now)
        self._prefixes.learn(ticket.prefix, ticket.cached_tokens)
        self._deadlines.answered(ticket, now)
        if not self._fifo:
            self._prefill_budget.began(ticket)

    def ended(self, ticket: Ticket, finished: bool, share: float) -> None:
        """Learns from a ticket that held `share` of the engine and ended, by itself (`finished`) or not."""
        now = self._clock()
        self._latency.gone(ticket)
        self._load.add(ticket.priority, share * (now - ticket.started), now)
        if not ticket.first_token:
            return
        self._lengths.learn(ticket.tier_name, ticket.completion_tokens, ticket.max_tokens, finished)
        if not self._fifo:
            self._prefill_budget.ended(ticket)

    def emptied(self) -> None:
        """Forgets what the engine held: it is a new one. How fast it is stays."""
        self._latency.emptied()
        self._prefill_budget.emptied()
        self._prefixes.clear()
