"""Tunes one pipeline on one server, its own or somebody's, and leaves it as it was."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from trimodal.bench.load import generator
from trimodal.bench.load.slo import NO_SLO, Slo
from trimodal.bench.load.statistics import summarise
from trimodal.bench.targets.taking import Target
from trimodal.client import Client
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import ServerError, SettingsError, TrimodalError
from trimodal.host import host_cpus
from trimodal.repository import Model
from trimodal.server.options import ServerOptions
from trimodal.server.process import Interrupted, TritonServer
from trimodal.tune.fields import file_for, put_text
from trimodal.tune.guard import Guard
from trimodal.tune.knobs import Knob, Pipeline
from trimodal.tune.live import LiveServer, Snapshot, apply
from trimodal.tune.objective import Objective, bounds_to_compute, judge
from trimodal.tune.search import Budget, OnTrial, Result, Round, Search, Trial, TrialError
from trimodal.tune.space import Setting, Space
from trimodal.tune.workload import Workload, kind_of, targets

_GRACE_S = 60.0  # of a round, for answers that are under way at its end


@dataclass(frozen=True)
class TuneSettings:
    """What is tuned, and how it is measured. Raises: SettingsError: two of them contradict each other.

    Attributes:
        knobs: as `model.knob=a,b,c`; the others keep their choices.
        only: the others are not searched.
        seconds, warmup: of one round; after a load the warm-up is twice as long.
        url: of a server that runs; empty: one is started with `options`.
    """

    model: str
    objective: Objective
    options: ServerOptions
    slo: Slo = NO_SLO
    workload: Workload = field(default_factory=Workload)
    budget: Budget = field(default_factory=Budget)
    knobs: tuple[str, ...] = ()
    only: bool = False
    seconds: float = 3.0
    warmup: float = 0.5
    url: str = ""
    operator_key: str = ""

    def __post_init__(self) -> None:
        if self.url and self.options.changes:
            raise SettingsError("--set changes a server that is started here: leave it or --url out")
        if self.only and not self.knobs:
            raise SettingsError("--only needs a --knob")


@dataclass(frozen=True)
class Tuned:
    """What came out. `result` is None when it was interrupted: `trials` are those until then."""

    knobs: tuple[Knob, ...]
    trials: tuple[Trial, ...]
    result: Result | None


class TunedServer:
    """Starts the server that is tuned, and starts it again when it dies; or connects to one that runs."""

    def __init__(self, settings: TuneSettings) -> None:
        self._settings = settings
        self._own: TritonServer | None = None
        self._closing = False
        self.live = self._start()

    @property
    def is_own(self) -> bool:
        return self._own is not None

    @property
    def dead(self) -> bool:
        return self._own is not None and not self._own.alive

    def revive(self) -> None:
        """Starts the server again. Raises: ServerError."""
        self.close()
        self._closing = False
        self.live = self._start()

    def close(self) -> None:
        """Ends the server, if it was started here."""
        self._closing = True
        self.live.close()
        if self._own:
            self._own.kill()

    def _start(self) -> LiveServer:
        if self._settings.url:
            return LiveServer(self._settings.url, self._settings.operator_key)
        self._own = TritonServer(self._settings.options)
        try:
            self._own.start(stop=lambda: self._closing)
        except Interrupted:
            raise ServerError("stopped while the server was starting") from None
        return LiveServer(self._own.grpc_url, self._own.operator_key)


class LiveSystem:
    """Applies settings to the tuned server and sends it the load of a round."""

    def __init__(self, settings: TuneSettings, pipeline: Pipeline, server: TunedServer) -> None:
        self._settings, self._pipeline, self._server = settings, pipeline, server
        self._rounds = 0
        self._fresh = self._doubtful = False
        # A load that was begun goes on when its task is cancelled: nobody else may load until it is over.
        self.loading = threading.Lock()

    def refusal(self, setting: Setting) -> str:
        return self._pipeline.refusal(setting)

    async def apply(self, setting: Setting) -> None:
        why = await asyncio.to_thread(self._load, setting)
        if why:
            raise TrialError(why)
        self._fresh = True

    def _load(self, setting: Setting) -> str:
        models = self._pipeline.models
        needed = {name: model.config for name, model in models.items()}
        with self.loading:
            if self._server.dead:
                self._server.revive()
            wanted = self._pipeline.configs(setting)
            why = apply(self._server.live, wanted, needed=needed, anew=self._doubtful)
            self._doubtful = bool(why)
        return why

    async def measure(self) -> Round:
        settings, self._rounds = self._settings, self._rounds + 1
        warmup = settings.warmup * (2 if self._fresh else 1)
        self._fresh = False
        try:
            found = await asyncio.wait_for(
                self._round(warmup), warmup + settings.seconds + settings.workload.timeout + _GRACE_S
            )
        except asyncio.TimeoutError:
            raise self._failed("the round did not end") from None
        except TrimodalError as error:
            raise self._failed(str(error)) from None
        return found

    async def _round(self, warmup: float) -> Round:
        settings, live = self._settings, self._server.live
        config = self._pipeline.models[settings.model].config
        # New connections: those to a server that was started again lead nowhere.
        async with Client(live.url) as client:
            transport = GrpcTransport(live.url, Timeouts())
            try:
                target = targets(config, client, transport, settings.workload)(self._rounds)
                run = await self._send(target, warmup)
            finally:
                await transport.aclose()
        slo = bounds_to_compute(settings.slo, settings.objective)
        summary = summarise(run, slo)
        if not summary.ok:
            why = next(iter(summary.errors), run.stopped or "no request was answered")
            raise self._failed(f"no request succeeded: {why}")
        judged = judge(summary, settings.slo, settings.objective)
        if judged is None:
            raise SettingsError(f"{settings.objective.name} is not a figure of model {settings.model}")
        return judged

    async def _send(self, target: Target, warmup: float) -> generator.LoadRun:
        settings = self._settings
        return await generator.run(
            target.send,
            settings.workload.arrivals(self._rounds),
            seconds=settings.seconds,
            warmup=warmup,
            drain_s=settings.workload.timeout,
        )

    def _failed(self, why: str) -> TrialError:
        self._doubtful = True
        return TrialError(why, "failed")


def live_pipeline(server: LiveServer, main: str, directory: Path, profile: str) -> Pipeline:
    """The model, the steps of ensembles and what they call, as the server has them.

    Args:
        directory: model repository; models that it lacks keep Triton's knobs alone.

    Raises:
        ServerError: the model is not loaded.
    """
    models: dict[str, Model] = {}
    pending = [main]
    while pending:
        name = pending.pop(0)
        if name in models or (name != main and not server.ready(name)):
            continue
        model = Model(name, directory / name, file_for(directory / name, profile), server.config(name))
        models[name] = model
        pending += [*model.steps, *model.calls]
    return Pipeline(main, models)


def chosen_knobs(pipeline: Pipeline, given: Iterable[str], *, only: bool) -> list[Knob]:
    """The knobs that are searched: the defaults, with what was given instead. Raises: SettingsError."""
    named = {knob.label: knob for knob in map(pipeline.parse, given)}
    found = {} if only else {knob.label: knob for knob in pipeline.defaults(host_cpus())}
    knobs = list((found | named).values())
    if not knobs:
        raise SettingsError(f"nothing to search in model {pipeline.main}: name a --knob")
    return knobs


def tune(
    settings: TuneSettings,
    *,
    tell: OnTrial = lambda trial, best: None,
    began: Callable[[Pipeline, list[Knob]], None] = lambda pipeline, knobs: None,
) -> Tuned:
    """Searches. Ctrl-C ends it early, with what was measured; the server is as before in any case.

    Args:
        began: told what is searched, before the first trial.

    Raises:
        OperatorError: the server cannot be started, reached, measured or put back.
    """
    with ExitStack() as stack:
        server = TunedServer(settings)
        stack.callback(server.close)
        pipeline = live_pipeline(
            server.live, settings.model, settings.options.repository, settings.options.profile
        )
        if not kind_of(pipeline.models[settings.model].config):
            raise SettingsError(
                f"model {settings.model}: no load is known for it; tune the models that it calls"
            )
        knobs = chosen_knobs(pipeline, settings.knobs, only=settings.only)
        began(pipeline, knobs)
        system = LiveSystem(settings, pipeline, server)
        if not server.is_own:
            keep(server.live, pipeline, system.loading, stack)
        space = Space(knobs)
        search = Search(space, pipeline.start(knobs), system, settings.budget, tell=tell)
        result: Result | None = None
        with suppress(KeyboardInterrupt):
            result = asyncio.run(search.run())
        return Tuned(tuple(knobs), search.trials, result)


def keep(live: LiveServer, pipeline: Pipeline, loading: threading.Lock, stack: ExitStack) -> None:
    """Puts the server back when the stack unwinds; where this process is killed, its guard does."""
    snapshot = Snapshot(live, {name: model.config for name, model in pipeline.models.items()})
    guard = Guard(live, snapshot)

    def restore() -> None:
        with loading:
            snapshot.restore()
        guard.release()

    # A second Ctrl-C in the middle of this leaves it to the guard, which was not released then.
    stack.callback(restore)


def new_texts(pipeline: Pipeline, start: Setting, chosen: Setting) -> dict[Path, tuple[str, str]]:
    """File → its text, and the text with the chosen values, of files that change.

    Raises: SettingsError: a file cannot be read, or its layout cannot be edited.
    """
    found: dict[Path, tuple[str, str]] = {}
    for label, value in chosen.items():
        if value == start[label]:
            continue
        model, _, name = label.rpartition(".")
        file = pipeline.models[model].config_file
        try:
            old, text = found.get(file) or (file.read_text(encoding="utf-8"),) * 2
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"{file} cannot be read, so {label}={value} cannot be written: {error}"
            ) from None
        try:
            found[file] = old, put_text(text, name, value)
        except SettingsError as error:
            raise SettingsError(f"{file}: {error}") from None
    return found


def write_texts(texts: dict[Path, tuple[str, str]]) -> None:
    """Writes the new texts. Raises: SettingsError: a file has changed since, or cannot be written."""
    for file, (old, _) in texts.items():
        if file.read_text(encoding="utf-8") != old:
            raise SettingsError(f"{file} was changed while the search ran: nothing is written")
    for file, (_, new) in texts.items():
        try:
            file.write_text(new, encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"{file} cannot be written: {error.strerror}") from None
