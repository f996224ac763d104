"""What is learned of an engine and its load, behind what the scheduler asks: in time? may it go now?

Each part learns one thing (speed, lengths, prefixes, usage, errors) and is fed here. It keeps no queue.
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
    """With `scheduler` "fifo" it foresees, but neither refuses nor holds back."""

    def __init__(self, settings: LlmSettings, clock: Callable[[], float]) -> None:
        self._fifo = settings.scheduler == "fifo"
        self._clock = clock
        batch = settings.max_num_batched_tokens
        self._speed = LatencyModel()
        self._lengths = AnswerLengths()
        self._prefixes = PrefixHits()
        self._usage = LoadShare(clock())
        self._pace = PrefillBudget(self._speed, batch)
        self._deadlines = Deadlines(
            self._speed, self._usage, settings.admission_confidence, settings.ageing_s
        )
        self._forecast = FirstTokenForecast(self._speed, self._lengths, self._pace, batch)

    @property
    def advice(self) -> str:
        return self._pace.advice

    def stats(self, counts: Mapping[str, int]) -> SchedulerStats:
        """The figures as of now, with the scheduler's own counts."""
        p50, p90 = self._deadlines.margin.errors()
        speed = self._speed
        return SchedulerStats(
            **counts,
            error_p50_s=p50,
            error_p90_s=p90,
            token_s=speed.gap(max(1, speed.streams)),
            prefill_token_s=speed.prefill_s,
        )

    def uncached(self, ticket: Ticket) -> int:
        """Prompt tokens that the engine will have to compute."""
        return self._prefixes.uncached(ticket.prefix, ticket.prompt_tokens)

    def promise(
        self,
        ticket: Ticket,
        rank: float,
        lines: Sequence[Sequence[Key]],
        running: Collection[Ticket],
        books: Admission,
    ) -> None:
        """Foresees a ticket's TTFT. `rank` is its class, `lines` those before it (`WaitingQueue.before`).

        Raises:
            Unavailable: its first text would come after its deadline.
        """
        now = self._clock()
        ticket.foreseen_tokens = self._forecast.left(ticket)
        foreseen = self._forecast.first_text(lines, ticket, running, books)
        self._deadlines.promise(ticket, foreseen, rank, now)
        if not self._fifo:
            self._deadlines.check(ticket, now)

    def paced(self, ticket: Ticket) -> bool:
        """Whether its prompt may be handed over now without breaking running streams' ITL bounds."""
        return self._pace.allows(ticket.uncached)

    def soonest(self, uncached: int) -> float:
        """When the first text of a prompt that is handed over now will be there, almost surely."""
        return self._deadlines.soonest(uncached, self._clock())

    def again_s(self, ticket: Ticket) -> float:
        """After how many seconds a ticket for which there is no place is worth another try."""
        return self._deadlines.retry_after.hint(ticket.priority, 0.0, self._clock())

    def missed(self, ticket: Ticket, soonest: float) -> None:
        """A ticket leaves the queue because it cannot be in time any more."""
        self._deadlines.missed(ticket, soonest, self._clock())

    def handed_over(self, ticket: Ticket) -> None:
        """The engine is given a ticket."""
        self._speed.started(ticket)
        self._deadlines.retry_after.handed_over(ticket.started)

    def progressed(self, ticket: Ticket, tokens: int) -> None:
        """A running ticket got tokens."""
        now = self._clock()
        if ticket.first_token:
            self._speed.went_on(ticket, tokens, now)
            return
        ticket.first_token = now
        self._speed.first(ticket, now)
        self._prefixes.learn(ticket.prefix, ticket.cached_tokens)
        self._deadlines.answered(ticket, now)
        if not self._fifo:
            self._pace.began(ticket)

    def ended(self, ticket: Ticket, finished: bool, share: float) -> None:
        """A running ticket's answer ended, by itself (`finished`) or not; it held `share` of the engine."""
        now = self._clock()
        self._speed.gone(ticket)
        self._usage.add(ticket.priority, share * (now - ticket.started), now)
        if not ticket.first_token:
            return
        self._lengths.learn(ticket.tier_name, ticket.completion_tokens, ticket.max_tokens, finished)
        if not self._fifo:
            self._pace.ended(ticket)

    def emptied(self) -> None:
        """The engine is a new one: it holds nothing; how fast it is stays."""
        self._speed.emptied()
        self._pace.emptied()
        self._prefixes.clear()
