"""The report says what changed, why, and what it cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trimodal.bench.load.slo import parse_slo
from trimodal.server.options import ServerOptions
from trimodal.tune import report
from trimodal.tune.knobs import Knob
from trimodal.tune.objective import STREAMS, parse_objective
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


def test_streams_end_with_how_many_were_held_in_each_round() -> None:
    slo = parse_slo("p95_lag_ms<=900")
    settings = TuneSettings("speech", STREAMS, ServerOptions(repository=Path("/models")), slo)

    def held(number: int, *counts: float, violation: float = 0.0) -> Trial:
        rounds = tuple(Round(count, violation, {"streams": count, "p95_lag_ms": 800.0}) for count in counts)
        return Trial(number, {"m.step_s": str(number)}, "measured", rounds)

    start, best = held(0, 3.0, 3.0), held(1, 5.0, 5.0)
    again = (start, held(1, 5.0, 4.0, 5.0))
    result = Result(start, best, (start, best), again, "better in 3 of 3 rounds in turn", 9.0)
    tuned = Tuned((), result.trials, result)
    said = report.verdict(settings, tuned)
    assert said.startswith("streams under p95_lag_ms<=900: 3 → 5 at once (1.67 times); better in 3 of 3")
    assert said.endswith(
        "With the knobs as chosen this machine holds 4 streams of speech at once under p95_lag_ms<=900, "
        "and not one more."
    )
    kept = Result(start, start, (start,), (), "no other was tried", 9.0)
    said = report.verdict(settings, Tuned((), kept.trials, kept))
    assert said.startswith("The knobs stay as they are: no other was tried. With the knobs as they are this")
    assert "holds 3 streams of speech at once" in said
    cut = replace(kept, cut="The time ended it after 1 of 2 trials.")
    assert report.verdict(settings, Tuned((), cut.trials, cut)) == f"{said} {cut.cut}"
    none = held(0, 0.0, violation=0.2)
    lost = Result(none, none, (none,), (), "no other was tried", 9.0)
    assert "holds" not in report.verdict(settings, Tuned((), lost.trials, lost))
    refused = report.refusal(settings, Tuned((), lost.trials, lost))
    assert refused == "no setting keeps p95_lag_ms<=900 with one stream"
    assert report.data(settings, tuned, "")["load"] == "streams at once"


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
