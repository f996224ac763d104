"""Simulates the queue forward until a given ticket is scheduled.

It models slots and KV blocks that come free, tiers' shares, prompts one after the other and gaps that
grow with the batch. It goes from event to event (an answer ends, a prompt is handed over), so its cost grows
with the length of the queue and not with that of the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import Key

_PLAYED = 256  # hand-overs that are simulated; a longer queue is taken to go on at their rate


@dataclass(frozen=True)
class FirstText:
    """Seconds from now: `wait` to the hand-over, `first` to the first text."""

    wait: float
    first: float


class QueueSimulation:
    """Plays the queue once, on two clocks: seconds, and tokens of each stream since (all at the same rate).

    Args:
        limit: prompt tokens that may be in the engine's hands together. batch_tokens: those of a step.
        left: tokens still to come of a ticket's answer.
    """

    def __init__(
        self,
        latency: LatencyModel,
        admission: Admission,
        limit: float,
        batch_tokens: int,
        left: Callable[[Ticket], float],
    ) -> None:
        self._admission = admission
        self._left = left
        self._limit = limit
        self._batch_tokens = batch_tokens
        self._base, self._token_s, self._stream_s = latency.ttft_weights
        self._gap, self._gap_stream = latency.gap_weights
        self._prefill_s = latency.prefill_s
        self._slots = admission.info.max_num_seqs - len(admission.reserved)
        self._blocks = admission.info.num_kv_blocks - admission.reserved_blocks
        self._used = dict(admission.reserved_by_tier)
        self._ends: list[tuple[float, int, Ticket]] = []
        self._seconds = self._tokens = 0.0
        # Prompt tokens in hand, as of when, and when the last of them is answered.
        self._backlog, self._since = float(latency.pending), 0.0
        self._answered = self._base + self._token_s * self._backlog if self._backlog else 0.0
        # Time that prompts take from the streams, not yet on the clock.
        self._debt = self._backlog * self._prefill_s

    def holds(self, ticket: Ticket, left: float) -> None:
        """Puts a ticket into the engine, with so many tokens to come."""
        steps = 0 if ticket.first_token else math.ceil(self._backlog / self._batch_tokens)
        self._ends.append((steps + left, ticket.id, ticket))

    def until(self, wanted: Ticket, lines: Sequence[Sequence[Key]]) -> FirstText | None:
        """Runs until `wanted` has its first text; None: it never fits."""
        heapify(self._ends)
        heads = [(line[0], number, 0) for number, line in enumerate(lines)]
        heapify(heads)
        passed: dict[str, tuple[Key, int, int]] = {}
        handed_over, all_before = 0, sum(map(len, lines)) - 1
        while True:
            if heads:
                key, number, place = heads[0]
                ticket = key[-1]
                if not self._admission.in_share(ticket, self._used):
                    passed[ticket.tier_name] = heappop(heads)
                    continue
                if self._slots > 0 and ticket.blocks <= self._blocks:
                    first = self._hand_over(ticket)
                    if ticket is wanted:
                        return FirstText(self._seconds, first)
                    handed_over += 1
                    if handed_over == _PLAYED:
                        wait = self._seconds * all_before / _PLAYED
                        return FirstText(wait, wait + first - self._seconds)
                    if place + 1 < len(lines[number]):
                        heapreplace(heads, (lines[number][place + 1], number, place + 1))
                    else:
                        heappop(heads)
                    continue
            if not self._ends:
                return None
            tier = self._release()
            if tier in passed:
                heappush(heads, passed.pop(tier))

    def _release(self) -> str:
        """Ends the next answer; returns its tier."""
        end, _, ticket = heappop(self._ends)
        if end > self._tokens:
            streams = len(self._ends) + 1
            self._seconds += (end - self._tokens) * (self._gap + self._gap_stream * streams) + self._debt
            self._tokens, self._debt = end, 0.0
        self._slots += 1
        self._blocks += ticket.blocks
        self._used[ticket.tier_name] -= ticket.blocks
        return ticket.tier_name

    def _hand_over(self, ticket: Ticket) -> float:
        """Hands a prompt to the engine; returns when its first token comes."""
        done = (self._seconds - self._since) / self._token_s if self._token_s else math.inf
        backlog = max(0.0, self._backlog - done)
        streams = len(self._ends)
        if backlog and backlog + ticket.uncached > self._limit:
            pause = max(0.0, self._answered - self._seconds)
            self._seconds += pause
            gap = self._gap + self._gap_stream * streams
            self._tokens += pause / gap if gap else 0.0
            backlog = 0.0
        backlog += ticket.uncached
        self._backlog, self._since = backlog, self._seconds
        self._debt += ticket.uncached * self._prefill_s
        self._answered = self._seconds + self._base + self._token_s * backlog + self._stream_s * streams
        if math.isnan(ticket.expected_tokens):
            ticket.expected_tokens = self._left(ticket)
        end = self._tokens + math.ceil(backlog / self._batch_tokens) + ticket.expected_tokens
        heappush(self._ends, (end, ticket.id, ticket))
        self._slots -= 1
        self._blocks -= ticket.blocks
        self._used[ticket.tier_name] = self._used.get(ticket.tier_name, 0) + ticket.blocks
        return self._answered
