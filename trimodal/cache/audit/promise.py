"""Keeps a bound on false hits for each tenant and namespace, by a threshold that rises and falls on evidence.

The threshold stands on one of a few levels: the calibrated one, then half as far from 1 with each, and at
last above 1, where the judge makes no hit. It rises when audited hits show that more than `most` of them are
wrong, to the lowest level from which on the audited hits keep the bound. It falls when the questions that
were held back, which the engine answered, keep the bound from a lower level on. Nothing of one group moves
another's.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from trimodal.cache.audit.estimate import CONFIDENCE, Bounds, Estimate, ShiftDetector
from trimodal.cache.audit.values import Agreement
from trimodal.cache.values import Place

LEVELS = 10
NEVER = 2.0
"""A threshold that no score reaches."""
MAX_GROUPS = 256


class Group(NamedTuple):
    """Whose questions one threshold is for."""

    tenant: str
    namespace: str

    @classmethod
    def of(cls, place: Place) -> Group:
        return cls(place.tenant, place.namespace)


@dataclass(frozen=True)
class Status:
    """What is known of a group: its threshold, false hits among hits, missed ones among near misses."""

    threshold: float
    false_hits: Bounds
    missed_hits: Bounds


class _Level:
    """One threshold: the audited hits from it on, and the near misses from it to the threshold in force."""

    def __init__(self, threshold: float, most: float) -> None:
        self.threshold = threshold
        self._most = most
        self.false_hits = Estimate()
        self.held_back = Estimate()
        self.detector = ShiftDetector(most)

    def keeps(self, alpha: float) -> bool:
        """Whether its audited hits keep the bound."""
        return self.false_hits.below(self._most, alpha)

    def would_keep(self, alpha: float) -> bool:
        """Whether the near misses that it would let pass keep the bound."""
        return self.held_back.below(self._most, alpha)


class Promise:
    """The threshold of one group. Not thread-safe: its owner locks.

    Args:
        floor: the calibrated threshold, below which it never falls. most: bound on wrong ones among hits.
        share: smallest probability with which a near miss is audited.
    """

    def __init__(self, floor: float, most: float, share: float) -> None:
        self._most, self._share = most, share
        self._thresholds = [*(1 - (1 - floor) / 2.0**step for step in range(LEVELS)), NEVER]
        self._levels = [_Level(threshold, most) for threshold in self._thresholds]
        self._at = 0
        self._missed = Estimate()

    @property
    def threshold(self) -> float:
        """Score that a hit needs."""
        return self._thresholds[self._at]

    @property
    def raised(self) -> bool:
        """Whether it is above the calibrated one."""
        return self._at > 0

    @property
    def floor(self) -> float:
        """The calibrated threshold."""
        return self._thresholds[0]

    def status(self) -> Status:
        """What is known now."""
        return Status(self.threshold, self._levels[self._at].false_hits.bounds(), self._missed.bounds())

    def hit(self, score: float, agreement: Agreement) -> None:
        """Takes an audited hit."""
        alarm = False
        # What was decided at another threshold than now is no hit of these levels any more.
        if score < self.threshold:
            return
        for level in self._levels[self._at :]:
            if score >= level.threshold:
                level.false_hits.add(agreement == "disagreed", agreement != "agreed")
                found = level.detector.add(agreement == "disagreed")
                alarm = alarm or (found and level.threshold == self.threshold)
        if alarm:
            self._rise()

    def near_miss(self, score: float, agreement: Agreement, probability: float) -> None:
        """Takes an audited near miss, drawn with `probability`; all those from the floor on have 1."""
        self._missed.add(agreement == "agreed", agreement != "disagreed", self._share / probability)
        if not self.floor <= score < self.threshold:
            return
        for level in self._levels[: self._at]:
            if score >= level.threshold:
                level.held_back.add(agreement == "disagreed", agreement != "agreed")
        if agreement == "agreed":
            self._fall()

    def _rise(self) -> None:
        # One of several levels is chosen: each may be wrong with its part of the probability.
        alpha = (1 - CONFIDENCE) / LEVELS
        above = range(self._at + 1, LEVELS)
        self._at = next((at for at in above if self._levels[at].keeps(alpha)), LEVELS)
        for at in range(self._at):
            self._levels[at] = _Level(self._thresholds[at], self._most)

    def _fall(self) -> None:
        alpha = (1 - CONFIDENCE) / LEVELS
        lower = next((at for at in range(self._at) if self._levels[at].would_keep(alpha)), None)
        if lower is None:
            return
        # Its hits are other ones from now on, and those of the levels above are counted with them anew.
        self._at = lower
        self._levels[lower:] = [_Level(threshold, self._most) for threshold in self._thresholds[lower:]]


class Promises:
    """The thresholds of all groups, by place. Called from several threads at once.

    A bounded number of groups is kept. The least recently audited goes, but one whose threshold is raised
    only with the process: where all of them are raised, a group beyond the bound has no semantic hits.

    Args:
        floor, most, share: as of `Promise`.
    """

    def __init__(self, floor: float, most: float, share: float, groups: int = MAX_GROUPS) -> None:
        self._floor = floor
        self._new: Callable[[], Promise] = lambda: Promise(floor, most, share)
        self._most_groups = groups
        self._lock = threading.Lock()  # guards the two below
        self._kept: OrderedDict[Group, Promise] = OrderedDict()
        self._raised = 0

    def threshold(self, place: Place) -> float:
        """Score that a hit at `place` needs."""
        with self._lock:
            if promise := self._kept.get(Group.of(place)):
                return promise.threshold
            return NEVER if self._raised >= self._most_groups else self._floor

    def status(self, group: Group) -> Status:
        """What is known of a group."""
        with self._lock:
            promise = self._kept.get(group)
            return promise.status() if promise else Status(self._floor, Bounds(), Bounds())

    def hit(self, place: Place, score: float, agreement: Agreement) -> bool:
        """Takes an audited hit; False: there is no room for its group."""
        return self._take(place, lambda promise: promise.hit(score, agreement))

    def near_miss(self, place: Place, score: float, agreement: Agreement, probability: float) -> bool:
        """Takes an audited near miss that was drawn with `probability`; False as of `hit`."""
        return self._take(place, lambda promise: promise.near_miss(score, agreement, probability))

    def _take(self, place: Place, add: Callable[[Promise], None]) -> bool:
        group = Group.of(place)
        with self._lock:
            promise = self._kept.get(group) or self._room(group)
            if promise is None:
                return False
            self._kept.move_to_end(group)
            before = promise.raised
            add(promise)
            self._raised += promise.raised - before
            return True

    def _room(self, group: Group) -> Promise | None:
        if len(self._kept) >= self._most_groups:
            oldest = next((one for one, promise in self._kept.items() if not promise.raised), None)
            if oldest is None:
                return None
            del self._kept[oldest]
        self._kept[group] = self._new()
        return self._kept[group]
