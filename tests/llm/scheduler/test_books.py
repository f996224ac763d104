"""Whatever happens in whatever order: the books balance, and nobody is lost or waits for ever."""

from __future__ import annotations

import math

from hypothesis import settings as limits
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.llm.scheduler.engine_rig import info, settings
from trimodal.errors import Unavailable
from trimodal.llm.scheduler.scheduler import Scheduler
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.tiers import Tier

TIERS = {
    "premium": Tier(priority=10, itl_bound_ms=50, ttft_deadline_ms=500),
    "standard": Tier(),
    "batch": Tier(priority=-10, kv_share=0.2),
}
SEQS, BLOCKS = 4, 40
LEAVES = st.integers(0, 1000)


class Books(RuleBasedStateMachine):
    """An owner that does anything that its contract allows."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.id = 0
        self.scheduler = Scheduler(
            settings(max_queue=12, max_num_seqs=SEQS), info(BLOCKS, SEQS), lambda: self.now
        )
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Ticket] = {}

    @rule(
        name=st.sampled_from(list(TIERS)),
        prompt=st.integers(1, 900),
        tokens=st.integers(1, 300),
        within=st.sampled_from([0.0, 0.001, 0.1, 1.0, math.inf]),
        prefix=st.integers(0, 3),
        tenant=st.sampled_from(["", "a", "b"]),
    )
    def come(self, name: str, prompt: int, tokens: int, within: float, prefix: int, tenant: str) -> None:
        tier = TIERS[name]
        self.id += 1
        each = Ticket(self.id, prompt, tokens, tier, name, tier.priority, prefix, self.now, self.now + within)
        each.tenant = tenant
        try:
            self.scheduler.admit(each)
        except Unavailable:
            return
        self.waiting[each.id] = each

    @rule()
    def change(self) -> None:
        for each in self.scheduler.overdue():
            assert each.problem
            assert each.retry_after_s > 0
            del self.waiting[each.id]
        while each := self.scheduler.next():
            self.running[each.id] = self.waiting.pop(each.id)
        if not self.running:
            assert not self.waiting  # an idle engine leaves nobody waiting

    @precondition(lambda self: self.running)
    @rule(seconds=st.floats(0, 3), tokens=st.integers(0, 40), cached=st.integers(0, 100))
    def step(self, seconds: float, tokens: int, cached: int) -> None:
        self.now += seconds
        for each in list(self.running.values()):
            self.scheduler.progress(each, tokens, min(cached, each.prompt_tokens - 1))
            if each.completion_tokens >= each.max_tokens:
                self.scheduler.finish(self.running.pop(each.id))

    @precondition(lambda self: self.running)
    @rule(which=LEAVES, finished=st.booleans())
    def end(self, which: int, finished: bool) -> None:
        each = self.running.pop(list(self.running)[which % len(self.running)])
        (self.scheduler.finish if finished else self.scheduler.leave)(each)

    @precondition(lambda self: self.waiting)
    @rule(which=LEAVES)
    def cancel(self, which: int) -> None:
        self.scheduler.leave(self.waiting.pop(list(self.waiting)[which % len(self.waiting)]))

    @precondition(lambda self: self.waiting or self.running)
    @rule(which=LEAVES, priority=st.integers(-10, 10), within=st.sampled_from([0.001, 1.0, math.inf]))
    def boost(self, which: int, priority: int, within: float) -> None:
        everyone = [*self.waiting.values(), *self.running.values()]
        self.scheduler.boost(everyone[which % len(everyone)], priority, self.now + within)

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def lose_the_engine(self) -> None:
        for each in self.running.values():
            self.scheduler.leave(each)
        self.running.clear()
        self.scheduler.reopen(info(BLOCKS, SEQS))
        assert not self.scheduler.stranded()

    @invariant()
    def balanced(self) -> None:
        scheduler, books = self.scheduler, self.scheduler.admission
        blocks = sum(-(-(each.prompt_tokens + each.max_tokens) // 32) for each in self.running.values())
        assert scheduler.running == len(self.running) <= SEQS
        assert scheduler.admission.reserved_blocks == blocks <= BLOCKS
        assert sum(books.reserved_by_tier.values()) == blocks
        assert min(books.reserved_by_tier.values(), default=1) > 0
        speed = scheduler._latency
        unanswered = [each for each in self.running.values() if not each.first_token]
        assert speed.pending == sum(each.uncached for each in unanswered)
        assert speed.streams == len(self.running) - len(unanswered)

    def teardown(self) -> None:
        """All that is left is served: nobody waits for ever."""
        for _ in range(200):
            self.change()
            if not self.running:
                break
            for each in list(self.running.values()):
                self.scheduler.progress(each, 1, 0)
                self.scheduler.finish(self.running.pop(each.id))
        assert (self.scheduler.waiting, self.scheduler.running, self.scheduler.admission.reserved_blocks) == (
            0,
            0,
            0,
        )
        assert not self.scheduler.admission.reserved_by_tier


TestBooks = Books.TestCase
TestBooks.settings = limits(max_examples=60, stateful_step_count=40)
