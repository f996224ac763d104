"""Compares the search with a full grid, from deliberately bad knobs: `python -m trimodal.tune.proof vision`.

The repository is a copy with the bad knobs written into its files. One server answers both: the search with a
quarter of the grid's trials, then every setting of the grid once, then what the search chose and the
grid's best in turn, so that neither stands there by a lucky round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from trimodal.bench.load.slo import parse_slo
from trimodal.paths import default_repository
from trimodal.report.console import print_table
from trimodal.report.values import Table
from trimodal.repository import select_models
from trimodal.server.options import ServerOptions
from trimodal.tune import report
from trimodal.tune.fields import put_text
from trimodal.tune.knobs import Knob
from trimodal.tune.objective import parse_objective
from trimodal.tune.search import Budget, Final, Result, Round, Search, Trial, TrialError
from trimodal.tune.session import LiveBench, Plan, Stage, Tuned, live_pipeline, new_texts
from trimodal.tune.space import Setting, Space

_TURNS = 9  # of what the search chose and the grid's best
_BEST = 2  # settings of the grid that are measured again


@dataclass(frozen=True)
class Case:
    """A model, what is asked of it, the grid, and where the search begins."""

    slo: str
    maximize: str
    seconds: float
    knobs: tuple[str, ...]
    bad: dict[str, str]


CASES = {
    "vision": Case(
        slo="p99_ms<=400",
        maximize="throughput",
        seconds=1.0,
        knobs=(
            "vision_preprocess.threads=1,2",
            "vision_preprocess.max_queue_delay_microseconds=0,5000,20000",
            "vision_classify.intra_op_threads=1,2",
            "vision_classify.instance_count=1,2",
            "vision_classify.max_queue_delay_microseconds=0,1000,20000",
        ),
        bad={
            "vision_preprocess.threads": "1",
            "vision_preprocess.max_queue_delay_microseconds": "20000",
            "vision_classify.intra_op_threads": "1",
            "vision_classify.max_queue_delay_microseconds": "20000",
        },
    ),
    "llm": Case(
        slo="p99_ms<=4000",
        maximize="tokens_per_s",
        seconds=1.2,
        knobs=(
            "llm.threads=1,2",
            "llm.max_num_seqs=1,2,4,16",
            "llm.max_num_batched_tokens=32,128,256",
            "llm.speculation=none,prompt_lookup",
        ),
        bad={
            "llm.threads": "1",
            "llm.max_num_seqs": "1",
            "llm.max_num_batched_tokens": "32",
            "llm.speculation": "prompt_lookup",
        },
    ),
}


def bad_repository(target: Path, model: str, bad: dict[str, str]) -> Path:
    """A copy of the repository's models, by links, with these knobs in files of its own."""
    for name, one in select_models(default_repository().absolute(), [model], "cpu").items():
        own = target / name
        own.mkdir(parents=True)
        for entry in one.directory.iterdir():
            if entry.name not in ("config.pbtxt", "configs"):
                (own / entry.name).symlink_to(entry)
        for file in (one.directory / "config.pbtxt", one.config_file):
            text = file.read_text(encoding="utf-8")
            for label, value in bad.items():
                if file == one.config_file and label.rpartition(".")[0] == name:
                    text = put_text(text, label.rpartition(".")[2], value)
            copy = own / file.relative_to(one.directory)
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(text, encoding="utf-8")
    return target


async def compare(bench: LiveBench, space: Space, start: Setting, plan: Plan, say: Any) -> dict[str, Any]:
    """Search, grid, and both best in turn."""
    first: list[Setting] = []

    def tell(trial: Trial, best: Trial) -> None:
        first.append(trial.setting)
        say(report.progress(trial, best, first[0], plan.objective, plan.budget.trials))

    search = Search(space, start, bench, plan.budget, tell=tell)
    result = await search.run()
    say(f"the grid: {space.size} settings")
    grid: list[Trial] = []
    for number, setting in enumerate(space.all()):
        if number and number % 12 == 0:
            say(f"{number} of {space.size}")
        try:
            await bench.apply(setting)
            grid.append(Trial(number, setting, "measured", (await bench.measure(),)))
        except TrialError as error:
            grid.append(Trial(number, setting, error.state, (), str(error)))
    best = sorted(grid, key=lambda one: -one.score)[:_BEST]
    rivals = [one for one in best if one.setting != result.chosen.setting]
    rounds: dict[int, list[Round]] = {index: [] for index in range(len(rivals) + 1)}
    for number in range(_TURNS):
        order = list(enumerate([result.chosen, *rivals]))
        for index, one in reversed(order) if number % 2 else order:
            await bench.apply(one.setting)
            rounds[index].append(await bench.measure())
    return {
        "result": result,
        "grid": grid,
        "chosen": Final(result.chosen, tuple(rounds[0])),
        "rivals": [Final(one, tuple(rounds[index + 1])) for index, one in enumerate(rivals)],
    }


def shown(plan: Plan, found: dict[str, Any], size: int) -> tuple[Table, float]:
    """The table of both, and what the search reached of the grid's best."""
    result: Result = found["result"]
    grid: list[Trial] = found["grid"]
    ours: Final = found["chosen"]
    rivals: list[Final] = found["rivals"]
    best = max(rivals, key=lambda one: one.again.score, default=ours)
    pairs = zip(ours.rounds, best.rounds, strict=True)
    reached = median(mine.gain / theirs.gain for mine, theirs in pairs)
    name = plan.objective.name
    measured = sum(len(one.rounds) for one in result.trials)
    rows = [
        ["start", "1", "", report.number(result.start.figure(name) or 0), ""],
        [
            "search",
            str(len(result.trials)),
            str(measured),
            report.number(ours.again.figure(name) or 0),
            report.changes(ours.trial.setting, result.start.setting, "\n"),
        ],
        [
            "full grid",
            str(size),
            str(sum(len(one.rounds) for one in grid)),
            report.number(best.again.figure(name) or 0),
            report.changes(best.trial.setting, result.start.setting, "\n"),
        ],
    ]
    columns = ("", "trials", "rounds", name, "knobs")
    share = len(result.trials) / size
    ranked = sorted(grid, key=lambda one: -one.score)
    place = next((at for at, one in enumerate(ranked, 1) if one.setting == ours.trial.setting), 0)
    note = (
        f"The search reached {reached:.3f} of the grid's best other setting ({len(ours.rounds)} rounds in "
        f"turn) with {share:.2f} of its trials. The grid's single rounds rank its choice {place} of {size}."
    )
    return Table(f"{plan.model}: search and full grid, {plan.slo.text}", columns, rows, note), reached


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trimodal.tune.proof", description=__doc__)
    parser.add_argument("model", choices=CASES)
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    case, console = CASES[given.model], Console(highlight=False, markup=False)
    with tempfile.TemporaryDirectory(prefix="trimodal-tune-") as folder:
        repository = bad_repository(Path(folder) / "models", given.model, case.bad)
        slo = parse_slo(case.slo)
        options = ServerOptions.on_free_ports(given.model, repository=repository)
        plan = Plan(
            given.model,
            parse_objective(case.maximize, None, slo, 0.0),
            options,
            slo,
            seconds=case.seconds,
            warmup=0.2,
        )
        stage = Stage(plan)
        try:
            pipeline = live_pipeline(stage.live, given.model, repository, "cpu")
            knobs: list[Knob] = [pipeline.parse(text) for text in case.knobs]
            space = Space(knobs)
            size = space.size or 0
            budget = Budget(size // 4, rounds=2, final_rounds=3, finalists=2, seed=given.seed)
            plan = Plan(**{**vars(plan), "budget": budget})
            bench = LiveBench(plan, pipeline, stage)
            start = pipeline.start(knobs)
            found = asyncio.run(
                compare(bench, space, start, plan, lambda line: print(line, file=sys.stderr, flush=True))
            )
            result: Result = found["result"]
            texts = new_texts(pipeline, start, result.chosen.setting)
        finally:
            stage.close()
        table, reached = shown(plan, found, size)
        print_table(table, console)
        difference = report.diff(texts, repository)
        console.print(difference, soft_wrap=True)
    if given.json:
        tuned = Tuned(tuple(knobs), result.trials, result)
        grid = [{"setting": one.setting, "value": one.figure(plan.objective.name)} for one in found["grid"]]
        figures = report.data(plan, tuned, difference) | {"grid": grid, "reached": reached}
        given.json.write_text(json.dumps(figures | {"machine": platform.platform()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
