"""Searches settings: looks around, climbs, repeats what is good, stops what is bad, measures the best again.

Nothing here knows a server: a `TunedSystem` applies a setting and measures a round of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, Protocol

from trimodal.errors import OperatorError
from trimodal.tune.knobs import Setting, Space

State = Literal["measured", "stopped", "refused", "failed"]

_SEEN = 25  # proposals in a row that were known already: then a neighbour of the best is taken
_SLACK, _VIOLATION_SLACK = 0.1, 0.25  # a round this much behind the best one ends its trial
_WORST = -1e18
_FINALISTS = 2  # besides the start
_LEAST_GAIN = 0.02  # share by which the best must beat the start


class TrialError(OperatorError):
    """A setting did not load (`refused`), or its measurement broke down (`failed`)."""

    def __init__(self, message: str, state: State = "refused") -> None:
        super().__init__(message)
        self.state: State = state


@dataclass(frozen=True)
class Round:
    """One measurement of one setting.

    Attributes:
        gain: the objective, so that more is better.
        violation: by what share the objectives of the SLO are missed, summed; 0: all are met.
        figures: for the report.
    """

    gain: float
    violation: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """One number for both: whatever meets the SLO stands before all that does not."""
        return self.gain if self.violation == 0 else -1e9 * (1 + self.violation)


@dataclass(frozen=True)
class Trial:
    """One setting and what was measured of it. `seconds`: loading and measuring."""

    number: int
    setting: Setting
    state: State
    rounds: tuple[Round, ...] = ()
    reason: str = ""
    seconds: float = 0.0

    @property
    def gain(self) -> float:
        return median(one.gain for one in self.rounds) if self.rounds else _WORST

    @property
    def violation(self) -> float:
        return median(one.violation for one in self.rounds) if self.rounds else 1e6

    @property
    def score(self) -> float:
        return Round(self.gain, self.violation).score if self.rounds else _WORST

    def figure(self, name: str) -> float | None:
        values = [one.figures[name] for one in self.rounds if name in one.figures]
        return median(values) if values else None


@dataclass(frozen=True)
class Result:
    """What a search came to.

    Attributes:
        finals: the start and the best with the rounds of the final, in turn; empty where none came near it.
        why: `chosen` was chosen.
        cut: what the time was too short for; empty: for nothing.
    """

    start: Trial
    chosen: Trial
    trials: tuple[Trial, ...]
    finals: tuple[Trial, ...]
    why: str
    seconds: float
    cut: str = ""

    @property
    def improved(self) -> bool:
        return self.chosen.setting != self.start.setting


@dataclass(frozen=True)
class Budget:
    """What a search may cost.

    Attributes:
        trials: settings that are measured, the start's included, the final not.
        seconds: for all, the final included.
        rounds: measurements of a setting that is not stopped before.
        final_rounds: measurements of each finalist; 0: no final.
        descend: coordinate descent: only steps of one knob from the best setting, none at random.
    """

    trials: int = 24
    seconds: float = 900.0
    rounds: int = 3
    final_rounds: int = 5
    seed: int = 0
    descend: bool = False


class TunedSystem(Protocol):
    """What is tuned."""

    def refusal(self, setting: Setting) -> str:
        """Why the setting cannot be: known without trying; empty: nothing is known against it."""

    async def apply(self, setting: Setting) -> None:
        """Loads the setting. Raises: TrialError."""

    async def measure(self, number: int) -> Round:
        """One round; those of one number have the same load, whatever the setting. Raises: TrialError."""


OnTrial = Callable[[Trial, Trial], None]


class Search:
    """One search.

    Args:
        start: the setting that is there now.
        tell: gets each trial that ended, and the best one so far.
    """

    def __init__(
        self,
        space: Space,
        start: Setting,
        system: TunedSystem,
        budget: Budget,
        *,
        tell: OnTrial = lambda trial, best: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._space, self._start, self._system, self._budget = space, start, system, budget
        self._tell, self._clock = tell, clock
        self._rng = random.Random(budget.seed)
        self._trials: list[Trial] = []
        self._seen: set[frozenset[tuple[str, str]]] = set()

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(self._trials)

    async def run(self) -> Result:
        """Raises: TrialError: the start itself cannot be measured."""
        began = self._clock()
        start = await self._try(self._start, None)
        if not start.rounds:
            raise TrialError(f"the server cannot be measured as it is: {start.reason}", start.state)
        self._keep(start, start)
        best = start
        # Rounds of the start say how much measurements differ by themselves.
        noise = max(one.gain for one in start.rounds) - min(one.gain for one in start.rounds)
        cut, budget = "", self._budget
        for setting in self._proposals():
            if len(self._trials) >= budget.trials:
                break
            if self._clock() - began + self._needed() > budget.seconds:
                count, minutes = len(self._trials), self._needed() / 60
                cut = f"The time ended it after {count} of {budget.trials} trials: "
                cut += f"another and the final may take {minutes:.1f} minutes."
                break
            trial = await self._try(setting, best, noise)
            if trial.state == "measured" and trial.score > best.score:
                best = trial
            self._keep(trial, best)
        chosen, finals, why = await self._final(start)
        return Result(start, chosen, self.trials, finals, why, self._clock() - began, cut)

    def _keep(self, trial: Trial, best: Trial) -> None:
        self._trials.append(trial)
        self._seen.add(frozenset(trial.setting.items()))
        self._tell(trial, best)

    def _proposals(self) -> Iterator[Setting]:
        """New settings, for as long as there are any that could be.

        A third of the budget looks around, the others are a step away from the best. With as few trials
        as a server has time for that is as good as a model of the whole space (Optuna's TPE; 100 seeds).
        """
        while True:
            near = self._budget.descend or len(self._trials) > self._budget.trials // 3
            setting = (None if near else self._anywhere()) or self._unseen()
            if setting is None:
                return
            yield setting

    def _anywhere(self) -> Setting | None:
        """A new setting at random; None: only known ones were drawn."""
        drawn = (self._space.draw(self._rng) for _ in range(_SEEN))
        return next(filter(self._is_new, drawn), None)

    def _unseen(self) -> Setting | None:
        """The first new neighbour of the best trials, else any setting that is left; None: none is."""
        for trial in sorted(self._trials, key=lambda one: -one.score):
            for setting in self._space.neighbours(trial.setting, self._rng):
                if self._is_new(setting):
                    return setting
        return next((setting for setting in self._space.all() if self._is_new(setting)), None)

    def _is_new(self, setting: Setting) -> bool:
        key = frozenset(setting.items())
        if key not in self._seen and self._system.refusal(setting):
            self._seen.add(key)
        return key not in self._seen

    def _needed(self) -> float:
        """Seconds for one more trial and the final, by what trials took until now."""
        trial = max(one.seconds for one in self._trials)
        measured = [one for one in self._trials if one.rounds]
        round_ = max(one.seconds / len(one.rounds) for one in measured)
        finalists = 1 + min(len(self._trials), _FINALISTS)
        return trial + round_ * self._budget.final_rounds * finalists

    async def _try(self, setting: Setting, best: Trial | None, noise: float = 0.0) -> Trial:
        began, rounds = self._clock(), list[Round]()
        state: State = "measured"
        reason = ""
        try:
            await self._system.apply(setting)
            for number in range(self._budget.rounds):
                rounds.append(await self._system.measure(number))
                left = len(rounds) < self._budget.rounds
                # Beside the same round of the best: a round may have more to do than another.
                if best and left and (reason := _hopeless(rounds[-1], best.rounds[number], noise)):
                    state = "stopped"
                    break
        except TrialError as error:
            # Rounds before it do not count: a setting that breaks down is no candidate.
            state, reason, rounds = error.state, str(error), []
        seconds = self._clock() - began
        return Trial(len(self._trials), setting, state, tuple(rounds), reason, seconds)

    async def _final(self, start: Trial) -> tuple[Trial, tuple[Trial, ...], str]:
        budget = self._budget
        better = [one for one in self._trials if one.state == "measured" and one.score > start.score]
        better.sort(key=lambda one: -one.score)
        candidates = better[:_FINALISTS]
        if not candidates:
            alone = len(self._trials) == 1
            return start, (), "no other was tried" if alone else "no setting was better than the start"
        if not budget.final_rounds:
            return candidates[0], (), "the best trial; there was no final"
        rounds: dict[int, list[Round]] = {one.number: [] for one in (start, *candidates)}
        lost: dict[int, str] = {}
        for number in range(budget.final_rounds):
            order = [start, *candidates]
            # Forwards, then backwards: what drifts in time meets each of them alike.
            for one in reversed(order) if number % 2 else order:
                if one.number in lost:
                    continue
                try:
                    await self._system.apply(one.setting)
                    # A load that no trial had: none was chosen for it.
                    rounds[one.number].append(await self._system.measure(budget.rounds + number))
                except TrialError as error:
                    lost[one.number] = str(error)
        if start.number in lost:
            return start, (), f"the start could not be measured again beside the best: {lost[start.number]}"
        finals = tuple(
            replace(one, rounds=tuple(rounds[one.number]))
            for one in (start, *candidates)
            if one.number not in lost
        )
        first, others = finals[0], finals[1:]
        winners = [one for one in others if _beats(one, first)]
        if not winners:
            return start, finals, "no finalist beat the start when both were measured in turn"
        chosen = max(winners, key=lambda one: one.score)
        why = f"better than the start in {_wins(chosen, first)} of {budget.final_rounds} rounds in turn"
        return self._trials[chosen.number], finals, why


def _hopeless(last: Round, best: Round, noise: float) -> str:
    """Why no further round is needed; empty: it could still be better than what `best` is a round of."""
    if last.violation > best.violation + _VIOLATION_SLACK:
        return "misses the SLO by far"
    if best.violation == 0 and last.gain < best.gain - max(_SLACK * abs(best.gain), 2 * noise):
        return "far behind the best"
    return ""


def _wins(one: Trial, start: Trial) -> int:
    pairs = zip(one.rounds, start.rounds, strict=True)
    return sum(ours.score > theirs.score for ours, theirs in pairs)


def _beats(one: Trial, start: Trial) -> bool:
    """Better in all rounds but one of eight, and by more than can be noise.

    All of 5 rounds are won by chance once in 32 times.
    """
    if _wins(one, start) < len(one.rounds) - len(one.rounds) // 8:
        return False
    if start.violation > 0:
        return one.violation < start.violation
    if one.violation > 0:
        return False
    return one.gain - start.gain >= _LEAST_GAIN * abs(start.gain)
