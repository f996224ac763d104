"""`trimodal bench overload`: measures goodput under load beyond capacity, scheduled by deadline or arrival.

Both sides are servers of the same engine with the same tiers; they take turns, level by
level, with the very same requests at the same times. The one side orders and refuses by
deadline, the other takes everything in and serves it in order of arrival. Capacity is
what a closed loop gets out of them, and is measured first.

Unless another engine is set it is the fake one at a set pace: what is measured is the
scheduling, and a machine's own speed does not come into it. Its answers end at random, as
real ones do: no request says how long its answer will be.
"""

from __future__ import annotations

import asyncio
import gc
import math
import platform
import random
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import run_clients
from trimodal.bench.common.serving import metrics_page, serving
from trimodal.bench.llm.bench import served_settings
from trimodal.bench.llm.sides import Prompts
from trimodal.bench.overload.figures import LevelFigures, summarise_level
from trimodal.bench.overload.load import Asked, poisson, run_load
from trimodal.bench.overload.machine import MemoryWatch, read_ticks, share_of_others
from trimodal.bench.overload.tables import draw, print_tables, statements
from trimodal.client import Client
from trimodal.client.streams.answer import AnswerStream
from trimodal.errors import ServerError, SettingsError
from trimodal.llm.engines.artefact import card_limits
from trimodal.llm.request.terms import MAX_TTFT_DEADLINE_MS
from trimodal.llm.tiers import Tier, Tiers, read_tiers
from trimodal.paths import default_repository
from trimodal.runtimes.gpu_device import current_gpu
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer

TIERS = Path(__file__).with_name("tiers.toml")
SCHEDULERS = ("deadline", "fifo")
STOP = "."
_MOST_REQUESTS = 500_000  # of all levels: their prompts and results are kept
_SPREAD = 0.6  # of the logarithm of prompt lengths
_BUSY = re.compile(r"^trimodal_llm_(?:active|queued)_requests\{[^}]*\} (\S+)$", re.MULTILINE)
_IDLE_WITHIN_S = 60.0
_LOOK_S = 0.2


@dataclass(frozen=True)
class Plan:
    """What to measure, as the options of `trimodal bench overload` say. Times in seconds."""

    loads: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 10.0)
    seconds: float = 60.0
    schedulers: tuple[str, ...] = SCHEDULERS
    mix: Mapping[str, float] = field(default_factory=lambda: {"premium": 10, "standard": 60, "batch": 30})
    tiers: Path = TIERS
    capacity: float = 0.0
    prompts: Path | None = None
    prompt_tokens: int = 64
    answer_tokens: int = 24
    max_tokens: int = 96
    patience: float = 30.0
    most_open: int = 8192
    seed: int = 1
    changes: Mapping[str, str] = field(default_factory=dict)


async def measure(plan: Plan, console: Console, plot: Path | None = None) -> dict[str, Any]:
    """Runs the plan, prints its tables and what came of the goals; the figures as plain data.

    Raises:
        OperatorError: a setting is wrong, or a server does not start.
    """
    tiers = read_tiers(plan.tiers)
    changes = _changes(plan)
    source = _Source(plan, tiers, changes)
    async with AsyncExitStack() as stack:
        sides = {}
        for name in plan.schedulers:
            opened = await stack.enter_async_context(serving(_options(name, changes), connections=4))
            sides[name] = Side(*opened, tiers.tier, plan.patience, plan.most_open)
        # Also what the deadline side learns its engine's speed from.
        rates = {name: await _capacity(plan, source, side) for name, side in sides.items()}
        capacity = plan.capacity or max(rates.values())
        shown = ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items())
        console.print(f"capacity {capacity:.2f} requests/s; closed loop of {source.clients}: {shown}")
        if capacity * sum(plan.loads) * plan.seconds > _MOST_REQUESTS:
            raise SettingsError(f"these levels make over {_MOST_REQUESTS} requests: take fewer --seconds")
        measured: dict[str, list[LevelFigures]] = {name: [] for name in sides}
        for turn, load in enumerate(plan.loads):
            level = source.level(load, capacity * load, plan.seed + turn)
            # Each side is the first one every other time.
            for name in list(sides)[:: -1 if turn % 2 else 1]:
                figures = await sides[name].run(level)
                measured[name].append(figures)
                console.print(f"{load:g}×, {name}: {figures.goodput:.2f} good of {level.rate:.2f} requests/s")
    print_tables(measured, console)
    told = statements(measured, tiers.tier)
    for sentence in told:
        console.print(sentence)
    if plot:
        high = max(plan.mix, key=lambda name: tiers.tier[name].priority)
        draw(measured, plot, capacity=capacity, tier=high, bound_ms=tiers.tier[high].ttft_deadline_ms)
    return {
        "machine": platform.platform(),
        "plan": asdict(plan) | {"changes": changes},
        "tiers": {name: tier.model_dump() for name, tier in tiers.tier.items()},
        "capacity": {"requests_per_s": capacity, "closed_loop": rates},
        "levels": {name: [asdict(level) for level in levels] for name, levels in measured.items()},
        "statements": told,
    }


class _Source:
    """Makes the requests of all levels before they are sent."""

    def __init__(self, plan: Plan, tiers: Tiers, changes: Mapping[str, str]) -> None:
        if unknown := set(plan.mix) - set(tiers.tier):
            known = ", ".join(tiers.tier)
            raise SettingsError(f"--mix: '{min(unknown)}' is none of the tiers in {plan.tiers.name}: {known}")
        settings = served_settings(default_repository(), dict(changes))
        gpu = current_gpu()
        batch = settings.max_num_seqs or card_limits([gpu] if gpu else []).max_num_seqs
        self.clients = 2 * batch  # there is always one that waits for a slot
        self._plan = plan
        self._tiers = tiers
        self._prompts = Prompts(settings, plan.prompts, plan.prompt_tokens, plan.seed)
        self._stop = STOP if settings.engine == "fake" else ""

    def level(self, load: float, rate: float, seed: int) -> Level:
        seconds = self._plan.seconds
        return Level(load, rate, seconds, list(poisson(rate, seconds, self._plan.mix, self.one, seed)))

    def one(self, at: float, tier: str, rng: random.Random) -> Asked:
        """Makes a request of that tier; its prompt's length is log-normal around the median."""
        median = self._plan.prompt_tokens
        tokens = round(median * math.exp(min(2.0, rng.gauss(0, _SPREAD))))
        prompt = self._prompts.next() if self._plan.prompts else self._prompts.random(max(8, tokens))
        bound = self._tiers.tier[tier].ttft_deadline_ms / 1e3 or math.inf
        return Asked(at, tier, prompt, self._plan.max_tokens, self._stop, bound)


async def _capacity(plan: Plan, source: _Source, side: Side) -> float:
    """Answers a second of a closed loop."""
    rng = random.Random(plan.seed)

    async def ask(number: int) -> None:
        await side.ask(source.one(0.0, rng.choice(list(plan.mix)), rng))

    seconds = min(15.0, max(1.0, plan.seconds / 2))
    return (await run_clients(ask, clients=source.clients, items=1, seconds=seconds)).rate


def fake_answer(mean: int, sentences: int = 40, seed: int = 0) -> str:
    """Makes a script for the fake engine: a prompt's answer begins at random in it and ends at a STOP.

    Its sentences' lengths are exponential, which has no memory: so are those of the answers, whatever
    part of a sentence they begin in.

    Args:
        mean: tokens of an answer, about; the fake engine's tokens are bytes.
    """
    shares = [(index + 0.5) / sentences for index in range(sentences)]
    lengths = [max(1, round(-mean * math.log(1 - share))) for share in shares]
    rng = random.Random(seed)
    rng.shuffle(lengths)
    return "".join("".join(rng.choices("abcdefghij", k=length)) + STOP for length in lengths)


def _changes(plan: Plan) -> dict[str, str]:
    """Parameters of both sides."""
    shared = {"tiers": str(plan.tiers.resolve())}
    if plan.changes.get("engine", "fake") != "fake":
        return shared | dict(plan.changes)
    fake = {
        "engine": "fake",
        "fake_step_ms": "25",
        "fake_prefill_us": "100",
        "fake_answer": fake_answer(plan.answer_tokens),
        "max_num_seqs": "8",
        "apply_chat_template": "false",
    }
    return shared | fake | dict(plan.changes)


def _options(scheduler: str, changes: Mapping[str, str]) -> ServerOptions:
    # First in, first out is measured as it is without any admission: its queue has no end.
    longest = "1000000" if scheduler == "fifo" else changes.get("max_queue", "256")
    changes = {**changes, "max_queue": longest, "scheduler": scheduler}
    return ServerOptions.on_free_ports("llm", changes={"llm": changes})


@dataclass(frozen=True)
class Level:
    """One load, and all requests of it."""

    load: float
    rate: float
    seconds: float
    arrivals: Sequence[Asked]


@dataclass(frozen=True)
class Side:
    """A server with one scheduler.

    Attributes:
        tiers: whose bounds count.
        patience: seconds for a whole answer; then its client gives up.
        most_open: requests that the client may have open together.
    """

    server: TritonServer
    client: Client
    tiers: Mapping[str, Tier]
    patience: float
    most_open: int

    async def ask(self, asked: Asked) -> None:
        """One whole answer without a deadline, for a closed loop."""
        stream = self._send(asked, ttft_deadline_ms=MAX_TTFT_DEADLINE_MS)
        async for _ in stream:
            pass

    async def run(self, level: Level) -> LevelFigures:
        """One level on an idle server; it is idle again at the end. Raises ServerError: it stays busy."""
        await self._idle()
        # What is there already need not be looked at again: a collection in the middle would be a lag.
        gc.collect()
        gc.freeze()
        group = self.server.pid
        with MemoryWatch(group) as memory:
            ticks = read_ticks(group)
            results = await run_load(
                self._send, level.arrivals, patience=self.patience, most_open=self.most_open
            )
            others = share_of_others(ticks, read_ticks(group))
            await self._idle()
        return summarise_level(
            results,
            self.tiers,
            load=level.load,
            rate=level.rate,
            seconds=level.seconds,
            others=others,
            memory={"before": memory.before, "most": memory.most, "after": memory.after},
        )

    def _send(self, asked: Asked, ttft_deadline_ms: int | None = None) -> AnswerStream:
        return self.client.stream(
            asked.prompt,
            max_tokens=asked.max_tokens,
            stop=asked.stop or (),
            tier=asked.tier,
            ttft_deadline_ms=ttft_deadline_ms,
            timeout=self.patience,
        )

    async def _idle(self) -> None:
        """Until nothing runs and nothing waits."""
        for _ in range(int(_IDLE_WITHIN_S / _LOOK_S)):
            page = await asyncio.to_thread(metrics_page, self.server.metrics_url)
            busy = sum(map(float, _BUSY.findall(page)))
            if not busy:
                return
            await asyncio.sleep(_LOOK_S)
        raise ServerError(f"{busy:g} requests are still there {_IDLE_WITHIN_S:g} s after a level of load")
