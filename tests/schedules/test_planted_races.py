"""Races put in on purpose are found, each within seconds: that the scenarios pass says something."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schedules.play import Scenario, play
from tests.schedules.scenarios.llm import Closing, Scheduling, Sharing
from tests.schedules.scenarios.lookups import Lookups
from tests.schedules.scenarios.speech import Speech
from tests.schedules.world import Finding
from trimodal.cache.answers import AnswerLookup
from trimodal.cache.bounded_calls import DaemonThreads, TimedCalls
from trimodal.errors import InvalidArgument, RequestError
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.service import LlmService
from trimodal.speech.live.request import Chunk
from trimodal.speech.live.stream import Action, LiveStream, Sink, TakeIn

SEEDS = 4000
"""Less than a minute of them; each race takes a few or a few hundred."""
check_open = LlmService._check_open
give_up = TimedCalls.give_up


def check_before_act(self: LlmService) -> None:
    """Whether the service is closed is looked at before the lock is taken, and not again under it."""
    if not self._lock.locked():
        check_open(self)


def missed_notify(self: LlmService, state: RequestState) -> None:
    """A sender notes that a request has nothing more to send when it has let go of the lock."""
    while True:
        with self._lock:
            item = state.take()
            state.sending = True
        if item is None:
            state.sending = False
            return
        self._sender.send(state, item)


def double_release(self: TimedCalls, now: float) -> bool:
    """Who gives a call up gives its slot back, and so does the call when it ends after all."""
    target = self._target
    given_up = give_up(self, now)
    if given_up and target:
        target.slots.release()
    return given_up


def join_without_lock(self: LlmService, state: RequestState, lookup: AnswerLookup) -> None:
    """A lookup's thread looks for an identical request, and joins it, without the lock."""
    assert self._cache
    for hit in self._cache.find(lookup):
        if self._answer_or_join(state, lookup, hit):
            return
    with self._lock:
        self._go_past_cache(state, lookup)


def lost_update(self: DaemonThreads) -> None:
    """Threads count a job down without the lock: only a switch between two statements shows it."""
    while job := self._queue.get():
        job()
        unfinished = self._unfinished
        self._unfinished = unfinished - 1


def stale_state(self: LiveStream, chunk: Chunk, sink: Sink) -> list[Action]:
    """Whether a stream of speech is over is looked at before its lock is taken."""
    if self._state in ("ending", "closed"):
        error: RequestError = self._error or InvalidArgument("it is over")
        raise error
    with self._lock:
        self._inbox.append((chunk, sink))
        self._metrics.active_requests.increment(1)
        if chunk.end and self._state == "open":
            self._state = "ending"
        return [TakeIn()] if len(self._inbox) == 1 and not self._in_turn else []


class LookupsHere(Lookups):
    """Switches between the statements of the functions above, too."""

    switching = (*Lookups.switching, __name__)


def first_finding(kind: type[Scenario], seeds: range) -> tuple[int, str]:
    """The first of the seeds that fails, and what is told of it."""
    for seed in seeds:
        try:
            play(kind, seed)
        except Finding as finding:
            return seed, str(finding)
    raise AssertionError(f"none of {len(seeds)} schedules found it")


@pytest.mark.parametrize(
    ("planted", "owner", "name", "kind"),
    [
        (check_before_act, LlmService, "_check_open", Closing),
        (missed_notify, LlmService, "_send_all", Scheduling),
        (double_release, TimedCalls, "give_up", Lookups),
        (join_without_lock, LlmService, "_look_up", Sharing),
        (lost_update, DaemonThreads, "_run", LookupsHere),
        (stale_state, LiveStream, "put", Speech),
    ],
    ids=lambda value: value.__name__ if callable(value) and not isinstance(value, type) else "",
)
def test_a_race_put_in_is_found(
    planted: Any, owner: type, name: str, kind: type[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, planted)
    seed, told = first_finding(kind, range(SEEDS))
    assert f"{kind.__name__} seed {seed}: " in told
    with pytest.raises(Finding):
        play(kind, seed)
    monkeypatch.undo()
    play(kind, seed)
