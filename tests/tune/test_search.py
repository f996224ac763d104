"""The search on made-up response surfaces: no server, no clock, no luck."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.tune.doubles import MadeUpSystem
from trimodal.tune.knobs import Knob, Space
from trimodal.tune.search import Budget, Round, Search, Trial, TrialError

KNOBS = (
    Knob("m", "threads", ("0", "1", "2", "4")),
    Knob("m", "delay", ("0", "100", "1000", "5000")),
    Knob("m", "count", ("1", "2")),
    Knob("m", "speculation", ("draft", "lookup", "none")),
)
SPACE = Space(KNOBS)
BAD = {"m.threads": "1", "m.delay": "5000", "m.count": "2", "m.speculation": "lookup"}


def surface(setting: Mapping[str, str]) -> float:
    """Best at threads 0 or 2, no delay, one instance, draft; draft is bad with a long delay."""
    threads = {"0": 1.0, "1": 0.6, "2": 1.0, "4": 0.9}[setting["m.threads"]]
    delay = {"0": 1.0, "100": 0.98, "1000": 0.8, "5000": 0.4}[setting["m.delay"]]
    speculation = {"none": 1.0, "lookup": 0.7, "draft": 1.15}[setting["m.speculation"]]
    clash = 0.7 if speculation > 1 and delay < 0.8 else 1.0
    return 100 * threads * delay * speculation * clash * (1.0 if setting["m.count"] == "1" else 0.9)


def run(
    system: MadeUpSystem, budget: Budget, start: dict[str, str] | None = None, space: Space = SPACE
) -> object:
    return asyncio.run(Search(space, start or BAD, system, budget, clock=system.clock).run())


@pytest.mark.parametrize("seed", range(2))
def test_reaches_the_optimum_of_a_noisy_surface_with_a_quarter_of_the_grid(seed: int) -> None:
    system = MadeUpSystem(surface, noise=0.04, seed=seed)
    result = run(system, Budget(trials=len(list(SPACE.all())) // 4, rounds=2, seed=seed))
    assert surface(result.chosen.setting) >= 0.95 * max(map(surface, SPACE.all()))
    assert len(result.trials) <= len(list(SPACE.all())) // 4


def test_no_setting_is_measured_twice_and_the_whole_grid_ends_it() -> None:
    space = Space(KNOBS[:1])
    system = MadeUpSystem(lambda setting: float(setting["m.threads"]) + 1)
    result = run(system, Budget(trials=50, rounds=1, final_rounds=0), {"m.threads": "1"}, space)
    settings = [one.setting["m.threads"] for one in result.trials]
    assert sorted(settings) == ["0", "1", "2", "4"]
    assert result.chosen.setting == {"m.threads": "4"}


def test_keeps_the_constraint() -> None:
    system = MadeUpSystem(
        surface, violation=lambda setting: 0.5 if setting["m.speculation"] == "draft" else 0.0
    )
    result = run(system, Budget(trials=30))
    assert result.chosen.setting["m.speculation"] != "draft"
    assert result.chosen.violation == 0


def test_a_start_that_misses_the_slo_gives_way_to_what_meets_it_although_it_is_slower() -> None:
    system = MadeUpSystem(
        lambda setting: 100 - float(setting["m.threads"]),
        violation=lambda setting: 0.0 if setting["m.threads"] == "4" else 1.0,
    )
    result = run(system, Budget(trials=4), {"m.threads": "0"}, Space(KNOBS[:1]))
    assert result.chosen.setting == {"m.threads": "4"}


def test_stops_bad_trials_after_one_round_and_repeats_good_ones() -> None:
    system = MadeUpSystem(surface)
    result = run(system, Budget(trials=24, rounds=3, final_rounds=0))
    for one in result.trials:
        assert len(one.rounds) == (1 if one.state == "stopped" else 3)
    stopped = [one for one in result.trials if one.state == "stopped"]
    assert stopped
    assert all(one.gain < result.chosen.gain for one in stopped)


@pytest.mark.parametrize(("trials", "seconds"), [(5, 1e9), (1000, 60.0)])
def test_respects_the_budget(trials: int, seconds: float) -> None:
    system = MadeUpSystem(surface)
    result = run(system, Budget(trials=trials, seconds=seconds))
    assert len(result.trials) <= trials
    assert system.now <= seconds
    assert result.seconds == system.now
    assert result.cut.startswith("The time ended it after") == (len(result.trials) < trials)


def test_time_for_no_more_than_the_start_is_told() -> None:
    result = run(MadeUpSystem(surface), Budget(trials=5, seconds=1.0, rounds=1, final_rounds=1))
    assert result.why == "no other was tried"
    assert result.cut.startswith("The time ended it after 1 of 5 trials: another and the final may take ")


class Lucky(MadeUpSystem):
    """Everything is alike, but one setting was lucky in each of its rounds of the search."""

    async def measure(self, number: int) -> Round:
        one = await super().measure(number)
        first = self.applied.count(self.applied[-1]) == 1
        lucky = self.applied[-1]["m.threads"] == "4" and first
        return Round(one.gain * (1.5 if lucky else 1.0), 0.0, one.figures)


@pytest.mark.parametrize("seed", range(3))
def test_a_lucky_run_does_not_win(seed: int) -> None:
    system = Lucky(lambda setting: 100.0, noise=0.01, seed=seed)
    result = run(system, Budget(trials=4, rounds=3), {"m.threads": "0"}, Space(KNOBS[:1]))
    assert max(result.trials, key=lambda one: one.score).setting == {"m.threads": "4"}
    assert result.chosen is result.start
    assert not result.improved
    # The finalists were measured in turn, forwards and backwards.
    turns = [one["m.threads"] for one in system.applied[len(result.trials) :]]
    size = len(result.finals)
    assert turns[:size] == turns[size : 2 * size][::-1]
    assert len(turns) == 5 * size


@pytest.mark.parametrize("state", ["refused", "failed"])
def test_a_setting_that_does_not_load_or_dies_is_a_trial_and_no_candidate(state: str) -> None:
    def breaks(setting: Mapping[str, str]) -> TrialError | None:
        return TrialError("no", state) if setting["m.threads"] == "4" else None  # type: ignore[arg-type]

    system = MadeUpSystem(lambda setting: float(setting["m.threads"]) + 1, breaks=breaks)
    result = run(system, Budget(trials=4), {"m.threads": "0"}, Space(KNOBS[:1]))
    broken = [one for one in result.trials if one.setting["m.threads"] == "4"]
    assert [(one.state, one.reason, one.rounds) for one in broken] == [(state, "no", ())]
    assert result.chosen.setting == {"m.threads": "2"}


def test_a_start_that_cannot_be_measured_ends_the_search() -> None:
    system = MadeUpSystem(surface, breaks=lambda setting: TrialError("it is gone"))
    with pytest.raises(TrialError, match="cannot be measured as it is: it is gone"):
        run(system, Budget())


def test_a_start_that_breaks_down_in_the_final_keeps_what_was_measured() -> None:
    """The search ended with an error, and its trials were lost."""
    system = MadeUpSystem(
        lambda setting: float(setting["m.threads"]) + 1,
        breaks=lambda setting: TrialError("no room") if system.rounds > 4 else None,
    )
    result = run(system, Budget(trials=4, rounds=1), {"m.threads": "0"}, Space(KNOBS[:1]))
    assert len(result.trials) == 4
    assert not result.improved
    assert result.finals == ()
    assert result.why == "the start could not be measured again beside the best: no room"


def test_what_is_known_to_be_impossible_is_not_tried() -> None:
    class Choosy(MadeUpSystem):
        def refusal(self, setting: Mapping[str, str]) -> str:
            return "no" if setting["m.threads"] == "4" else ""

    system = Choosy(lambda setting: float(setting["m.threads"]))
    result = run(system, Budget(trials=9, final_rounds=0), {"m.threads": "0"}, Space(KNOBS[:1]))
    assert {"m.threads": "4"} not in system.applied
    assert len(result.trials) == 3


def test_tells_of_each_trial_and_the_best() -> None:
    told: list[tuple[Trial, Trial]] = []
    system = MadeUpSystem(surface)
    search = Search(
        SPACE, BAD, system, Budget(trials=6), tell=lambda *both: told.append(both), clock=system.clock
    )
    asyncio.run(search.run())
    assert [one.number for one, _ in told] == list(range(6))
    assert search.trials == tuple(one for one, _ in told)
    assert [best.score for _, best in told] == sorted(best.score for _, best in told)


def test_all_settings_have_the_same_rounds_and_the_final_has_others() -> None:
    """Each setting had arrivals of its own: the luck of a draw was part of its figure."""
    seen: dict[str, list[int]] = {}

    class Numbered(MadeUpSystem):
        async def measure(self, number: int) -> Round:
            seen.setdefault(self.applied[-1]["m.threads"], []).append(number)
            return await super().measure(number)

    system = Numbered(lambda setting: float(setting["m.threads"]) + 100)
    budget = Budget(trials=4, rounds=2, final_rounds=3)
    result = run(system, budget, {"m.threads": "0"}, Space(KNOBS[:1]))
    finalists = {one.setting["m.threads"] for one in result.finals}
    assert len(finalists) == 3
    for name, numbers in seen.items():
        assert numbers == ([0, 1, 2, 3, 4] if name in finalists else [0, 1])
