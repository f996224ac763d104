"""Simulates the engine of one replica: continuous batching, step by step where something changes.

The same as in the server (`trimodal/llm/scheduler/`, `trimodal/llm/engine_core/core.py`, the fake engine):

- a request is handed to the engine when a batch slot and KV blocks for its prompt and its whole answer are
  free; the first in line waits for its room and none overtakes it; a full queue refuses
- between two steps the engine takes what was handed over, so room that a step frees is filled in the step
  after the next; an idle engine begins at once
- a step gives one token to every sequence that decodes, then computes prompt tokens in the order of coming,
  up to max_num_batched_tokens together; the step that ends a prompt makes its first token
- without chunked prefill a step computes whole prompts, and those that decode wait meanwhile
- the last token of a prompt is computed even where all of it is cached

Simplified: one tier without deadlines, and no bound on ITL that holds prompts back; the answer's length is
the max_tokens that was asked for; no speculation; a step's time depends on how many sequences decode and on
its prompt tokens, not on how long their contexts are; cached prompt blocks are counted as in
`trimodal/plan/fleet/prefixes.py`.

Steps between two changes (a first or a last token, an arrival that there is room for) are alike: they are one
event, whatever their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from trimodal.plan.fleet.figures import ReplicaFigures
from trimodal.plan.fleet.prefixes import Key, PrefixCache


class Sequence:
    """One request on its way.

    Attributes:
        at: arrival, seconds.
        prefix: whose beginning its prompt has; None: nobody else's. shared: tokens that all prompts of the
            prefix have in common; 0: it is a talk, of which each prompt begins with the one before.
        missing: prompt tokens to compute; cached: those that the prefix cache spared.
        first: when its first token came; -1: not yet. started: when it was handed to the engine.
    """

    __slots__ = (
        "at", "blocks", "cached", "first", "missing", "output", "prefix", "prompt", "shared", "started",
    )  # fmt: skip

    def __init__(
        self, at: float, prompt: int, output: int, prefix: Key | None = None, shared: int = 0
    ) -> None:
        self.at = at
        self.prompt = prompt
        self.output = output
        self.prefix = prefix
        self.shared = shared
        self.blocks = self.missing = self.cached = 0
        self.started = self.first = -1.0


class Engine:
    """The engine of one replica with the queue in front of it. Times are seconds of the simulation.

    Args:
        gaps: takes each gap between tokens, with how many there are of it.
        handed: takes the seconds that a request waited in the queue; told: a sequence with its first token.

    Attributes:
        ends: when the run of steps under way ends; None: idle. version: counts its changes.
        busy: seconds in steps; slot_s: the same, times the batch slots that were taken. made: tokens.
        waiting, decoding: requests.
    """

    def __init__(
        self,
        figures: ReplicaFigures,
        *,
        gaps: Callable[[float, int], object] = lambda gap, count: None,
        handed: Callable[[float], object] | None = None,
        told: Callable[[Sequence], object] | None = None,
    ) -> None:
        self._figures = figures
        self._times = figures.step_times()
        self._prefill_s = figures.prefill_us / 1e6
        self._budget = figures.max_num_batched_tokens
        self._chunked = figures.enable_chunked_prefill
        self._block = figures.block_tokens
        self._caching = figures.kept_blocks > 0
        self._gaps, self._handed, self._told = gaps, handed, told
        self._prefixes = PrefixCache(figures.kept_blocks)
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
        self._began = self._step = self._stalled = 0.0
        self._count = self._tokens = self._decoders = 0
        self.ends: float | None = None
        self.version = 0
        self.busy = self.slot_s = 0.0
        self.made = 0

    @property
    def held(self) -> int:
        """Requests that are here, in the queue or in the engine."""
        return len(self.waiting) + len(self._inbox) + len(self._prefilling) + self.decoding

    def takes(self, sequence: Sequence) -> bool:
        """Whether it is not refused: there is room in the queue, or for it at once."""
        waiting = len(self.waiting)
        return waiting < self._figures.max_queue or (not waiting and self._fits(sequence))

    def submit(self, sequence: Sequence, now: float) -> bool:
        """Takes a request in, whose `blocks` are known; whether `ends` is another one now."""
        if self.waiting or not self._fits(sequence):
            self.waiting.append(sequence)
            return False
        self._hand_over(sequence, now)
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
        count, decoders = self._count, self._decoders
        took = now - self._began
        self.busy += took
        self.slot_s += took * (self._most - self.slots)
        self.made += count * decoders
        ended: list[Sequence] = []
        if decoders:
            self._steps += count
            self._note_gaps(count, decoders)
            ends, steps = self._ends, self._steps
            while ends and ends[0][0] <= steps:
                ended.append(heappop(ends)[2])
            self.decoding -= len(ended)
        elif self.decoding:
            self._stalled += took
        if self._tokens:
            self._prefilled(self._tokens * count, now, ended)
        for sequence in ended:
            self._release(sequence)
        self._begin(now)
        return ended

    def die(self) -> list[Sequence]:
        """Loses everything that is here, the prefix cache too; returns the requests."""
        decoding = [sequence for _, _, sequence in sorted(self._ends)]
        lost = [*decoding, *self._prefilling, *self._inbox, *self.waiting]
        self._ends, self._inbox = [], []
        self._prefilling.clear()
        self.waiting.clear()
        self._prefixes.clear()
        self.slots, self.free_blocks = self._figures.max_num_seqs, self._figures.num_kv_blocks
        self.decoding = self._backlog = 0
        self._stalled = 0.0
        self.ends = None
        self.version += 1
        return lost

    def work(self, now: float) -> tuple[float, float, int]:
        """`busy`, `slot_s` and `made` until now, with the run under way."""
        if self.ends is None:
            return self.busy, self.slot_s, self.made
        took = max(0.0, now - self._began)
        made = int(took / self._step) * self._decoders
        return self.busy + took, self.slot_s + took * (self._most - self.slots), self.made + made

    def cut(self, now: float) -> None:
        """Ends a run in its midst: of a replica that dies now."""
        self.busy, self.slot_s, self.made = self.work(now)
        self.ends = None

    def _fits(self, sequence: Sequence) -> bool:
        return self.slots > 0 and sequence.blocks <= self.free_blocks

    def _hand_over(self, sequence: Sequence, now: float) -> None:
        self.slots -= 1
        self.free_blocks -= sequence.blocks
        sequence.started = now
        if self._handed:
            self._handed(now - sequence.at)
        self._inbox.append(sequence)

    def _begin(self, now: float) -> None:
        """Begins a run of equal steps, as many as there are until something changes."""
        self.version += 1
        if self._inbox:
            self._take()
        waiting = self.waiting
        while waiting and self.slots > 0 and waiting[0].blocks <= self.free_blocks:
            self._hand_over(waiting.popleft(), now)
        if not (self.decoding or self._prefilling):
            if not self._inbox:
                self.ends = None
                return
            self._take()
        decoding = self.decoding
        count = self._ends[0][0] - self._steps if decoding else 1
        self._tokens, self._decoders = 0, decoding
        if self._prefilling:
            head = self._prefilling[0].missing
            if self._chunked:
                budget = self._budget - decoding
                self._tokens = min(budget, self._backlog)
                # Steps that only shorten the first prompt are alike.
                alike = (head - 1) // budget
                count = min(count, alike) if decoding and alike else alike or 1
            else:
                self._tokens, self._decoders, count = self._whole_prompts(), 0, 1
        self._step = self._times[self._decoders] + self._tokens * self._prefill_s
        self._count = 1 if self._inbox else count
        self._began = now
        self.ends = now + self._count * self._step

    def _take(self) -> None:
        for sequence in self._inbox:
            prompt, prefix = sequence.prompt, sequence.prefix
            cached = 0
            if prefix is not None and self._caching:
                shared = min(prompt, sequence.shared or prompt)
                cached = min(self._prefixes.find(prefix, shared // self._block) * self._block, prompt - 1)
            sequence.cached = cached
            sequence.missing = prompt - cached
            self._backlog += sequence.missing
            self._prefilling.append(sequence)
        self._inbox.clear()

    def _whole_prompts(self) -> int:
        """Prompt tokens of a step without chunks: one prompt, and more as long as they fit."""
        tokens = 0
        for sequence in self._prefilling:
            if tokens and tokens + sequence.missing > self._budget:
                break
            tokens += sequence.missing
        return tokens

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
            self.made += 1
            if self._told:
                self._told(sequence)
            if self._caching:
                self._keep(sequence, sequence.prompt, last=False)
            if sequence.output == 1:
                ended.append(sequence)
            else:
                self._order += 1
                heappush(self._ends, (self._steps + sequence.output - 1, self._order, sequence))
                self.decoding += 1

    def _release(self, sequence: Sequence) -> None:
        self.slots += 1
        self.free_blocks += sequence.blocks
        if self._caching:
            # The last token was never fed back.
            self._keep(sequence, sequence.prompt + sequence.output - 1, last=True)

    def _keep(self, sequence: Sequence, tokens: int, *, last: bool) -> None:
        """Leaves the blocks of so many tokens to others; at the end also those that nobody shares."""
        own = tokens // self._block
        if sequence.prefix is not None:
            shared = min(sequence.prompt, sequence.shared) if sequence.shared else tokens
            shared //= self._block
            self._prefixes.keep(sequence.prefix, shared)
            own -= shared
        if last and own:
            self._prefixes.keep_alone(own)

    def _note_gaps(self, count: int, decoders: int) -> None:
        """Gaps of those that decode; after prompts that were computed alone the first one is longer."""
        if self._stalled:
            self._gaps(self._step + self._stalled, decoders)
            self._stalled = 0.0
            count -= 1
        if count:
            self._gaps(self._step, count * decoders)
