"""Draws the figures: one column of tables on a narrow terminal, two on a wide one."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimodal.report.numbers import Number, count, decimal, rate, seconds, share
from trimodal.top.figures import Figures, Latency, Llm, Model

WIDE = 132  # columns from which on two tables stand side by side
# The objectives of deploy/prometheus/rules/slo.yml, in seconds: a percentile above them is marked.
LIMITS = {"llm_ttft": 0.5, "llm_itl": 0.1, "speech_lag": 3.0, "assistant_ttft": 2.5}
# Figures that should be zero: marked when they are not.
BAD = {
    "errors_per_s": "bold red",
    "moved_per_s": "bold red",
    "refused_per_s": "yellow",
    "bypassed_per_s": "yellow",
}


@dataclass(frozen=True)
class Source:
    """One of the two that are looked at. `away` says why there is nothing of it, and is empty otherwise."""

    name: str
    address: str
    away: str = ""
    since: float = 0.0  # of `away`, as time.time()


def screen(
    shown: Figures, sources: list[Source], *, width: int, interval: float, now: float
) -> RenderableType:
    """The whole view for a terminal of `width` columns, the most important first; `now` as time.time()."""
    text = [*(_llm(shown.llm) if shown.llm else []), _part("cache", shown.cache)]
    rest = [_part(name, getattr(shown, name)) for name in ("speech", "vision", "embedding", "gateway")]
    assistant = _part("assistant", shown.assistant)
    head = _head(shown, sources, interval, now)
    if width < WIDE:
        return Group(head, *text, *rest, assistant, *_models(shown.models, narrow=True))
    columns = Table.grid(expand=True, padding=(0, 2))
    columns.add_column(ratio=1)
    columns.add_column(ratio=1)
    columns.add_row(Group(*text, assistant), Group(*rest, *_models(shown.models, narrow=False)))
    return Group(head, columns)


def _head(shown: Figures, sources: list[Source], interval: float, now: float) -> RenderableType:
    line = Text.assemble(("trimodal top", "bold"), (f"  {_clock(now)}, every {interval:g} s  ", "dim"))
    line.append_text(_readiness(shown.models))
    places = Text()
    for source in sources:
        places.append(f"{source.name} ", style="dim").append(f"{source.address}  ")
    away = [
        f"{source.name} {source.address} is away since {_clock(source.since)}: {source.away}"
        for source in sources
        if source.away
    ]
    return Group(line, places, *(Text(one, "bold red") for one in away))


def _readiness(models: tuple[Model, ...]) -> Text:
    """How many models answer, and which do not."""
    if not models:
        return Text()
    if all(model.ready is None for model in models):
        return Text(f"{len(models)} models; nobody tells whether they are ready", style="dim")
    down = [one for model in models for one in ((model.name,) if model.ready is False else model.silent)]
    if down:
        return Text(f"✗ not ready: {', '.join(down)}", style="bold red")
    return Text.assemble(("●", "green"), f" {len(models)} models ready")


def _title(name: str, *facts: Text | str) -> RenderableType:
    line = Text(name, style="bold cyan")
    for fact in facts:
        line.append("  ").append_text(fact if isinstance(fact, Text) else Text(fact, "not bold default"))
    return Padding(line, (1, 0, 0, 0))


def _facts(*facts: Text | str) -> Text:
    return Text("   ").join(fact if isinstance(fact, Text) else Text(fact) for fact in facts)


def _part(name: str, part: Any) -> RenderableType:
    """A part of the view: its name with figures behind it, and its latencies; nothing where there is none."""
    if part is None:
        return Group()
    facts: list[Text | str] = []
    for one in fields(part):
        value, text = getattr(part, one.name), str(one.metadata["text"])
        if "{}" in text:
            told = text.format(one.metadata["number"](value))
            facts.append(Text(told, BAD[one.name] if value else "dim") if one.name in BAD else told)
    return Group(_title(name, *facts), *_latencies(name, part))


def _latencies(name: str, part: Any) -> list[RenderableType]:
    """A table of the percentiles of a part, marked where they are above their objective."""
    rows: dict[str, tuple[Latency, float]] = {}
    for one in fields(part):
        value, text = getattr(part, one.name), one.metadata["text"]
        if isinstance(value, Latency):
            rows[text] = value, LIMITS.get(f"{name}_{one.name}", math.inf)
        elif isinstance(value, Mapping):
            rows |= {f"{text} {key}": (latency, math.inf) for key, latency in value.items()}
    if not rows:
        return []
    table = _table("", "p50", "p90", "p99", "per s")
    for text, (latency, limit) in rows.items():
        cells = [
            Text(seconds(value), style="bold yellow" if value is not None and value > limit else "")
            for value in (latency.p50, latency.p90, latency.p99)
        ]
        table.add_row(text, *cells, rate(latency.per_s))
    return [table]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column(first, min_width=18, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", min_width=8, no_wrap=True)
    return table


def _llm(llm: Llm) -> list[RenderableType]:
    speculation = "speculation off"
    if llm.speculating:
        steps = decimal(llm.tokens_per_step)
        speculation = f"speculation {share(llm.acceptance)} accepted, {steps} tokens a step"
    return [
        _title(
            "llm",
            f"{rate(llm.requests_per_s)} requests/s",
            f"{rate(llm.completion_tokens_per_s)} tokens/s out, {rate(llm.prompt_tokens_per_s)} in",
            _bad(llm.errors_per_s, "errors/s"),
        ),
        _facts(
            f"active {count(llm.active)}",
            f"queued {count(llm.queued)}",
            _kv(llm.kv_usage),
            _bad(llm.turned_away_per_s, "turned away/s"),
        ),
        _facts(
            f"prefix cache {share(llm.prefix_hit_share)} of the prompts",
            speculation,
            _bad(llm.engine_restarts, "engine restarts", total=True),
        ),
        *_latencies("llm", llm),
    ]


def _kv(usage: Number) -> Text:
    bar = Text("KV ")
    full = math.ceil(min(usage or 0.0, 1.0) * 12)
    style = "red" if (usage or 0.0) > 0.9 else "green"
    bar.append("━" * full, style=style).append("━" * (12 - full), style="dim")
    return bar.append(f" {share(usage)}")


def _models(models: Sequence[Model], *, narrow: bool) -> list[RenderableType]:
    if not models:
        return []
    more = () if narrow else ("batch",)
    table = _table("", "req/s", "errors/s", "waiting", "queued", "in all", *more)
    for model in models:
        name = Text.assemble(_ready(model), f" {model.name}")
        batch = () if narrow else (decimal(model.batch_size),)
        table.add_row(
            name,
            rate(model.requests_per_s),
            _bad(model.errors_per_s, ""),
            count(model.waiting),
            seconds(model.queue_s),
            seconds(model.request_s),
            *batch,
        )
    return [_title("models", Text("as Triton counts them, means", style="not bold dim")), table]


def _ready(model: Model) -> Text:
    if model.ready is None:
        return Text("?", style="dim")
    return Text("●", style="green") if model.ready else Text("✗", style="bold red")


def _bad(value: Number, name: str, *, total: bool = False) -> Text:
    """What should be zero: dim when it is, marked when it is not."""
    shown = count(value) if total else rate(value)
    return Text(f"{shown} {name}".strip(), style="bold red" if value else "dim")


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
