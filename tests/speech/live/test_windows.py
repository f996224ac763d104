"""The order of windows, and how many are at the recogniser at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from tests.doubles.waiting import wait_until
from trimodal.errors import Unavailable
from trimodal.speech.live.stream import PARTIAL_S, RECORDING_S
from trimodal.speech.live.windows import WindowQueue


@dataclass(eq=False)
class Stream:
    name: str
    due: float | None
    patience_s: float = 0.0
    recording: bool = False


def queue_of(*streams: Stream, most: int = 16) -> tuple[WindowQueue[Stream], list[float]]:
    now = [0.0]
    queue: WindowQueue[Stream] = WindowQueue(most, lambda: now[0])
    for stream in streams:
        queue.put(stream)
    return queue, now


def test_last_words_come_before_partial_ones_and_recordings_after_but_not_for_ever():
    queue, _ = queue_of(
        Stream("partial", 10.0, PARTIAL_S),
        Stream("recording", 10.0, RECORDING_S),
        Stream("last words", 10.4),
        Stream("partial, long due", 9.8, PARTIAL_S),
        Stream("recording, long due", 8.2, RECORDING_S),
        Stream("closed meanwhile", None),
    )
    assert [queue.get().name for _ in range(6)] == [
        "closed meanwhile", "recording, long due", "partial, long due", "last words", "partial", "recording",
    ]  # fmt: skip


def test_many_recordings_make_no_live_stream_wait_for_all_of_them():
    live = Stream("live", 10.0)
    queue, now = queue_of(
        *(Stream(f"recording {n}", 0.0, RECORDING_S, recording=True) for n in range(8)), live, most=1
    )
    order, now[0] = [], 10.0
    for _ in range(12):
        stream = queue.get()
        order.append(stream.name.split()[0])
        now[0] += 1.0
        queue.done(stream, 5.0)
        if stream is live:
            live.due = now[0]  # it always has another one
            queue.put(live)
    assert order == ["recording", "live", "live"] * 4


def test_live_windows_need_not_wait_for_two_of_recordings():
    queue, now = queue_of(*(Stream(str(n), 0.0, RECORDING_S, recording=True) for n in range(4)))
    stream = queue.get()
    now[0] = 2.0  # two are at the recogniser now
    queue.done(stream, 30.0)
    queue.get()
    taken: list[Stream | None] = []
    threading.Thread(target=lambda: taken.append(queue.get()), daemon=True).start()
    queue.put(Stream("live", 9.0))
    wait_until(lambda: len(taken) == 1)
    assert taken[0].name == "live"
    queue.close()


@pytest.mark.parametrize(
    ("seconds", "at_once"),
    [(0.01, 16), (0.05, 10), (0.2, 2), (3.0, 2)],
    ids=["GPU", "quick", "slow", "slower"],
)
def test_as_many_windows_are_at_the_recogniser_as_it_hears_in_half_a_second(seconds, at_once):
    streams = [Stream(str(number), 0.0) for number in range(60)]
    queue, now = queue_of(*streams)
    for _ in range(20):
        stream = queue.get()
        now[0] += seconds * 0.9999
        queue.done(stream, 5.0)
        now[0] += 7.0  # with nothing to do, which is no work
    assert queue.speed == pytest.approx(5.0 / seconds, rel=1e-3)
    taken: list[Stream | None] = []
    threads = [threading.Thread(target=lambda: taken.append(queue.get()), daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(taken) == min(at_once, 20))
    queue.done(taken[0], 0.0)  # one comes back, one goes
    wait_until(lambda: len(taken) == min(at_once + 1, 20))
    queue.close()
    for thread in threads:
        thread.join(10)
    assert taken.count(None) == 20 - min(at_once + 1, 20)


@pytest.mark.parametrize(
    ("alone_s", "more_s", "at_once"),
    [(0.2, 0.0, 16), (0.4, 0.0, 16), (0.4, 0.01, 16), (0.2, 0.2, 2), (1.0, 1.0, 2)],
    ids=["a batch as quick as one", "and slow", "nearly", "one after the other", "and slow"],
)
def test_a_recogniser_that_takes_a_batch_in_the_time_of_one_gets_batches(alone_s, more_s, at_once):
    """With two at once, one heard and one on its way, none ever shared a batch."""
    queue, now = queue_of(*(Stream(str(number), 0.0) for number in range(600)))
    stream = queue.get()
    now[0] += alone_s
    queue.done(stream, 2.0)
    heard, coming = [], [queue.get() for _ in range(queue.room)]
    for _ in range(30):
        heard, coming = coming, []
        now[0] += alone_s + more_s * (len(heard) - 1)
        for stream in heard:
            queue.done(stream, 2.0)
        coming = [queue.get() for _ in range(queue.room)]
    assert at_once <= queue.room <= at_once + 2


def test_windows_in_one_batch_share_its_time():
    queue, now = queue_of(*(Stream(str(number), 0.0) for number in range(40)))
    for _ in range(5):
        streams = [queue.get() for _ in range(8)]
        now[0] += 0.4
        for stream in streams:
            queue.done(stream, 2.0)
    assert queue.speed == pytest.approx(40.0, rel=0.1)


def test_nothing_is_known_before_anything_is_heard():
    queue, now = queue_of(Stream("a", 0.0), Stream("b", 0.0), most=2)
    assert queue.speed is None
    stream = queue.get()
    now[0] = 100.0
    queue.done(stream, 0.0)  # nothing was due any more
    assert queue.speed is None
    assert queue.get() is not None


def test_a_recogniser_that_fails_is_asked_by_all_that_wait(bench, monkeypatch):
    monkeypatch.setattr("trimodal.speech.live.service.BACKOFF_S", 0.0)
    now = [0.0]
    one = bench(clock=lambda: now[0])
    one.recogniser.gate = threading.Semaphore(0)
    one.send(1, start=True).wait()
    wait_until(lambda: one.recogniser.inside == 1)
    now[0] += 3.0  # it is slow
    one.recogniser.gate.release()
    wait_until(lambda: one.recogniser.inside == 0)
    for stream in range(2, 9):
        one.recogniser.errors.append(Unavailable("gone"))
        one.send(stream, start=True).wait()
    wait_until(lambda: one.recogniser.inside == 2)
    one.recogniser.gate.release()
    wait_until(lambda: one.recogniser.inside == 7)
    one.recogniser.gate.release(1000)
    for stream in range(1, 9):
        assert one.send(stream, end=True, seconds=0).wait().error is None


def test_a_window_that_is_given_up_frees_its_place_and_may_come_back():
    recording, waits = Stream("recording", 0.0, recording=True), Stream("waits", 1.0, recording=True)
    queue, _ = queue_of(recording, waits, most=1)
    assert queue.get() is recording
    queue.give_up(recording)
    assert queue.get() is waits
    queue.done(recording, 30.0)
    assert queue.speed is None
    last = Stream("last", 2.0, recording=True)
    queue.put(last)
    assert queue._ready() == []
    queue.done(waits, 0.0)
    queue.give_up(last)
    assert queue._ready() == []


def test_windows_that_come_back_after_they_were_given_up_tell_how_slow_the_recogniser_is():
    """The next burst was sent to it all at once, too, and given up again."""
    streams = [Stream(str(number), 0.0, recording=True) for number in range(4)]
    queue, now = queue_of(*streams)
    taken = [queue.get() for _ in streams]
    now[0] = 61.0
    for stream in taken:
        queue.give_up(stream)
    for stream in taken[:2]:
        now[0] += 20.0
        queue.done(stream, 30.0)
    assert queue.speed == pytest.approx(60.0 / 101.0, rel=0.02)
    assert (queue.room, queue.back) == (2, 101.0)
    for stream in streams:
        queue.put(Stream(f"again {stream.name}", 0.0))
    assert [queue.get().name for _ in range(2)] == ["again 0", "again 1"]
    assert queue._ready() == []
    for stream in taken[2:]:
        queue.done(stream, 30.0)
    assert queue._ready() == [], "they held no place any more"
