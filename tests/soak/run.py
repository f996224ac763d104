"""Runs the load, the reloads and the looks at the server side by side."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.soak import processes
from tests.soak.load import STREAM_S, STREAMS, Kind
from tests.soak.slopes import Series
from trimodal.bench.load import generator
from trimodal.bench.load.generator import Closed, poisson
from trimodal.bench.load.records import METRICS, Record
from trimodal.client.timing import percentile
from trimodal.errors import TrimodalError
from trimodal.server.launch import GRPC_OPERATOR_HEADER
from trimodal.top.page import Page, fetch

LOOK_S = 5.0
LOAD_S = 600.0
WINDOWS = 20  # of the run: a reload in each, and percentiles of each
BEFORE_S, AFTER_S = 0.5, 3.0  # what a reload may disturb besides its own time
BURST, BURST_AT = 16, 0.28  # of each kind at once, after each model's reload and before the warm-up's end
DRAIN_S = 60.0
BUSY = (  # gauges that are 0 when nothing is asked
    "trimodal_llm_active_requests", "trimodal_llm_queued_requests", "trimodal_llm_kv_usage_ratio",
    "trimodal_speech_active_streams", "trimodal_speech_active_requests", "trimodal_speech_windows_in_flight",
    "trimodal_assistant_active_requests",
)  # fmt: skip
KV, ACTIVE = "trimodal_llm_kv_usage_ratio", "trimodal_llm_active_requests"
RELOADED = ("llm", "vision", "speech_recognize", "speech", "assistant", "embedding")

Point = tuple[float, float]  # seconds from the run's begin, value


@dataclass(frozen=True)
class Server:
    """A started server: process id of its launcher, host:port of its ends, its operator's key.

    Attributes:
        log: Triton's. temporary: TMPDIR.
    """

    launcher: int
    grpc: str
    metrics: str
    key: str
    log: Path
    temporary: Path


@dataclass(frozen=True)
class Reload:
    """A model was unloaded and loaded, seconds from the run's begin. `error`: why that failed."""

    model: str
    began: float
    ended: float
    error: str = ""


@dataclass
class Soak:
    """What a run left. `records`: kind → its requests, times from the run's begin."""

    seconds: float
    began: float = field(default_factory=time.monotonic)
    points: dict[tuple[str, str], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    reloads: list[Reload] = field(default_factory=list)
    records: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    stopped: str = ""
    not_idle: dict[str, float] = field(default_factory=dict)

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def add(self, kind: str, name: str, value: float) -> None:
        self.points[kind, name].append((self.now, value))

    def series(self) -> list[Series]:
        """What was looked at."""
        return [
            Series(name, kind, *zip(*points, strict=True)) for (kind, name), points in self.points.items()
        ]

    def left_over(self) -> list[str]:
        """Processes that outlived the reload which was to end them."""
        return [
            f"{name} still runs {points[-1][0] - one.ended:.0f} s after {one.model} was unloaded and loaded"
            for (kind, name), points in self.points.items()
            for one in self.reloads
            if kind == "threads" and name.rpartition(" #")[0] == one.model
            if points[0][0] < one.began and points[-1][0] > one.ended + 2 * LOOK_S
        ]

    def latencies(self, kinds: Sequence[Kind]) -> Iterator[Series]:
        """Percentiles, in ms, of each window that has enough requests."""
        length = self.seconds / WINDOWS
        for kind in kinds:
            for metric in kind.metrics:
                windows: list[list[float]] = [[] for _ in range(WINDOWS)]
                for record in self.records[kind.name]:
                    if record.outcome in kind.ends and 0 <= record.due < self.seconds:
                        windows[int(record.due / length)] += METRICS[metric](record)
                for percent, least in ((50, 5), (95, 20), (99, 50)):
                    found = [
                        (length * (index + 0.5), 1e3 * (percentile(values, percent) or 0.0))
                        for index, values in enumerate(windows)
                        if len(values) >= least
                    ]
                    if found:
                        yield Series(f"{kind.name}, {metric}", f"p{percent}", *zip(*found, strict=True))

    def surprises(self, kinds: Sequence[Kind]) -> tuple[Counter[str], Counter[str]]:
        """Wrong ends with their numbers: those while a model was reloaded, and all others."""
        meanwhile, others = Counter[str](), Counter[str]()
        for kind in kinds:
            for record in self.records[kind.name]:
                if record.outcome not in kind.ends:
                    near = any(
                        one.began - BEFORE_S < record.ended and record.due < one.ended + AFTER_S
                        for one in self.reloads
                    )
                    forgiven = near and record.outcome == "unavailable"
                    (meanwhile if forgiven else others)[
                        f"{kind.name}: {record.outcome}: {record.error[:160]}"
                    ] += 1
        return meanwhile, others


async def soak(server: Server, kinds: Sequence[Kind], live: Kind, minutes: float, rate: float) -> Soak:
    """Runs for so many minutes; `rate` multiplies the rate of every kind but live speech."""
    seconds = 60 * minutes
    rates = [kind.rate * rate for kind in kinds]
    turns = random.Random(0).choices(range(len(kinds)), rates, k=int(1.3 * sum(rates) * seconds) + 100)

    async def asked(number: int) -> Record:
        return await kinds[turns[number]].send(number)

    async def listened(number: int) -> Record:
        record = await live.send(number)
        if record.outcome not in live.ends:
            await asyncio.sleep(1.0)  # refused while a model is reloaded: a client would wait, too
        return record

    gc.collect()
    gc.freeze()  # or each generator would look at all that is there before it begins
    soaked = Soak(seconds)  # its clock and the generators' begin together, but for some milliseconds
    spoken_s = max(1.0, seconds - STREAM_S)  # when the last streams begin
    looking = asyncio.create_task(_look(soaked, server))
    reloading = asyncio.create_task(_reload(soaked, server))
    bursting = asyncio.create_task(_burst(soaked, kinds))
    due = itertools.islice(poisson(sum(rates)), len(turns))
    try:
        mixed, spoken = await asyncio.gather(
            generator.run(asked, due, seconds=seconds, drain_s=DRAIN_S),
            generator.run(listened, Closed(STREAMS), seconds=spoken_s, drain_s=DRAIN_S + STREAM_S),
        )
    finally:
        for task in (looking, reloading, bursting):
            task.cancel()
        ends = await asyncio.gather(looking, reloading, bursting, return_exceptions=True)
    lost = [f"{type(end).__name__}: {end}" for end in ends if isinstance(end, Exception)]
    for record in mixed.records:
        soaked.records[kinds[turns[record.number]].name].append(record)
    soaked.records[live.name] += spoken.records
    soaked.stopped = "; ".join(filter(None, (mixed.stopped, spoken.stopped, *lost)))
    soaked.not_idle = await _settled(server)
    return soaked


async def _look(soaked: Soak, server: Server) -> None:
    """Takes a sample of everything every 5 s."""
    names: dict[int, str] = {}
    while True:
        found = await asyncio.to_thread(lambda: list(processes.tree(server.launcher)))
        total = 0.0
        for pid, name in found:
            one = await asyncio.to_thread(processes.figures, pid)
            if one:  # none of a process that is ending: it would take a number and never be a series
                if pid not in names:
                    earlier = sum(other.rpartition(" #")[0] == name for other in names.values())
                    names[pid] = f"{name} #{1 + earlier}"
                total += one.pop("pss")
                for kind, value in one.items():
                    soaked.add(kind, names[pid], value)
        soaked.add("pss", "all processes", total)
        shared, regions = await asyncio.to_thread(processes.shared_memory, [pid for pid, _ in found])
        soaked.add("shared memory", "/dev/shm", shared)
        soaked.add("regions", "/dev/shm", regions)
        try:
            page = await _metrics(server)
            soaked.add("KV blocks", "held by requests", page.total(KV) or 0.0)
            soaked.add("requests", "active in llm", page.total(ACTIVE) or 0.0)
        except TrimodalError:
            pass  # the next look tells whether the server is gone
        await asyncio.sleep(LOOK_S - soaked.now % LOOK_S)


async def _metrics(server: Server) -> Page:
    return await asyncio.to_thread(fetch, f"http://{server.metrics}/metrics", timeout=10.0)


async def _reload(soaked: Soak, server: Server) -> None:
    """Unloads and loads one model in each window: every one within the warm-up, then the same again.

    So all but one process live from the warm-up to the end.
    """
    for window in range(WINDOWS):
        model = RELOADED[min(window, len(RELOADED) - 1)]
        await asyncio.sleep(max(0.0, soaked.seconds * (window + 0.5) / WINDOWS - soaked.now))
        began, error = soaked.now, ""
        try:
            await asyncio.to_thread(load_again, server, model)
        except InferenceServerException as failure:
            error = str(failure)
        finally:  # also of one in which the run ended: it excuses what met it
            soaked.reloads.append(Reload(model, began, soaked.now, error))


def load_again(server: Server, model: str) -> None:
    """Unloads first: a model with metrics of its own that is loaded over itself ends Triton (2.51)."""
    headers = {GRPC_OPERATOR_HEADER: server.key}
    with InferenceServerClient(server.grpc) as client:
        client.unload_model(model, headers=headers, client_timeout=LOAD_S)
        states = {model: "UNLOADING"}
        while states.get(model) == "UNLOADING":
            time.sleep(0.05)
            index = client.get_model_repository_index(headers=headers, client_timeout=LOAD_S)
            states = {one.name: one.state for one in index.models}
        client.load_model(model, headers=headers, client_timeout=LOAD_S)


async def _burst(soaked: Soak, kinds: Sequence[Kind]) -> None:
    """Asks more at once than the load ever does.

    Threads, connections and buffers that are made on demand and kept are there from then on, so that what
    still grows is a leak. How these requests end is not judged: some may meet a full queue.
    """
    await asyncio.sleep(max(0.0, soaked.seconds * BURST_AT - soaked.now))
    await asyncio.gather(*(kind.send(number) for kind in kinds for number in range(BURST)))


async def _settled(server: Server, patience: float = 10.0) -> dict[str, float]:
    """Gauges that are not 0 some seconds after the last request."""
    until = time.monotonic() + patience
    while True:
        try:
            page = await _metrics(server)
        except TrimodalError as error:
            return {f"metrics page: {error}": 1.0}
        left = {name: value for name in BUSY if (value := page.total(name))}
        if not left or time.monotonic() > until:
            return left
        await asyncio.sleep(0.5)
