import math
from dataclasses import replace
from typing import Any

import pytest

from tests.llm.scheduler.engine_rig import STEP, TOKEN, info, settings
from trimodal.errors import Unavailable
from trimodal.llm.scheduler.scheduler import Scheduler
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.tiers import Tier


class Clock:
    now = 1.0

    def __call__(self) -> float:
        return self.now


def make(seqs: int = 2, blocks: int = 100, **values: object) -> tuple[Scheduler, Clock]:
    clock = Clock()
    return Scheduler(settings(max_num_seqs=seqs, **values), info(blocks, seqs), clock), clock


def ticket(
    id: int,
    *,
    priority: int = 0,
    due: float = math.inf,
    prompt: int = 100,
    tokens: int = 28,
    tier: Tier | None = None,
    name: str = "standard",
    arrived: float = 1.0,
) -> Ticket:
    return Ticket(id, prompt, tokens, tier or Tier(), name, priority, arrived=arrived, ttft_deadline=due)


def handed_over(scheduler: Scheduler) -> list[int]:
    ids = []
    while each := scheduler.next():
        ids.append(each.id)
    return ids


@pytest.mark.parametrize(("told", "held_back"), [(2048, True), (0, False)])
def test_a_step_is_what_the_engine_told_of_its_card_or_what_is_set(told: int, held_back: bool) -> None:
    """With small steps any prompt may go beside a stream whose ITL is bounded; with large ones few tokens."""
    clock = Clock()
    engine = replace(info(), max_num_batched_tokens=told)
    scheduler = Scheduler(settings(max_num_batched_tokens=256), engine, clock)

    def serve(each: Ticket, tokens: int) -> None:
        scheduler.admit(each)
        assert scheduler.next() is each
        clock.now += STEP + TOKEN * each.prompt_tokens
        for _ in range(tokens):
            scheduler.progress(each, 1, 0)
            clock.now += STEP

    def beside_a_stream(id: int) -> list[int]:
        """Of two long prompts that come while it decodes, those that are handed over at once."""
        serve(ticket(id, tier=Tier(itl_bound_ms=50)), 1)
        prompts = [ticket(id + one, prompt=400) for one in (1, 2)]
        for each in prompts:
            scheduler.admit(each)
        return handed_over(scheduler)

    for id in range(1, 13):
        learned = ticket(id, prompt=20 * id)
        serve(learned, 40)
        scheduler.finish(learned)
    assert beside_a_stream(100) == ([101] if held_back else [101, 102])
    scheduler.reopen(replace(engine, max_num_batched_tokens=256))  # the next engine chose another
    while scheduler.next():
        pass
    assert beside_a_stream(200) == [201, 202]


@pytest.mark.parametrize(("seqs", "blocks"), [(1, 100), (4, 4)])
def test_no_queue_at_all_still_serves_who_fits(seqs: int, blocks: int) -> None:
    scheduler, _ = make(seqs, blocks, max_queue=0)
    scheduler.admit(ticket(1))
    assert handed_over(scheduler) == [1]
    with pytest.raises(Unavailable, match="0 requests wait already"):
        scheduler.admit(ticket(2))


def test_handed_over_in_order_as_slots_come_free() -> None:
    scheduler, _ = make()
    tickets = [ticket(1), ticket(2), ticket(3), ticket(4, priority=5), ticket(5, due=5.9)]
    for each in tickets:
        scheduler.admit(each)
    assert handed_over(scheduler) == [4, 5]
    assert (scheduler.running, scheduler.waiting, scheduler.admission.reserved_blocks) == (2, 3, 8)
    scheduler.progress(tickets[3], 1, 0)
    scheduler.finish(tickets[3])
    assert handed_over(scheduler) == [1]
    scheduler.leave(tickets[4])
    scheduler.leave(tickets[1])
    assert handed_over(scheduler) == [3]


def test_first_in_first_out_keeps_the_order_of_coming_and_expires_nothing() -> None:
    scheduler, clock = make(scheduler="fifo", max_queue=3)
    late = [ticket(1), ticket(2, due=1.001, priority=-3), ticket(3, priority=5, due=1.001)]
    for each in late:
        scheduler.admit(each)
    clock.now = 50.0
    assert scheduler.overdue() == []
    with pytest.raises(Unavailable, match="max_queue is 3"):
        scheduler.admit(ticket(4, priority=100))
    assert handed_over(scheduler) == [1, 2]


def test_small_ones_pass_a_big_one_that_waits_for_its_room_but_not_for_ever() -> None:
    scheduler, clock = make(seqs=16, blocks=20, ageing_s=5.0)
    runs, big = ticket(1), ticket(2, prompt=500, tokens=100)
    small = [ticket(id, prompt=10, tokens=10) for id in (3, 4, 5)]
    scheduler.admit(runs)
    assert handed_over(scheduler) == [1]
    scheduler.admit(big)  # 19 of 20 blocks
    scheduler.admit(small[0])
    assert handed_over(scheduler) == [3]
    clock.now += 4.9
    scheduler.admit(small[1])
    assert handed_over(scheduler) == [4]
    clock.now += 0.2
    scheduler.admit(small[2])
    assert handed_over(scheduler) == []
    for each in (runs, *small[:2]):
        scheduler.finish(each)
    assert handed_over(scheduler) == [2, 5]


@pytest.mark.parametrize(
    "values",
    [{"big": {"due": 9.0}}, {"big": {"priority": 1}}, {"scheduler": "fifo"}],
    ids=["a deadline", "a higher priority", "in the order of coming"],
)
def test_no_small_one_passes_one_with(values: dict[str, Any]) -> None:
    scheduler, _ = make(seqs=16, blocks=20, **{k: v for k, v in values.items() if k != "big"})
    scheduler.admit(ticket(1))
    assert handed_over(scheduler) == [1]
    scheduler.admit(ticket(2, prompt=500, tokens=100, **values.get("big", {})))
    scheduler.admit(ticket(3, prompt=10, tokens=10))
    assert handed_over(scheduler) == []


def test_answers_that_may_be_long_share_the_pool_and_reserve_as_they_grow() -> None:
    scheduler, _ = make(seqs=4, blocks=64)  # 2,048 tokens
    long = [ticket(id, prompt=64, tokens=1900) for id in (1, 2, 3)]
    for each in long:
        scheduler.admit(each)
    assert handed_over(scheduler) == [1, 2, 3], "though one alone may come to use it all"
    assert scheduler.admission.reserved_blocks == 3 * (2 + 16)
    scheduler.progress(long[0], 1, 0)
    scheduler.progress(long[0], 600, 0)
    assert scheduler.admission.reserved_blocks >= 2 * 18 + 2 + 19
    scheduler.progress(long[1], 1, 0)
    scheduler.progress(long[1], 900, 0)
    assert scheduler.admission.reserved_blocks > 64
    scheduler.admit(ticket(4, prompt=10, tokens=10))
    assert handed_over(scheduler) == [], "nobody else comes in while they hold more than there is"
    for each in long[:2]:
        scheduler.finish(each)
    assert scheduler.admission.reserved_blocks == 18
    assert handed_over(scheduler) == [4]


def test_a_tier_without_share_is_passed_over_however_many_of_it_wait() -> None:
    scheduler, _ = make(seqs=16, blocks=40)
    scant = Tier(kv_share=0.2, priority=5)  # 8 blocks
    for id in range(1, 61):
        scheduler.admit(ticket(id, tier=scant, name="scant", priority=5))
    scheduler.admit(ticket(99))
    assert handed_over(scheduler) == [1, 2, 99]


def test_who_cannot_be_in_time_any_more_leaves_the_queue_with_a_reason() -> None:
    scheduler, clock = make(seqs=1)
    scheduler.admit(ticket(1))
    assert handed_over(scheduler) == [1]
    late, patient = ticket(2, due=1.5), ticket(3)
    scheduler.admit(late)
    scheduler.admit(patient)
    clock.now = 1.4
    assert scheduler.overdue() == []
    clock.now = 1.6
    assert scheduler.overdue() == [late]
    assert late.problem == "ttft_deadline_ms cannot be kept any more after 600 ms in the queue"
    assert late.retry_after_s > 0
    assert scheduler.overdue() == []
    assert scheduler.waiting == 1
    assert scheduler.unserved == {"expired": 1}


def test_a_full_queue_makes_room_for_a_higher_class_only() -> None:
    scheduler, clock = make(seqs=1, max_queue=2)
    for id in (1, 2, 3):
        scheduler.admit(ticket(id, arrived=clock.now))
        handed_over(scheduler)
        clock.now += 0.1
    with pytest.raises(Unavailable, match=r"2 requests wait already: max_queue is 2; retry after \d"):
        scheduler.admit(ticket(4))
    scheduler.admit(ticket(5, priority=1))
    assert scheduler.waiting == 2
    (loser,) = scheduler.overdue()
    assert loser.id == 3
    assert "the queue is full, and a request that goes before it came" in loser.problem
    assert scheduler.unserved == {"displaced": 1, "queue": 1}


def test_a_more_urgent_listener_boosts_but_does_not_shorten_the_others_patience() -> None:
    scheduler, clock = make(seqs=1)
    first, shared = ticket(1), ticket(4)
    for each in (first, ticket(2), ticket(3)):
        scheduler.admit(each)
    handed_over(scheduler)
    scheduler.admit(shared)
    scheduler.boost(shared, 7, 1.2)
    assert (shared.priority, shared.ttft_deadline) == (7, 1.2)
    clock.now = 2.0
    assert scheduler.overdue() == []
    scheduler.leave(ticket(1))  # another object of that id is none of ours
    assert scheduler.waiting == 3
    scheduler.finish(first)
    assert handed_over(scheduler) == [4]


def test_who_waits_while_the_engine_empties_its_cache_is_expected_to_find_nothing() -> None:
    scheduler, _ = make(seqs=1)
    first, waits, comes = (Ticket(id, 100, 28, prefix=7) for id in (1, 2, 3))
    scheduler.admit(first)
    assert handed_over(scheduler) == [1]
    scheduler.progress(first, 1, cached_tokens=64)
    scheduler.admit(waits)
    assert waits.uncached == 36
    scheduler.cache_emptied()
    scheduler.admit(comes)
    assert [one.uncached for one in (waits, comes)] == [100, 100]


def test_those_that_wait_outlive_the_engine() -> None:
    scheduler, _ = make(seqs=1, blocks=20)
    runs, big, small = ticket(1), ticket(2, prompt=500, tokens=100), ticket(3)
    for each in (runs, big, small):
        scheduler.admit(each)
    assert handed_over(scheduler) == [1]
    scheduler.reopen(info(blocks=10, seqs=1))
    assert (scheduler.running, scheduler.waiting, scheduler.admission.reserved_blocks) == (0, 2, 0)
    scheduler.leave(runs)  # its owner may come late
    assert scheduler.stranded() == [big]
    assert scheduler.waiting == 1
    assert handed_over(scheduler) == [3]
    assert scheduler.stranded() == []
