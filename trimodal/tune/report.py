"""Shows a search: progress, tables, the diff, and the same as JSON and HTML."""

from __future__ import annotations

import difflib
import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from trimodal.report.plots import COLOURS, draw
from trimodal.report.values import Figure, Report, Section, Table
from trimodal.tune.objective import Objective, figure_of
from trimodal.tune.search import Final, Result, Trial
from trimodal.tune.session import Tuned
from trimodal.tune.settings import TuneSettings
from trimodal.tune.space import Setting

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
    if not result.improved:
        return f"The knobs stay as they are: {result.why}."
    before, after = (_final_value(result, one, settings.objective) for one in (result.start, result.chosen))
    name = settings.objective.name
    ratio = f" ({after / before:.2f} times)" if before else ""
    slo = f" under {settings.slo.text}" if settings.slo.bounds else ""
    return f"{name}{slo}: {number(before)} → {number(after)} {settings.objective.unit}{ratio}; {result.why}."


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
    return {
        "model": settings.model,
        "objective": {"name": settings.objective.name, "maximize": settings.objective.maximise},
        "slo": settings.slo.text,
        "load": str(settings.workload),
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
            {"trial": one.trial.number, "rounds": [asdict(each) for each in one.rounds]}
            for one in (result.finals if result else ())
        ],
        "seconds": result.seconds if result else sum(one.seconds for one in tuned.trials),
        "diff": difference,
    }


def report(settings: TuneSettings, tuned: Tuned, difference: str) -> Report:
    """The HTML page."""
    figures = [] if len(tuned.trials) < 2 else [pareto(settings, tuned)]
    knobs = Table("What was searched", ("knob", "values"), [str(knob).split("=", 1) for knob in tuned.knobs])
    sections = [
        Section("Result", "", tables(settings, tuned)[:-1], figures),
        Section("Trials", "", tables(settings, tuned)[-1:]),
        Section("Knobs", "", [knobs]),
    ]
    if difference:
        # Spaces at a line's begin would be lost in a cell.
        rows = [[line.replace(" ", "\u00a0") or "\u00a0"] for line in difference.splitlines()]
        sections.insert(1, Section("Change of the files", "", [Table("", ("diff",), rows)]))
    facts = [
        ("model", settings.model),
        ("SLO", settings.slo.text or "none"),
        ("load", str(settings.workload)),
        ("round", f"{settings.seconds:g} s, up to {settings.budget.rounds} for a trial"),
        ("settings", f"{len(tuned.trials)} of {math.prod(len(knob.choices) for knob in tuned.knobs):,}"),
        ("ended by", tuned.result.ended if tuned.result else "Ctrl-C"),
        ("machine", platform.platform()),
        ("date", date.today().isoformat()),
    ]
    return Report(f"trimodal tune {settings.model}", verdict(settings, tuned), sections, facts)


def front(points: Sequence[tuple[float, float]], *, maximise: bool) -> list[int]:
    """Numbers of the points (cost, gain) that no other point is better than in both.

    Args:
        maximise: whether more gain is better; less cost always is.
    """
    sign = 1 if maximise else -1
    found, best = [], float("-inf")
    for index in sorted(range(len(points)), key=lambda one: (points[one][0], -sign * points[one][1])):
        if sign * points[index][1] > best:
            best = sign * points[index][1]
            found.append(index)
    return found


def second_axis(settings: TuneSettings) -> str:
    """The figure that the objective is weighed against: the SLO's first of a run, else the p99 latency."""
    names = [figure_of(bound) for bound in settings.slo.of_run if bound.metric != "error_rate"]
    against = next((name for name in names if name != settings.objective.name), "p99_ms")
    return "requests_per_s" if against == settings.objective.name else against


def pareto(settings: TuneSettings, tuned: Tuned) -> Figure:
    """All trials, the objective over what it costs, with the front."""
    against, objective = second_axis(settings), settings.objective
    known = [one for one in tuned.trials if one.figure(against) is not None]
    points = [(one.figure(against) or 0.0, one.figure(objective.name) or 0.0) for one in known]
    chosen = tuned.result.chosen.number if tuned.result else -1
    best = front(points, maximise=objective.maximise)

    def paint(axes: Any) -> None:
        groups = (
            ("meets the SLO", COLOURS[0], [not one.violation for one in known]),
            ("misses it", "#b6bec8", [bool(one.violation) for one in known]),
        )
        for name, colour, mask in groups:
            some = [point for point, of in zip(points, mask, strict=True) if of]
            if some:
                axes.scatter(*zip(*some, strict=True), s=22, color=colour, label=name, zorder=3)
        axes.plot(
            *zip(*(points[index] for index in best), strict=True),
            color="#5b6675",
            lw=1,
            marker="D",
            ms=8,
            mfc="none",
            label="front",
        )
        for one, point in zip(known, points, strict=True):
            if one.number in (0, chosen):
                mark = "start" if one.number == 0 else "chosen"
                axes.scatter(*point, s=90, facecolors="none", edgecolors=COLOURS[1], linewidths=1.6, zorder=4)
                axes.annotate(
                    "start, kept" if chosen == 0 else mark,
                    point,
                    textcoords="offset points",
                    xytext=(8, 6),
                    color=COLOURS[1],
                )
        for bound in settings.slo.bounds:
            if figure_of(bound) == against:
                axes.axvline(bound.limit, color=COLOURS[1], lw=0.8, ls="--", label=bound.text)
        axes.set(xlabel=against.replace("_", " "), ylabel=_axis(objective))
        axes.margins(x=0.12, y=0.12)
        axes.set_ylim(bottom=0)
        axes.legend(loc="best")

    return draw(
        f"{objective.name} against {against}",
        paint,
        caption="A point is a trial, the median of its rounds. Nothing beats those on the front in both.",
    )


def _axis(objective: Objective) -> str:
    """The objective's name with its unit, where the name does not say it."""
    unit = objective.unit if objective.name in ("throughput", "goodput", "cost") else ""
    return f"{objective.name.replace('_', ' ')} {unit}".strip()


def number(value: float) -> str:
    """Three figures."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _final_value(result: Result, trial: Trial, objective: Objective) -> float:
    final = next((one.again for one in result.finals if one.trial.number == trial.number), trial)
    return final.figure(objective.name) or 0.0


def _columns(settings: TuneSettings) -> list[str]:
    names = [settings.objective.name, *(figure_of(bound) for bound in settings.slo.bounds)]
    return list(dict.fromkeys([*names, second_axis(settings)]))


def _cells(trial: Trial, columns: Sequence[str]) -> list[str]:
    values = [trial.figure(column) for column in columns]
    return ["–" if value is None else number(value) for value in values]


def _finals(settings: TuneSettings, result: Result) -> Table:
    columns = _columns(settings)
    first = result.finals[0]
    rows = []
    for one in result.finals:
        name = "start" if one is first else f"trial {one.trial.number + 1}"
        chosen = " (chosen)" if one.trial.number == result.chosen.number else ""
        ratio = _ratio(one, first)
        rows.append([name + chosen, *_cells(one.again, columns), ratio, _slo(one.again)])
    return Table(
        "Final: the best trials and the start, measured again in turn",
        ("setting", *columns, "to start", "SLO"),
        rows,
        note=f"{len(first.rounds)} rounds each; medians. A finalist has to win its rounds.",
    )


def _ratio(one: Final, first: Final) -> str:
    pairs = [
        abs(ours.gain / theirs.gain)
        for ours, theirs in zip(one.rounds, first.rounds, strict=True)
        if theirs.gain
    ]
    return f"{median(pairs):.2f}" if pairs else "–"


def _trials(settings: TuneSettings, trials: Sequence[Trial]) -> Table:
    columns = _columns(settings)
    start = trials[0]
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
