import math
from dataclasses import replace

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


def test_a_big_one_waits_for_its_room_and_no_small_one_passes() -> None:
    scheduler, _ = make(seqs=16, blocks=20)
    runs, big, small = ticket(1), ticket(2, prompt=500, tokens=100), ticket(3, prompt=10, tokens=10)
    scheduler.admit(runs)
    assert handed_over(scheduler) == [1]
    scheduler.admit(big)  # 19 of 20 blocks
    scheduler.admit(small)
    assert handed_over(scheduler) == []
    scheduler.finish(runs)
    assert handed_over(scheduler) == [2, 3]


def test_a_tier_without_share_is_passed_over_until_it_has() -> None:
    scheduler, _ = make(seqs=16, blocks=40)
    scant = Tier(kv_share=0.2, priority=5)  # 8 blocks
    for id in (1, 2, 3):
        scheduler.admit(ticket(id, tier=scant, name="scant", priority=5))
    scheduler.admit(ticket(4))
    assert handed_over(scheduler) == [1, 2, 4]


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
    assert scheduler.stats().unserved == {"expired": 1}


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
    assert "the queue is full, and a request of higher priority came" in loser.problem
    assert scheduler.stats().unserved == {"displaced": 1, "queue": 1}


def test_a_loser_that_its_client_cancels_first_is_not_told_twice() -> None:
    scheduler, _ = make(seqs=1, max_queue=1)
    runs, loser = ticket(1), ticket(2)
    scheduler.admit(runs)
    handed_over(scheduler)
    scheduler.admit(loser)
    scheduler.admit(ticket(3, priority=1))
    scheduler.leave(loser)
    assert scheduler.overdue() == []
    assert scheduler.waiting == 1


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


def test_boosting_who_runs_is_harmless() -> None:
    scheduler, _ = make()
    runs = ticket(1)
    scheduler.admit(runs)
    handed_over(scheduler)
    scheduler.boost(runs, 7, 1.2)
    scheduler.finish(runs)
    assert (scheduler.running, scheduler.admission.reserved_blocks) == (0, 0)


def test_those_that_wait_outlive_the_engine() -> None:
    scheduler, _ = make(seqs=1, blocks=20)
    runs, big, small = ticket(1), ticket(2, prompt=500, tokens=100), ticket(3)
    for each in (runs, big, small):
        scheduler.admit(each)
    assert handed_over(scheduler) == [1]
    scheduler.reopen(info(blocks=10, seqs=1))
    assert (scheduler.running, scheduler.waiting, scheduler.admission.reserved_blocks) == (0, 2, 0)
    scheduler.leave(runs)  # its owner may come late
    assert handed_over(scheduler) == []
    assert scheduler.stranded() == [big]
    assert handed_over(scheduler) == [3]
    assert scheduler.stranded() == []


def test_tokens_of_who_is_gone_are_ignored() -> None:
    scheduler, _ = make()
    gone = ticket(1)
    scheduler.admit(gone)
    handed_over(scheduler)
    scheduler.leave(gone)
    scheduler.progress(gone, 3, 0)
    scheduler.finish(gone)
    assert scheduler.running == 0


def test_what_was_spared_is_not_counted_as_work() -> None:
    scheduler, clock = make(seqs=1)
    for id in range(1, 3):
        each = ticket(id)
        each.prefix = 77
        scheduler.admit(each)
        handed_over(scheduler)
        assert each.uncached == (100 if id == 1 else 36)
        clock.now += 0.1
        scheduler.progress(each, 1, 64)
        scheduler.finish(each)


def test_stats_are_plain_figures_from_the_start() -> None:
    stats = make()[0].stats()
    assert not stats.unserved
    assert math.isnan(stats.error_p50_s)
