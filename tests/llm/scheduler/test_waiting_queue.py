import math
import random

from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import QUANTUM, WaitingQueue


def ticket(
    id: int,
    priority: int = 0,
    due: float = math.inf,
    arrived: float = 0.0,
    tier: str = "a",
    tenant: str = "",
    tokens: int = 20,
) -> Ticket:
    made = Ticket(id, tokens // 2, tokens - tokens // 2, tier_name=tier, priority=priority, arrived=arrived)
    made.ttft_deadline = made.expires = due
    made.tenant = tenant
    return made


def ids(order: WaitingQueue) -> list[int]:
    return [ticket.id for ticket in order]


def test_priority_then_deadline_then_arrival() -> None:
    order = WaitingQueue(5.0)
    for number, (priority, due, arrived) in enumerate(
        [(0, math.inf, 0.0), (0, 9.0, 0.2), (0, 3.0, 0.3), (5, math.inf, 0.4), (0, 3.0, 0.1)]
    ):
        order.add(ticket(number, priority, due, arrived, tier=f"tier {number % 2}"))
    assert ids(order) == [3, 4, 2, 1, 0]
    last = order.last()
    assert last
    assert last.id == 0


def test_waiting_raises_the_priority() -> None:
    order = WaitingQueue(5.0)
    old, new = ticket(1, priority=-1), ticket(2, priority=1, arrived=9.0)
    order.add(old)
    order.add(new)
    assert ids(order) == [2, 1]
    order.age(9.9)  # old rose at 5 s
    assert ids(order) == [2, 1]
    order.age(15.0)  # old for the 2nd and 3rd time at once, new for the first
    assert order.rank(old, 15.0) == order.rank(new, 15.0) == 2
    assert ids(order) == [1, 2]  # of one priority, so the one that came first
    assert [order.rank(old, now) for now in (0.0, 4.9, 9.9, 15.0)] == [-1, -1, 0, 2]


def test_the_earliest_deadline_goes_first_also_beyond_the_ageing_time() -> None:
    order = WaitingQueue(5.0)
    for each in (ticket(1), ticket(2, due=3600.0, arrived=1.0), ticket(3, due=60.0, arrived=2.0)):
        order.add(each)
    assert ids(order) == [3, 2, 1]
    order.age(4.9)
    assert ids(order) == [3, 2, 1]
    order.age(8.0)  # all have waited for more than 5 s
    assert ids(order) == [3, 2, 1]
    order.age(10.1)  # the first for more than 10 s
    assert ids(order) == [1, 3, 2]


def test_nobody_waits_for_ever_behind_newcomers() -> None:
    """One is handed over a second, two of priority 10 come a second, all with earlier deadlines."""
    order, served = WaitingQueue(5.0), []
    order.add(ticket(0))
    for second in range(200):
        now = float(second)
        for number in range(2):
            order.add(ticket(1 + 2 * second + number, 10, now + 0.5, now))
        order.age(now)
        first = next(iter(order))
        order.remove(first)
        served.append(first.id)
    # Its priority passes all newcomers' at (10 + 1) · 5 s; those that came before rise as it does.
    assert 0 in served
    assert served.index(0) <= 120


def test_those_before_a_newcomer_tier_by_tier() -> None:
    order = WaitingQueue(5.0)
    order.add(ticket(1, due=2.0, tier="a"))
    order.add(ticket(2, due=1.0, tier="b"))
    order.add(ticket(3, due=8.0, tier="b"))
    lines = order.before(ticket(4, due=5.0, tier="b"))
    assert sorted([key[-1].id for key in line] for line in lines) == [[1], [2, 4]]


def test_those_that_expire_come_the_earliest_first() -> None:
    order = WaitingQueue(5.0)
    waiting = [ticket(id, due=due) for id, due in enumerate([8.0, math.inf, 3.0, 5.0, 3.0])]
    for each in waiting:
        order.add(each)
    assert [each.id for each in order.expiring(5.0)] == [2, 4]
    assert [each.id for each in order.expiring(math.inf)] == [2, 4, 3, 0]
    order.remove(waiting[2])
    assert [each.id for each in order.expiring(math.inf)] == [4, 3, 0]


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
        order.age(now)
        if draw.random() < 0.9:
            order.remove(waiting.pop(draw.choice(list(waiting))))
        keys = [(-order.rank(each, now), each.ttft_deadline) for each in order]
        assert keys == sorted(keys)
    assert sorted(ids(order)) == sorted(waiting)
    for entry in waiting.values():
        assert order.remove(entry)
        assert not order.remove(entry)
    assert (len(order), ids(order), order.last(), order.expiring(math.inf)) == (0, [], None, [])


def test_a_newcomer_goes_before_the_flood_of_another_tenant_however_long_that_waits() -> None:
    order = WaitingQueue(5.0)
    for id in range(60):
        order.add(ticket(id, due=100.0 + id, tenant="flood", tokens=QUANTUM))
    order.age(50.0)  # a newcomer's rank is 10 less
    newcomer = ticket(60, arrived=50.0, tenant="other", tokens=QUANTUM)
    lines = order.before(newcomer)
    order.add(newcomer)
    assert [[key[-1].id for key in line] for line in lines] == [ids(order)[:2]] == [[0, 60]]
    order.age(55.0)
    assert ids(order)[:3] == [0, 60, 1]


def test_priority_goes_before_turns_and_age_still_raises_between_priorities() -> None:
    order = WaitingQueue(5.0)
    for id in range(3):
        order.add(ticket(id, 2, arrived=9.0, tenant="urgent", tokens=4 * QUANTUM))
    order.add(ticket(3, 0, arrived=0.0, tenant="patient"))
    assert ids(order) == [0, 1, 2, 3]
    order.age(13.0)  # patient rose to 2, and wants less
    assert ids(order) == [3, 0, 1, 2]


def test_within_a_turn_the_earliest_deadline_goes_first_but_none_gets_another_turn_by_it() -> None:
    order = WaitingQueue(5.0)
    for id in range(4):
        order.add(ticket(id, tenant="a", tokens=QUANTUM // 2))
    for id in range(4, 8):
        order.add(ticket(id, due=9.0 - id, arrived=1.0, tenant="b", tokens=QUANTUM // 2))
    assert ids(order) == [7, 6, 0, 1, 5, 4, 2, 3]


def test_tenants_get_the_same_tokens_whatever_their_requests_are() -> None:
    """Three always have some waiting: of many small, some large and very large requests."""
    sizes = {"small": (20, 80), "large": (300, 900), "huge": (1000, 4000)}
    for seed in range(5):
        order, draw, id = WaitingQueue(5.0), random.Random(seed), 0
        served = dict.fromkeys(sizes, 0)
        waiting = dict.fromkeys(sizes, 0)
        while sum(served.values()) < 200 * QUANTUM:
            for name, few in waiting.items():
                for _ in range(few, 1 + draw.randint(1, 8)):
                    id += 1
                    order.add(ticket(id, arrived=id / 10, tenant=name, tokens=draw.randint(*sizes[name])))
                    waiting[name] += 1
            order.age(id / 10)
            first = next(iter(order))
            order.remove(first)
            tokens = first.prompt_tokens + first.max_tokens
            order.charge(first, tokens)
            served[first.tenant] += tokens
            waiting[first.tenant] -= 1
        assert max(served.values()) - min(served.values()) <= QUANTUM + 4000, (seed, served)


def test_who_comes_back_has_saved_up_nothing_and_owes_what_it_took() -> None:
    order = WaitingQueue(5.0)
    a, b = (ticket(id, tenant=tenant, tokens=QUANTUM) for id, tenant in enumerate("ab"))
    order.add(a)
    order.add(b)
    order.remove(a)
    order.charge(a, 10 * QUANTUM)
    order.add(ticket(2, tenant="new", tokens=QUANTUM))
    for id in range(3, 6):
        order.add(ticket(id, tenant="ab"[id % 2], tokens=QUANTUM))
    assert ids(order) == [1, 2, 3, 5, 4]  # 4 is a's


def test_a_full_queue_gives_the_place_of_the_latest_turn_not_that_of_a_tenant_who_wants_as_little() -> None:
    order = WaitingQueue(5.0)
    for id in range(4):
        order.add(ticket(id, tenant="flood", tokens=QUANTUM))
    last = order.loser(ticket(9, tenant="other", tokens=QUANTUM), 0.0)
    assert last
    assert last.id == 3
    assert order.loser(ticket(9, tenant="flood", tokens=1), 0.0) is None
    assert order.loser(ticket(9, tenant="other", tokens=4 * QUANTUM), 0.0) is None
    assert order.loser(ticket(9, priority=-1, tenant="other"), 0.0) is None


def test_when_one_tenant_is_left_it_goes_on_by_deadline() -> None:
    order = WaitingQueue(5.0)
    other = ticket(0, tenant="other")
    order.add(other)
    for id in range(1, 4):
        order.add(ticket(id, due=9.0, tenant="one", tokens=QUANTUM))
    order.remove(other)
    newcomer = ticket(4, due=5.0, tenant="one", tokens=9 * QUANTUM)
    assert [[key[-1].id for key in line] for line in order.before(newcomer)] == [[4]]
    order.add(newcomer)
    assert ids(order) == [4, 1, 2, 3]
