"""Draws the figures: one column of tables on a narrow terminal, two on a wide one."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimodal.top.figures import Figures, Latency, Llm, Model, Number

WIDE = 132  # columns from which on two tables stand side by side
HISTORY = 60
BARS = "▁▂▃▄▅▆▇"  # without the full block: the curves of two lines would touch
# The objectives of deploy/prometheus/rules/slo.yml, in seconds: a percentile above them is marked.
LIMITS = {"llm_ttft": 0.5, "llm_itl": 0.1, "speech_lag": 3.0, "assistant_ttft": 2.5}
NOTHING = "·"


@dataclass(frozen=True)
class Source:
    """One of the two that are looked at. `away` says why there is nothing of it, and is empty otherwise."""

    name: str
    address: str
    away: str = ""
    since: float = 0.0  # of `away`, as time.time()


@dataclass
class History:
    """The last figures of what is shown as a curve."""

    lines: dict[str, deque[float]] = field(default_factory=dict)

    def note(self, shown: Figures) -> None:
        llm, speech = shown.llm, shown.speech
        requests = shown.gateway.requests_per_s if shown.gateway else llm.requests_per_s if llm else None
        for name, value in (
            ("requests/s", requests),
            ("tokens/s", llm.completion_tokens_per_s if llm else None),
            ("TTFT p90", llm.ttft.p90 if llm else None),
            ("ITL p90", llm.itl.p90 if llm else None),
            ("KV blocks", llm.kv_usage if llm else None),
            ("lag p90", speech.lag.p90 if speech else None),
        ):
            if value is not None or name in self.lines:
                self.lines.setdefault(name, deque(maxlen=HISTORY)).append(value or 0.0)


def screen(
    shown: Figures, sources: list[Source], history: History, *, width: int, interval: float, now: float
) -> RenderableType:
    """The whole view for a terminal of `width` columns, the most important first; `now` as time.time()."""
    llm: list[RenderableType] = [*_llm(shown), *_cache(shown)]
    rest: list[RenderableType] = [*_speech(shown), *_pictures_and_texts(shown), *_gateway(shown)]
    head = _head(shown, sources, interval, now)
    if width < WIDE:
        return Group(head, *llm, *rest, *_assistant(shown), *_models(shown, narrow=True))
    columns = Table.grid(expand=True, padding=(0, 2))
    columns.add_column(ratio=1)
    columns.add_column(ratio=1)
    columns.add_row(
        Group(*llm, *_assistant(shown), *_trends(history)), Group(*rest, *_models(shown, narrow=False))
    )
    return Group(head, columns)


def _head(shown: Figures, sources: list[Source], interval: float, now: float) -> RenderableType:
    line = Text.assemble(("trimodal top", "bold"), (f"  {_clock(now)}, every {interval:g} s  ", "dim"))
    line.append_text(_readiness(shown.models))
    places = Text()
    for source in sources:
        places.append(f"{source.name} ", style="dim").append(f"{source.address}  ")
    lines: list[RenderableType] = [line, places]
    lines += [
        Text(
            f"{source.name} {source.address} is away since {_clock(source.since)}: {source.away}", "bold red"
        )
        for source in sources
        if source.away
    ]
    return Group(*lines)


def _readiness(models: tuple[Model, ...]) -> Text:
    """How many models answer, and which do not."""
    if not models:
        return Text()
    if all(model.ready is None for model in models):
        return Text(f"{len(models)} models; nobody tells whether they are ready", style="dim")
    down = [model.name for model in models if model.ready is False]
    if down:
        return Text(f"✗ not ready: {', '.join(down)}", style="bold red")
    return Text.assemble(("●", "green"), f" {len(models)} models ready")


def _title(name: str, *facts: Text | str) -> RenderableType:
    line = Text(name, style="bold cyan")
    for fact in facts:
        line.append("  ")
        if isinstance(fact, Text):
            line.append_text(fact)
        else:
            line.append(fact, style="not bold default")
    return Padding(line, (1, 0, 0, 0))


def _latencies(rows: Mapping[str, tuple[Latency, str]]) -> Table:
    """Percentiles of each; the text says which objective it has."""
    table = _table("", "p50", "p90", "p99", "per s")
    for name, (latency, objective) in rows.items():
        limit = LIMITS.get(objective)
        cells = [
            Text(
                _seconds(value), style="bold yellow" if limit and value is not None and value > limit else ""
            )
            for value in (latency.p50, latency.p90, latency.p99)
        ]
        table.add_row(name, *cells, _rate(latency.per_s))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column(first, min_width=18, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", min_width=8, no_wrap=True)
    return table


def _llm(shown: Figures) -> list[RenderableType]:
    llm = shown.llm
    if not llm:
        return []
    rows = {
        "TTFT": (llm.ttft, "llm_ttft"),
        "ITL": (llm.itl, "llm_itl"),
        "queue": (llm.queue, ""),
        "end to end": (llm.e2e, ""),
    }
    return [
        _title(
            "llm",
            f"{_rate(llm.requests_per_s)} requests/s",
            f"{_rate(llm.completion_tokens_per_s)} tokens/s out, {_rate(llm.prompt_tokens_per_s)} in",
            _bad(llm.errors_per_s, "errors/s"),
        ),
        _facts(
            f"active {_count(llm.active)}",
            f"queued {_count(llm.queued)}",
            _kv(llm.kv_usage),
            _bad(llm.turned_away_per_s, "turned away/s"),
        ),
        _facts(
            f"prefix cache {_share(llm.prefix_hit_share)} of the prompts",
            _speculation(llm),
            _bad(llm.engine_restarts, "engine restarts", total=True),
        ),
        _latencies(rows),
    ]


def _speculation(llm: Llm) -> str:
    if not llm.speculating:
        return "speculation off"
    return f"speculation {_share(llm.acceptance)} accepted, {_decimal(llm.tokens_per_step)} tokens a step"


def _kv(usage: Number) -> Text:
    bar = Text("KV ")
    full = math.ceil(min(usage or 0.0, 1.0) * 12)
    style = "red" if (usage or 0.0) > 0.9 else "green"
    bar.append("━" * full, style=style).append("━" * (12 - full), style="dim")
    return bar.append(f" {_share(usage)}")


def _cache(shown: Figures) -> list[RenderableType]:
    cache = shown.cache
    if not cache:
        return []
    return [
        _title(
            "cache",
            f"{_share(cache.hit_share)} hits",
            f"{_share(cache.semantic_share)} semantic",
            f"entries {_count(cache.entries)}",
            f"{_rate(cache.saved_tokens_per_s)} tokens/s saved",
            _bad(cache.bypassed_per_s, "bypassed/s", style="yellow"),
        )
    ]


def _assistant(shown: Figures) -> list[RenderableType]:
    assistant = shown.assistant
    if not assistant:
        return []
    rows = {"TTFT": (assistant.ttft, "assistant_ttft"), "end to end": (assistant.e2e, "")}
    rows |= {f"stage {name}": (latency, "") for name, latency in assistant.stages.items()}
    return [
        _title(
            "assistant",
            f"{_rate(assistant.requests_per_s)} requests/s",
            f"active {_count(assistant.active)}",
            _bad(assistant.errors_per_s, "errors/s"),
        ),
        _latencies(rows),
    ]


def _speech(shown: Figures) -> list[RenderableType]:
    speech = shown.speech
    if not speech:
        return []
    rows = {
        "lag": (speech.lag, "speech_lag"),
        "window to words": (speech.turnaround, ""),
        "recogniser's run": (speech.run, ""),
    }
    return [
        _title(
            "speech",
            f"streams {_count(speech.streams)}",
            f"{_rate(speech.audio_per_s)} s of audio/s",
            f"{_share(speech.speech_share)} speech",
            _bad(speech.errors_per_s, "errors/s"),
        ),
        _facts(f"windows in flight {_count(speech.windows)}", f"batch {_decimal(speech.batch_size)}"),
        _latencies(rows),
    ]


def _pictures_and_texts(shown: Figures) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if vision := shown.vision:
        parts += [
            _title(
                "vision",
                f"{_rate(vision.images_per_s)} images/s",
                f"batch {_decimal(vision.batch_size)}",
                _refused(vision.refused_per_s),
            ),
            _latencies({"decode": (vision.decode, ""), "classifier's run": (vision.classify, "")}),
        ]
    if embedding := shown.embedding:
        parts += [
            _title(
                "embedding",
                f"{_rate(embedding.texts_per_s)} texts/s",
                f"batch {_decimal(embedding.batch_size)}",
                _refused(embedding.refused_per_s),
            ),
            _latencies({"embedder's run": (embedding.run, "")}),
        ]
    return parts


def _gateway(shown: Figures) -> list[RenderableType]:
    gateway = shown.gateway
    if not gateway:
        return []
    rows = {"TTFT": gateway.ttft, "ITL, mean of each": gateway.itl, "end to end": gateway.request}
    return [
        _title(
            "gateway",
            f"{_rate(gateway.requests_per_s)} requests/s",
            f"in flight {_count(gateway.in_flight)}",
            _bad(gateway.errors_per_s, "errors/s"),
            _refused(gateway.refused_per_s),
            _bad(gateway.moved_per_s, "moved/s"),
        ),
        _latencies({name: (latency, "") for name, latency in rows.items()}),
    ]


def _models(shown: Figures, *, narrow: bool) -> list[RenderableType]:
    if not shown.models:
        return []
    more = () if narrow else ("batch",)
    table = _table("", "req/s", "errors/s", "waiting", "queued", "in all", *more)
    for model in shown.models:
        name = Text.assemble(_ready(model), f" {model.name}")
        batch = () if narrow else (_decimal(model.batch_size),)
        table.add_row(
            name,
            _rate(model.requests_per_s),
            _bad(model.errors_per_s, ""),
            _count(model.waiting),
            _seconds(model.queue_s),
            _seconds(model.request_s),
            *batch,
        )
    return [_title("models", Text("as Triton counts them, means", style="not bold dim")), table]


def _ready(model: Model) -> Text:
    if model.ready is None:
        return Text("?", style="dim")
    return Text("●", style="green") if model.ready else Text("✗", style="bold red")


def _trends(history: History) -> list[RenderableType]:
    lines = {name: values for name, values in history.lines.items() if any(values)}
    if not lines:
        return []
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, values in lines.items():
        top = max(values)
        shown = _share(top) if name == "KV blocks" else _seconds(top) if name.endswith("p90") else _rate(top)
        table.add_row(Text(name, style="dim"), curve(values), Text(f"at most {shown}", style="dim"))
    return [_title("lately"), table]


def curve(values: deque[float]) -> Text:
    """A curve of characters, from zero to the largest value."""
    top = max(values, default=0.0)
    marks = [BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] if value > 0 else " " for value in values]
    return Text("".join(marks), style="cyan")


def _facts(*facts: Text | str) -> Text:
    line = Text()
    for number, fact in enumerate(facts):
        line.append("   " if number else "")
        line.append_text(fact) if isinstance(fact, Text) else line.append(fact)
    return line


def _bad(value: Number, name: str, *, total: bool = False, style: str = "bold red") -> Text:
    """What should be zero: dim when it is, marked when it is not."""
    shown = _count(value) if total else _rate(value)
    return Text(f"{shown} {name}".strip(), style=style if value else "dim")


def _refused(value: Number) -> Text:
    """What clients asked wrongly: none of the server's failures."""
    return _bad(value, "refused/s", style="yellow")


def _rate(value: Number) -> str:
    if value is None:
        return NOTHING
    if value >= 9_999.5:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if value >= 99.5 or value == 0 else f"{value:.3g}"


def _count(value: Number) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def _decimal(value: Number) -> str:
    return NOTHING if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def _share(value: Number) -> str:
    return NOTHING if value is None else f"{value:.0%}"


def _seconds(value: Number) -> str:
    if value is None:
        return NOTHING
    if value < 0.9995e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
