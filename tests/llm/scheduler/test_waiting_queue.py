import math
import random

from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import WaitingQueue


def ticket(
    id: int, priority: int = 0, due: float = math.inf, arrived: float = 0.0, tier: str = "a"
) -> Ticket:
    return Ticket(
        id, 10, 10, tier_name=tier, priority=priority, arrived=arrived, ttft_deadline=due, expires=due
    )


def ids(order: WaitingQueue) -> list[int]:
    return [ticket.id for ticket in order]


def test_priority_then_deadline_then_arrival() -> None:
    order = WaitingQueue(5.0)
    for number, (priority, due, arrived) in enumerate(
        [(0, math.inf, 0.0), (0, 4.9, 0.2), (0, 3.0, 0.3), (5, math.inf, 0.4), (0, 3.0, 0.1)]
    ):
        order.add(ticket(number, priority, due, arrived, tier=f"tier {number % 2}"))
    assert ids(order) == [3, 4, 2, 1, 0]
    last = order.last()
    assert last
    assert last.id == 0
    assert [head.id for head in order.heads()] == [3, 4]


def test_first_in_first_out_knows_neither_priority_nor_deadline_nor_age() -> None:
    order = WaitingQueue(5.0, fifo=True)
    for number in range(3):
        order.add(ticket(number, priority=number, due=9.0 - number, tier=f"tier {number}"))
    assert ids(order) == [0, 1, 2]
    assert order.heads()[0].id == 0


def test_waiting_counts_as_priority() -> None:
    """Two priorities are worth 2 · 5 s: a newcomer overtakes who has waited for less."""
    order = WaitingQueue(5.0)
    old = ticket(1, priority=-1)
    for each in (old, ticket(2, priority=1, arrived=9.0), ticket(3, priority=1, arrived=11.0)):
        order.add(each)
    assert ids(order) == [2, 1, 3]
    assert [order.rank(old, now) for now in (0.0, 4.9, 9.9, 15.0)] == [-1, -1, 0, 2]


def test_a_far_deadline_and_none_count_as_the_ageing_time() -> None:
    order = WaitingQueue(5.0)
    for each in (ticket(1, due=60.0, arrived=1.0), ticket(2), ticket(3, due=5.9, arrived=2.0)):
        order.add(each)
    assert ids(order) == [2, 3, 1]


def test_nobody_waits_for_ever_behind_newcomers() -> None:
    """One is handed over a second, two of priority 10 come a second, all with earlier deadlines."""
    order, served = WaitingQueue(5.0), []
    order.add(ticket(0))
    for second in range(200):
        now = float(second)
        for number in range(2):
            order.add(ticket(1 + 2 * second + number, 10, now + 0.5, now))
        first = next(iter(order))
        order.remove(first)
        served.append(first.id)
    # Those that come after 11 · 5 s go behind it; of the 2 · 55 before, one is served a second.
    assert 0 in served
    assert served.index(0) <= 120


def test_those_before_a_newcomer_tier_by_tier() -> None:
    order = WaitingQueue(5.0)
    order.add(ticket(1, due=2.0, tier="a"))
    order.add(ticket(2, due=1.0, tier="b"))
    order.add(ticket(3, due=4.5, tier="b"))
    lines = order.before(ticket(4, due=4.0, tier="b"))
    assert sorted([key[-1].id for key in line] for line in lines) == [[1], [2, 4]]


def test_a_thousand_that_come_and_go_leave_nothing_behind() -> None:
    order, draw = WaitingQueue(0.1), random.Random(0)
    waiting: dict[int, Ticket] = {}
    for number in range(1000):
        now = number / 100
        entry = ticket(
            number, draw.randint(-3, 3), now + draw.choice([0.5, math.inf]), now, draw.choice("abc")
        )
        order.add(entry)
        waiting[number] = entry
        if draw.random() < 0.9:
            order.remove(waiting.pop(draw.choice(list(waiting))))
        keys = [min(each.ttft_deadline, each.arrived + 0.1) - 0.1 * each.priority for each in order]
        assert keys == sorted(keys)
    assert sorted(ids(order)) == sorted(waiting)
    for entry in waiting.values():
        assert order.remove(entry)
        assert not order.remove(entry)
    assert (len(order), order.heads(), order.last(), order.expiring(math.inf)) == (0, [], None, [])
