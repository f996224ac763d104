"""The report says what changed, why, and what it cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trimodal.bench.load.slo import parse_slo
from trimodal.server.options import ServerOptions
from trimodal.tune import report
from trimodal.tune.knobs import Knob
from trimodal.tune.mix import parse_mix
from trimodal.tune.objective import LOAD, parse_objective
from trimodal.tune.search import Result, Round, Trial
from trimodal.tune.session import Tuned, TuneSettings

SLO = parse_slo("p99_ms<=50")
SETTINGS = TuneSettings("m", parse_objective(None, None, SLO), ServerOptions(repository=Path("/models")), SLO)
KNOBS = (Knob("m", "threads", ("1", "2")), Knob("m", "delay", ("0", "9")))


def trial(number: int, threads: str, delay: str, value: float, p99: float = 20.0) -> Trial:
    one = Round(value, max(0.0, p99 / 50 - 1), {"throughput": value, "p99_ms": p99})
    return Trial(number, {"m.threads": threads, "m.delay": delay}, "measured", (one,), seconds=1.0)


START, BEST = trial(0, "1", "9", 100.0), trial(1, "2", "0", 200.0)
BROKEN = Trial(2, {"m.threads": "2", "m.delay": "9"}, "refused", (), "does <not> fit")
LATE = trial(3, "1", "0", 300.0, p99=90.0)
FINALS = tuple(replace(one, rounds=one.rounds * 5) for one in (START, BEST))
RESULT = Result(START, BEST, (START, BEST, BROKEN, LATE), FINALS, "better in 5 of 5 rounds", 9.0)
TUNED = Tuned(KNOBS, RESULT.trials, RESULT)


def test_the_verdict_names_both_figures() -> None:
    said = report.verdict(SETTINGS, TUNED)
    assert said == "throughput under p99_ms<=50: 100 → 200 /s (2.00 times); better in 5 of 5 rounds."
    kept = replace(RESULT, chosen=START, why="nothing was better")
    assert (
        report.verdict(SETTINGS, replace(TUNED, result=kept))
        == "The knobs stay as they are: nothing was better."
    )
    assert "Interrupted after 4 trials" in report.verdict(SETTINGS, replace(TUNED, result=None))


def test_a_mix_that_is_kept_ends_with_the_live_streams_that_it_held() -> None:
    mix = parse_mix(("speech@1:p95_lag_ms<=900",))
    settings = TuneSettings("speech", LOAD, ServerOptions(repository=Path("/models")), mix=mix)

    def edge(number: int, load: float, violation: float = 0.0) -> Trial:
        figures = {"load": load, "speech p95_lag_ms": 800.0, "speech streams": 6.25 * load}
        return Trial(number, {"m.step_s": str(number)}, "measured", (Round(load, violation, figures),))

    start, best = edge(0, 1.0), edge(1, 2.0)
    again = (start, replace(best, rounds=edge(1, 1.6).rounds))
    result = Result(start, best, (start, best), again, "better in 1 of 1 rounds", 9.0)
    said = report.verdict(settings, Tuned((), result.trials, result))
    assert said.endswith(
        "With the knobs as chosen this machine holds 10 live streams of speech at once, on average, "
        "under p95_lag_ms<=900."
    )
    kept = replace(result, chosen=start, why="nothing was better")
    assert "With the knobs as they are this machine holds 6.25 live" in report.verdict(
        settings, Tuned((), result.trials, kept)
    )
    finals, trials = report.tables(settings, Tuned((), result.trials, result))
    assert (finals.columns[2], trials.columns[2]) == ("speech streams",) * 2
    missed = replace(result, chosen=edge(0, 0.125, 1.0), finals=())
    assert "live streams" not in report.verdict(settings, Tuned((), result.trials, missed))


def test_tables_hold_finals_and_trials() -> None:
    finals, trials = report.tables(SETTINGS, TUNED)
    assert [row[0] for row in finals.rows] == ["start", "trial 2 (chosen)"]
    assert finals.rows[1][-2:] == ["2.00", "met"]
    assert [row[0] for row in trials.rows] == ["1", "2", "4", "3"]  # what misses the SLO behind what meets it
    assert trials.rows[1][-1] == "threads=2\ndelay=0"
    assert trials.rows[2][-2] == "missed"
    assert "refused" in trials.rows[3]
    assert "does <not> fit" in trials.rows[3][-1]


def test_a_line_of_progress() -> None:
    assert (
        report.progress(BEST, BEST, START.setting, SETTINGS.objective, 9)
        == "  2 of 9  200 /s  best  threads=2 delay=0"
    )
    assert "refused  threads=2: does <not> fit" in report.progress(
        BROKEN, BEST, START.setting, SETTINGS.objective, 9
    )
