"""Simulates the engine of one replica: continuous batching, step by step where something changes.

The same as in the server with `scheduler` "fifo" (`trimodal/llm/scheduler/`, `llm/engine_core/core.py`):

- a request is handed to the engine when a batch slot and KV blocks are free; the first in line waits for its
  room and none overtakes it; a full queue refuses
- between two steps the engine takes what was handed over, so room that a step frees is filled in the step
  after the next; an idle engine begins at once
- a step gives one token to every sequence that decodes, then computes prompt tokens, up to
  max_num_batched_tokens together; the step that ends a prompt makes its first token
- the last token of a prompt is computed even where all of it is cached

Otherwise than in the server: KV blocks are reserved for the whole answer, of which the server reserves a part
at first (`Admission.first_blocks`); prompts share a step in the order of coming (`engines/prefill.py`).

Simplified: one tier without deadlines, and no bound on ITL that holds prompts back; the answer's length is
the max_tokens that was asked for; no speculation; prefill is chunked; a step's time depends on how many
sequences decode and on its prompt tokens, not on how long their contexts are; all cached blocks of one prefix
stay and leave together.

Steps between two changes (a first or a last token, an arrival that there is room for) are alike: they are one
event, whatever their number.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from heapq import heappop, heappush

from trimodal.plan.fleet.spec import ReplicaFigures
from trimodal.plan.fleet.workload import Key


class PrefixCache:
    """KV blocks by prefix, the least recently used one leaves first.

    Prompts of their own take room, too: what nobody asks for again pushes out what somebody would.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[Key, int] = OrderedDict()
        self._alone = 0
        self.blocks = 0

    def find(self, prefix: Key, blocks: int) -> int:
        """Blocks of this prefix that are here, at most `blocks`."""
        if prefix not in self._kept:
            return 0
        self._kept.move_to_end(prefix)
        return min(self._kept[prefix], blocks)

    def keep(self, prefix: Key, blocks: int) -> None:
        """Keeps so many blocks of a prefix; one that has more already loses none."""
        more = blocks - self._kept.get(prefix, 0)
        if more > 0:
            self._kept[prefix] = blocks
            self.blocks += more
        if blocks:
            self._kept.move_to_end(prefix)
        while self.blocks > self._capacity:
            self.blocks -= self._kept.popitem(last=False)[1]

    def keep_alone(self, blocks: int) -> None:
        """Keeps blocks that no other prompt begins with."""
        self._alone -= 1  # below zero: no number of a workload
        self.keep(self._alone, blocks)


@dataclass(slots=True, eq=False)
class Sequence:
    """One request on its way.

    Attributes:
        at: arrival, seconds.
        prefix: whose beginning its prompt has; None: nobody else's. shared: tokens that all prompts of the
            prefix have in common.
        missing: prompt tokens to compute; cached: those that the prefix cache spared.
        first: when its first token came.
    """

    at: float
    prompt: int
    output: int
    prefix: Key | None = None
    shared: int = 0
    blocks: int = 0
    missing: int = 0
    cached: int = 0
    first: float = -1.0


class Engine:
    """The engine of one replica with the queue in front of it. Times are seconds of the simulation.

    Attributes:
        ends: when the run of steps under way ends; None: idle. version: counts its changes.
        slot_s: seconds in steps, times the batch slots that were taken.
        waiting, decoding: requests.
    """

    def __init__(self, figures: ReplicaFigures) -> None:
        self._figures = figures
        self._times = figures.step_times()
        self._prefill_s = figures.prefill_us / 1e6
        self._block = figures.block_tokens
        self._prefixes = PrefixCache(figures.num_kv_blocks)
        self.waiting: deque[Sequence] = deque()
        self._inbox: list[Sequence] = []
        self._prefilling: deque[Sequence] = deque()
        self._backlog = 0
        self._ends: list[tuple[int, int, Sequence]] = []
        self._order = 0
        self._most = self.slots = figures.max_num_seqs
        self.free_blocks = figures.num_kv_blocks
        self.decoding = 0
        self._steps = 0
        self._began = self._step = 0.0
        self._count = self._tokens = self._decoders = 0
        self.ends: float | None = None
        self.version = 0
        self.slot_s = 0.0

    def takes(self, sequence: Sequence) -> bool:
        """Whether it is not refused: there is room in the queue, or for it at once."""
        waiting = len(self.waiting)
        return waiting < self._figures.max_queue or (not waiting and self._fits(sequence))

    def submit(self, sequence: Sequence, now: float) -> bool:
        """Takes a request in, whose `blocks` are known; whether `ends` is another one now."""
        if self.waiting or not self._fits(sequence):
            self.waiting.append(sequence)
            return False
        self._hand_over(sequence)
        if self.ends is None:
            self._begin(now)
            return True
        if self._count > 1:  # it is taken in after the step that is being made
            passed = int((now - self._began) / self._step) + 1
            if passed < self._count:
                self._count = passed
                self.ends = self._began + passed * self._step
                self.version += 1
                return True
        return False

    def complete(self, now: float) -> list[Sequence]:
        """Ends the run of steps under way and begins the next one; returns what has its last token."""
        self.slot_s += (now - self._began) * (self._most - self.slots)
        ended: list[Sequence] = []
        if self._decoders:
            self._steps += self._count
            while self._ends and self._ends[0][0] <= self._steps:
                ended.append(heappop(self._ends)[2])
            self.decoding -= len(ended)
        if self._tokens:
            self._prefilled(self._tokens * self._count, now, ended)
        for sequence in ended:
            self._release(sequence)
        self._begin(now)
        return ended

    def _fits(self, sequence: Sequence) -> bool:
        return self.slots > 0 and sequence.blocks <= self.free_blocks

    def _hand_over(self, sequence: Sequence) -> None:
        self.slots -= 1
        self.free_blocks -= sequence.blocks
        self._inbox.append(sequence)

    def _begin(self, now: float) -> None:
        """Begins a run of equal steps, as many as there are until something changes."""
        self.version += 1
        if self._inbox:
            self._take()
        waiting = self.waiting
        while waiting and self.slots > 0 and waiting[0].blocks <= self.free_blocks:
            self._hand_over(waiting.popleft())
        if not (self.decoding or self._prefilling):
            if not self._inbox:
                self.ends = None
                return
            self._take()
        decoding = self.decoding
        count = self._ends[0][0] - self._steps if decoding else 1
        self._tokens, self._decoders = 0, decoding
        if self._prefilling:
            budget = self._figures.max_num_batched_tokens - decoding
            self._tokens = min(budget, self._backlog)
            # Steps that only shorten the first prompt are alike.
            alike = (self._prefilling[0].missing - 1) // budget
            count = min(count, alike) if decoding and alike else alike or 1
        self._step = self._times[self._decoders] + self._tokens * self._prefill_s
        self._count = 1 if self._inbox else count
        self._began = now
        self.ends = now + self._count * self._step

    def _take(self) -> None:
        for sequence in self._inbox:
            prompt, prefix = sequence.prompt, sequence.prefix
            cached = 0
            if prefix is not None:
                shared = self._prefixes.find(prefix, min(prompt, sequence.shared) // self._block)
                cached = min(shared * self._block, prompt - 1)
            sequence.cached = cached
            sequence.missing = prompt - cached
            self._backlog += sequence.missing
            self._prefilling.append(sequence)
        self._inbox.clear()

    def _prefilled(self, tokens: int, now: float, ended: list[Sequence]) -> None:
        """Counts computed prompt tokens; those whose prompt is complete have their first token."""
        self._backlog -= tokens
        prefilling = self._prefilling
        while tokens:
            sequence = prefilling[0]
            if sequence.missing > tokens:
                sequence.missing -= tokens
                return
            tokens -= sequence.missing
            sequence.missing = 0
            prefilling.popleft()
            sequence.first = now
            self._keep_shared(sequence)
            if sequence.output == 1:
                ended.append(sequence)
            else:
                self._order += 1
                heappush(self._ends, (self._steps + sequence.output - 1, self._order, sequence))
                self.decoding += 1

    def _release(self, sequence: Sequence) -> None:
        """Frees its room, and leaves its blocks in the cache."""
        self.slots += 1
        self.free_blocks += sequence.blocks
        # The last token was never fed back.
        own = (sequence.prompt + sequence.output - 1) // self._block - self._keep_shared(sequence)
        if own:
            self._prefixes.keep_alone(own)

    def _keep_shared(self, sequence: Sequence) -> int:
        """Keeps the blocks that others with its prefix find; returns how many."""
        if sequence.prefix is None:
            return 0
        shared = min(sequence.prompt, sequence.shared) // self._block
        self._prefixes.keep(sequence.prefix, shared)
        return shared
