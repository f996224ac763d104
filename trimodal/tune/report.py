"""Shows a search: progress, tables, the diff, and the same as JSON."""

from __future__ import annotations

import difflib
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from trimodal.report.console import Table
from trimodal.tune.edge import LOWEST
from trimodal.tune.knobs import Setting
from trimodal.tune.mix import UNDER_WAY, missed
from trimodal.tune.objective import LOAD, STREAMS, Objective
from trimodal.tune.search import Result, Trial
from trimodal.tune.session import Tuned, TuneSettings

_ROWS = 12


def progress(trial: Trial, best: Trial, start: Setting, objective: Objective, of: int) -> str:
    """One line for a trial that has ended."""
    value = trial.figure(objective.name)
    shown = trial.state if value is None else f"{number(value)} {objective.unit}"
    missed = ", misses the SLO" if trial.rounds and trial.violation else ""
    stopped = " (stopped early)" if trial.state == "stopped" else ""
    mark = "  best" if best is trial or best.number == trial.number else ""
    what = changes(trial.setting, start) or "as it is"
    reason = f": {trial.reason}" if trial.state in ("refused", "failed") else ""
    return f"{trial.number + 1:>3} of {of}  {shown}{missed}{stopped}{mark}  {what}{reason}"


def changes(setting: Setting, start: Setting, joint: str = " ") -> str:
    """`model.knob=value` of what differs from the start; without the model where no other has such a knob."""
    names = Counter(label.rpartition(".")[2] for label in setting)

    def short(label: str) -> str:
        name = label.rpartition(".")[2]
        return name if names[name] == 1 else label

    changed = (f"{short(label)}={value}" for label, value in setting.items() if value != start.get(label))
    return joint.join(changed)


def tables(settings: TuneSettings, tuned: Tuned) -> list[Table]:
    """The finals, and the best trials."""
    found = []
    if tuned.result and tuned.result.finals:
        found.append(_finals(settings, tuned.result))
    if tuned.trials:
        found.append(_trials(settings, tuned.trials))
    return found


def verdict(settings: TuneSettings, tuned: Tuned) -> str:
    """The outcome in a sentence or two."""
    if tuned.result is None:
        return f"Interrupted after {len(tuned.trials)} trials. Nothing was chosen."
    result = tuned.result
    held = capacity(settings, result) + (result.cut and f" {result.cut}")
    if not result.improved:
        return f"The knobs stay as they are: {result.why}.{held}"
    name = settings.objective.name
    before, after = (_again(result, one).figure(name) or 0.0 for one in (result.start, result.chosen))
    ratio = f" ({after / before:.2f} times)" if before else ""
    slo = f" under {settings.bounds}" if settings.bounds else ""
    change = f"{number(before)} → {number(after)} {settings.objective.unit}{ratio}"
    return f"{name}{slo}: {change}; {result.why}.{held}"


def capacity(settings: TuneSettings, result: Result) -> str:
    """Says how many streams at once were kept in each round; empty: that is not the objective, or none."""
    one = _again(result, result.chosen)
    if settings.objective != STREAMS or one.violation:
        return ""
    held = min(each.gain for each in one.rounds)
    streams = f"{held:.0f} stream{'s' if held > 1 else ''} of {settings.model} at once"
    knobs = "chosen" if result.improved else "they are"
    return (
        f" With the knobs as {knobs} this machine holds {streams} under {settings.bounds}, and not one more."
    )


def refusal(settings: TuneSettings, tuned: Tuned) -> str:
    """Says which SLO no setting keeps at the least load; empty: it is kept, or no load was looked for."""
    searched = settings.objective in (LOAD, STREAMS)
    if not searched or not tuned.result or not tuned.result.chosen.violation:
        return ""
    names = ", ".join(missed(settings.mix, tuned.result.chosen)) or settings.bounds
    one = settings.objective == STREAMS
    least = "with one stream" if one else f"at the lowest load, {LOWEST:g} times the mix"
    return f"no setting keeps {names} {least}"


def diff(texts: Mapping[Path, tuple[str, str]], root: Path) -> str:
    """A unified diff of the files."""
    parts = []
    for file, (old, new) in texts.items():
        name = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
        lines = difflib.unified_diff(
            old.splitlines(), new.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=1
        )
        parts += list(lines)
    return "\n".join(parts)


def data(settings: TuneSettings, tuned: Tuned, difference: str) -> dict[str, Any]:
    """All of it for a JSON file."""
    result = tuned.result
    how = {LOAD: "mix", STREAMS: "streams at once"}.get(settings.objective, str(settings.workload))
    return {
        "model": settings.model,
        "objective": {"name": settings.objective.name, "maximize": settings.objective.maximise},
        "slo": settings.bounds,
        "load": how,
        "machine": platform.platform(),
        "date": date.today().isoformat(),
        "knobs": {knob.label: str(knob).partition("=")[2] for knob in tuned.knobs},
        "start": result.start.setting if result else (tuned.trials[0].setting if tuned.trials else None),
        "chosen": result.chosen.setting if result else None,
        "why": verdict(settings, tuned),
        "trials": [
            {**asdict(one), "meets_slo": bool(one.rounds) and not one.violation} for one in tuned.trials
        ],
        "finals": [
            {"trial": one.number, "rounds": [asdict(each) for each in one.rounds]}
            for one in (result.finals if result else ())
        ],
        "seconds": result.seconds if result else sum(one.seconds for one in tuned.trials),
        "diff": difference,
    }


def number(value: float) -> str:
    """Three figures."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _again(result: Result, trial: Trial) -> Trial:
    """A trial as the final measured it, where it did."""
    return next((one for one in result.finals if one.number == trial.number), trial)


def _columns(settings: TuneSettings, trial: Trial) -> list[str]:
    """Names of the figures shown: the objective, those of the bounds, and of a mix its live streams."""
    known = trial.rounds[0].figures if trial.rounds else ()
    streams = [name for name in known if name.endswith(UNDER_WAY)]
    names = [settings.objective.name, *streams, *settings.figures, *(() if settings.mix else ("p99_ms",))]
    return list(dict.fromkeys(names))


def _cells(trial: Trial, columns: Sequence[str]) -> list[str]:
    values = [trial.figure(column) for column in columns]
    return ["–" if value is None else number(value) for value in values]


def _finals(settings: TuneSettings, result: Result) -> Table:
    first = result.finals[0]
    columns = _columns(settings, first)
    rows = []
    for one in result.finals:
        name = "start" if one is first else f"trial {one.number + 1}"
        chosen = " (chosen)" if one.number == result.chosen.number else ""
        ratio = _ratio(one, first)
        rows.append([name + chosen, *_cells(one, columns), ratio, _slo(one)])
    return Table(
        "Final: the best trials and the start, measured again in turn",
        ("setting", *columns, "to start", "SLO"),
        rows,
        note=f"{len(first.rounds)} rounds each; medians. A finalist has to win its rounds.",
    )


def _ratio(one: Trial, first: Trial) -> str:
    pairs = [
        abs(ours.gain / theirs.gain)
        for ours, theirs in zip(one.rounds, first.rounds, strict=True)
        if theirs.gain
    ]
    return f"{median(pairs):.2f}" if pairs else "–"


def _trials(settings: TuneSettings, trials: Sequence[Trial]) -> Table:
    start = trials[0]
    columns = _columns(settings, start)
    best = sorted(trials[1:], key=lambda one: (one.state != "measured", -one.score))
    rows = []
    for one in [start, *best][:_ROWS]:
        what = changes(one.setting, start.setting, "\n") or "start"
        if one.state in ("refused", "failed"):
            what += f"\n({one.reason[:80]})"
        rows.append([str(one.number + 1), *_cells(one, columns), str(len(one.rounds)), _slo(one), what])
    left = len(trials) - len(rows)
    return Table(
        "Trials, the best first",
        ("trial", *columns, "rounds", "SLO", "changed from the start"),
        rows,
        note=f"and {left} more" if left > 0 else "",
    )


def _slo(trial: Trial) -> str:
    if not trial.rounds:
        return trial.state
    verdict = "missed" if trial.violation else "met"
    return f"{verdict}, stopped" if trial.state == "stopped" else verdict
