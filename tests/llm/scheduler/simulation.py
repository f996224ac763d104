"""A server in simulated time: an engine that batches continuously, its scheduler, and clients that just come.

Every figure is a function of the seed; nothing sleeps and no clock is read.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from trimodal.errors import Unavailable
from trimodal.llm.engines.protocol import EngineInfo
from trimodal.llm.scheduler.scheduler import Scheduler
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier


@dataclass
class Pace:
    """What a step costs, seconds: base + stream · streams + token · prompt tokens, times 1 ± noise."""

    base: float = 0.010
    stream: float = 0.0005
    token: float = 0.00005
    noise: float = 0.05
    batch: int = 256


@dataclass
class Client:
    """One request from outside: when it comes, how long its answer gets; and what became of it."""

    at: float
    ticket: Ticket
    length: int
    cached: int = 0
    patient: bool = False
    """Comes again when it is refused, after the time that it is told."""
    question: int = 0
    """Clients with the same question share one answer while it is under way; 0: it is asked by one alone."""
    joined: Client | None = None
    """The client whose answer it shares."""
    tries: int = 0
    refused: str = ""
    retry_after: float = math.nan
    expired: bool = False
    prefilled: int = 0
    gaps: list[float] = field(default_factory=list)
    last: float = 0.0
    done: float = 0.0

    @property
    def ttft(self) -> float:
        return self.ticket.first_token - self.at if self.ticket.first_token else math.inf

    @property
    def met(self) -> bool:
        source = self.joined or self
        return bool(source.done) and source.ticket.first_token <= self.due

    @property
    def due(self) -> float:
        """When the first text is due on its own tier's terms."""
        within = self.ticket.tier.ttft_deadline_ms / 1e3
        return self.at + within if within else math.inf


class Server:
    """Runs `clients` to their ends. `scheduler` is the thing under test."""

    def __init__(
        self, settings: LlmSettings, info: EngineInfo, pace: Pace | None = None, seed: int = 0
    ) -> None:
        self.now = 1.0
        self.pace = pace or Pace()
        self.scheduler = Scheduler(settings, info, lambda: self.now)
        self.watch: Callable[[], None] = lambda: None
        self.steps = 0
        self.boosts = True
        self._asked: dict[int, Client] = {}
        self._random = random.Random(seed)
        self._clients: dict[int, Client] = {}
        self._engine: list[Client] = []

    def run(self, clients: list[Client], until: float = math.inf) -> None:
        """Lets the clients come, each at its time, until all are served, refused or expired."""
        self._coming = [(client.at, client.ticket.id, client) for client in clients]
        heapify(self._coming)
        step_end = math.inf
        while self._coming or step_end < math.inf:
            arrival = self._coming[0][0] if self._coming else math.inf
            if min(arrival, step_end) > until:
                return
            if arrival <= step_end:
                self.now = max(self.now, arrival)
                self._admit(heappop(self._coming)[-1])
            else:
                self.now = step_end
                self._emit()
                step_end = math.inf
            self._changed()
            if step_end == math.inf and self._engine:
                step_end = self.now + self._begin()
            self.watch()

    def _admit(self, client: Client) -> None:
        client.tries += 1
        client.ticket.arrived = client.at
        if self._join(client):
            return
        try:
            self.scheduler.admit(client.ticket)
        except Unavailable as error:
            client.refused, client.retry_after = str(error), error.retry_after_s or math.nan
            if client.patient:
                client.ticket.ttft_deadline += client.retry_after
                client.at += client.retry_after
                heappush(self._coming, (client.at, client.ticket.id, client))
            return
        self._clients[client.ticket.id] = client

    def _join(self, client: Client) -> bool:
        if not client.question:
            return False
        first = self._asked.get(client.question)
        if first is None or self._clients.get(first.ticket.id) is not first:
            self._asked[client.question] = client
            return False
        client.joined = first
        if self.boosts:
            self.scheduler.boost(first.ticket, client.ticket.priority, client.ticket.ttft_deadline)
        return True

    def _changed(self) -> None:
        for ticket in self.scheduler.overdue():
            self._clients.pop(ticket.id).expired = True
            assert ticket.problem
            assert ticket.retry_after_s > 0
        while ticket := self.scheduler.next():
            self._engine.append(self._clients[ticket.id])

    def _begin(self) -> float:
        """Begins a step; returns its seconds. Streams first, then prompts in the order of coming."""
        self._stepping = list(self._engine)
        streams = sum(client.ticket.first_token > 0 for client in self._stepping)
        budget = self.pace.batch - streams
        tokens = 0
        for client in self._stepping:
            missing = self._missing(client)
            if not client.ticket.first_token and missing:
                chunk = min(missing, budget - tokens)
                client.prefilled += chunk
                tokens += chunk
        self.steps += 1
        seconds = self.pace.base + self.pace.stream * streams + self.pace.token * tokens
        return seconds * self._random.uniform(1 - self.pace.noise, 1 + self.pace.noise)

    def _emit(self) -> None:
        for client in self._stepping:
            if self._missing(client):
                continue
            ticket = client.ticket
            self.scheduler.progress(ticket, 1, client.cached)
            if client.last:
                client.gaps.append(self.now - client.last)
            client.last = self.now
            if ticket.completion_tokens >= min(client.length, ticket.max_tokens):
                self.scheduler.finish(ticket)
                client.done = self.now
                self._engine.remove(client)
                del self._clients[ticket.id]

    @staticmethod
    def _missing(client: Client) -> int:
        return client.ticket.prompt_tokens - client.cached - client.prefilled


def poisson(
    rate: float,
    seconds: float,
    seed: int,
    tiers: dict[str, tuple[Tier, float]],
    *,
    prompt: tuple[int, int] = (20, 300),
    mean_length: float = 60,
    max_tokens: int = 256,
    first_id: int = 1,
    start: float = 1.0,
) -> list[Client]:
    """Clients that come at random, `rate` a second: tier name → tier and its share of them. Answers have a
    geometric length, prompts a uniform one."""
    draw = random.Random(seed)
    clients, at, id = [], start, first_id
    while (at := at + draw.expovariate(rate)) < start + seconds:
        name = draw.choices(list(tiers), [share for _, share in tiers.values()])[0]
        tier = tiers[name][0]
        deadline = at + tier.ttft_deadline_ms / 1e3 if tier.ttft_deadline_ms else math.inf
        ticket = Ticket(
            id,
            draw.randint(*prompt),
            max_tokens,
            tier,
            name,
            tier.priority,
            ttft_deadline=deadline,
        )
        clients.append(Client(at, ticket, 1 + int(draw.expovariate(1 / mean_length))))
        id += 1
    return clients
