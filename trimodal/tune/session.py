"""Tunes one pipeline: a server of its own for each setting that is measured, and the files for what won."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]

from trimodal.bench.load import generator
from trimodal.bench.load.slo import NO_SLO, Slo
from trimodal.bench.load.statistics import summarise
from trimodal.client import Client
from trimodal.client.async_iteration import wait_within
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import OperatorError, SettingsError, TrimodalError
from trimodal.files import replace_file
from trimodal.host import host_cpus
from trimodal.repository import select_models
from trimodal.server.options import FREE_PORTS, ServerOptions
from trimodal.server.overlay import ServedRepository, overlay
from trimodal.server.process import Interrupted, TritonServer
from trimodal.tune.edge import find_edge, find_most
from trimodal.tune.fields import file_for, put_text
from trimodal.tune.knobs import Knob, Pipeline, Setting, Space
from trimodal.tune.mix import CUT_S, MixedLoad, Part
from trimodal.tune.objective import STREAMS, Objective, figure_of, judge
from trimodal.tune.search import Budget, OnTrial, Result, Round, Search, Trial, TrialError
from trimodal.tune.workload import STREAM_S, TIMEOUT_S, Workload, kind_of, target_of

WARM_UP_S = 1.0  # of a round, also of one that is no server's first: all count the same requests
_GRACE_S = 60.0  # of a round, for answers that are under way at its end


@dataclass(frozen=True)
class TuneSettings:
    """What is tuned, and how it is measured. Raises: SettingsError: two of them contradict each other.

    Attributes:
        model: that is tuned; of a mix its name.
        mix: models that are tuned together; the objective is then the load that keeps the SLO of each.
        options: of the servers that are started.
        knobs: as `model.knob=a,b,c`; the others keep their choices.
        only: the others are not searched.
        seconds: of one round.
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
    mix: tuple[Part, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(part.model for part in self.mix) or (self.model,)

    @property
    def bounds(self) -> str:
        """All bounds as text."""
        return "; ".join(map(str, self.mix)) or self.slo.text

    @property
    def figures(self) -> list[str]:
        """The figures that the bounds are on."""
        return [name for part in self.mix for name in part.figures] or list(map(figure_of, self.slo.bounds))

    def __post_init__(self) -> None:
        if self.only and not self.knobs:
            raise SettingsError("--only needs a --knob")


@dataclass(frozen=True)
class Tuned:
    """What came out. `result` is None when it was interrupted: `trials` are those until then."""

    knobs: tuple[Knob, ...]
    trials: tuple[Trial, ...]
    result: Result | None


class TunedServer:
    """Starts a server with a setting, and sends it the load of a round.

    Args:
        repository: as it is served without a setting.
        folder: for what is served with one.
    """

    def __init__(self, settings: TuneSettings, pipeline: Pipeline, repository: Path, folder: Path) -> None:
        self._settings, self._pipeline = settings, pipeline
        self._repository, self._folder = repository, folder
        self._server: TritonServer | None = None
        self._served: Mapping[str, Any] = {}
        self._log: Path | None = None  # one for all of them
        self._starts = self._round = self._runs = 0
        self._edge: float | None = None
        self._fresh = self._closing = False

    def refusal(self, setting: Setting) -> str:
        return self._pipeline.refusal(setting)

    async def apply(self, setting: Setting) -> None:
        try:
            await asyncio.to_thread(self._serve, self._pipeline.configs(setting))
        except (OperatorError, OSError) as error:  # OSError: the disk for its folder is full
            raise TrialError(" ".join(str(error).split())) from None
        except asyncio.CancelledError:
            self._closing = True  # the start that is under way on its thread ends
            raise

    def close(self) -> None:
        """Ends the server."""
        if self._server:
            self._server.kill()
            self._server = None

    def _serve(self, configs: Mapping[str, Any]) -> None:
        """Starts a server with these configurations, unless it runs. Raises: OperatorError."""
        if self._server and self._server.alive and configs == self._served:
            return
        self.close()
        self._starts += 1
        options = self._settings.options
        target = self._folder / f"setting-{self._starts}"
        overlay(self._repository, target, dict.fromkeys(configs, {}), options.profile)
        for name, config in configs.items():
            file_for(target / name, options.profile).write_text(text_format.MessageToString(config), "utf-8")
        options = replace(options, repository=target, engines=None, changes={}, log=self._log, **FREE_PORTS)
        server = TritonServer(options)
        with suppress(Interrupted):
            server.start(stop=lambda: self._closing)
            self._server, self._served, self._log, self._fresh = server, configs, server.log_path, True

    async def measure(self, number: int) -> Round:
        self._round = number
        if self._fresh and self._first_count:
            await self._run(1.0)  # to warm up
        if self._settings.mix:
            found = await find_edge(self._run, self._edge)
        elif self._settings.objective == STREAMS:
            found = await find_most(self._run, self._edge)
        else:
            return await self._run(1.0)
        self._edge = found.gain
        return found

    async def _run(self, factor: float) -> Round:
        """One run of the load; of a mix so many times it, else of so many streams. Raises: TrialError."""
        self._runs += 1
        # Of streams: until as many are under way as will be.
        warmup = 0.0 if self._first_count else max(WARM_UP_S, self._stream_s)
        self._fresh = False
        assert self._server
        url = self._server.grpc_url
        try:
            # New connections: those to the server of another setting lead nowhere.
            transport = GrpcTransport(url, Timeouts())
            async with Client(transport=transport) as client:
                measured = self._mixed if self._settings.mix else self._alone
                return await measured(client, transport, warmup, factor)
        except asyncio.TimeoutError:
            raise self._failed("the round did not end") from None
        except TrimodalError as error:
            raise self._failed(str(error)) from None

    def _targets(self, client: Client, transport: GrpcTransport) -> list[generator.Send]:
        settings, stream_s = self._settings, CUT_S if self._settings.mix else STREAM_S
        configs = [self._pipeline.models[name].config for name in settings.models]
        return [
            target_of(
                config, client, transport, settings.workload, stream_s, sizes=self._round, texts=self._runs
            )
            for config in configs
        ]

    async def _mixed(self, client: Client, transport: GrpcTransport, warmup: float, factor: float) -> Round:
        settings = self._settings
        load = MixedLoad(settings.mix, self._targets(client, transport), factor, self._round)
        run = await self._send(load.send, load.arrivals(), warmup, load.seconds(settings.seconds))
        return load.judge(run)

    @property
    def _is_speech(self) -> bool:
        return any(kind_of(self._pipeline.models[name].config) == "speech" for name in self._settings.models)

    @property
    def _first_count(self) -> bool:
        """Whether the first requests count: live streams of a closed loop, which has no others in a round."""
        return self._is_speech and not (self._settings.mix or self._settings.workload.rate)

    @property
    def _stream_s(self) -> float:
        """Seconds that a live stream takes to be spoken, at most; 0: there are none."""
        pace = self._settings.workload.pace if self._is_speech else 0.0
        return (CUT_S if self._settings.mix else STREAM_S) / pace if pace else 0.0

    async def _alone(self, client: Client, transport: GrpcTransport, warmup: float, factor: float) -> Round:
        settings, clients = self._settings, int(factor)
        (send,) = self._targets(client, transport)
        streams = settings.objective == STREAMS
        arrivals = generator.Closed(clients) if streams else settings.workload.arrivals(self._round)
        run = await self._send(send, arrivals, warmup, settings.seconds)
        if run.stopped and clients == 1:  # where it dies of several streams, fewer may be kept
            raise self._failed(run.stopped)
        if streams and not run.counted:  # each client's first answer took longer: it counts
            run = replace(run, began=0.0, seconds=run.began + run.seconds)
        summary = summarise(run, settings.slo, (settings.objective.statistic,))
        if not summary.requests and not run.stopped:
            took = max((record.latency for record in run.records), default=0.0)
            slow = f", and an answer took {took:.3g} s" if took else ""
            raise self._failed(
                f"no request began in the {settings.seconds:g} s that count{slow}: --seconds gives more"
            )
        if not summary.ok and clients == 1:  # where several are refused, fewer may be kept
            why = next(iter(summary.errors), "no request was answered")
            raise self._failed(f"no request succeeded: {why}")
        value = factor if streams else settings.objective.value(summary)
        if value is None:
            raise SettingsError(f"{settings.objective.name} is not a figure of model {settings.model}")
        for bound, verdict in zip(settings.slo.bounds, summary.verdicts, strict=True):
            if verdict.value is None and summary.ok:
                raise self._failed(f"{bound.text}: its answers have no such figure")
        return judge(summary, settings.slo, settings.objective, value)

    async def _send(
        self, send: generator.Send, arrivals: generator.Arrivals, warmup: float, seconds: float
    ) -> generator.LoadRun:
        rest = TIMEOUT_S + self._stream_s
        run = generator.run(send, arrivals, seconds=seconds, warmup=warmup, drain_s=rest)
        return await wait_within(run, warmup + seconds + rest + _GRACE_S)

    def _failed(self, why: str) -> TrialError:
        self._served = {}  # it may hang: the next setting gets another server
        return TrialError(why, "failed")


def read_pipeline(models: Sequence[str], options: ServerOptions, repository: Path) -> Pipeline:
    """The models, the steps of ensembles and what they call, as `repository` serves them.

    Its files are those of the repository that `options` names: there a setting is written.

    Raises:
        ServerError: there is no such model, or a configuration is not valid.
        SettingsError: no load is known for one of them.
    """
    found = select_models(repository, models, options.profile)
    for model in models:
        if not kind_of(found[model].config):
            raise SettingsError(f"model {model}: no load is known for it; tune the models that it calls")
    own = options.repository.absolute()
    files = {name: file_for(own / name, options.profile) for name in found}
    return Pipeline(
        " + ".join(models), {name: replace(one, config_file=files[name]) for name, one in found.items()}
    )


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
    """Searches. Ctrl-C ends it early, with what was measured.

    Args:
        began: told what is searched, before the first trial.

    Raises:
        OperatorError: the server cannot be started or measured.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-tune-") as folder:
        repository = ServedRepository(settings.options, Path(folder)).path
        pipeline = read_pipeline(settings.models, settings.options, repository)
        settings.workload.check({name: kind_of(pipeline.models[name].config) for name in settings.models})
        knobs = chosen_knobs(pipeline, settings.knobs, only=settings.only)
        began(pipeline, knobs)
        with closing(TunedServer(settings, pipeline, repository, Path(folder))) as server:
            search = Search(Space(knobs), pipeline.start(knobs), server, settings.budget, tell=tell)
            result: Result | None = None
            with suppress(KeyboardInterrupt):
                result = asyncio.run(search.run())
            return Tuned(tuple(knobs), search.trials, result)


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
    """Writes the new texts, each file whole or not at all.

    Raises: SettingsError: a file has changed since, or cannot be written.
    """
    try:
        for file, (old, _) in texts.items():
            if file.read_text(encoding="utf-8") != old:
                raise SettingsError(f"{file} was changed while the search ran: nothing is written")
        for file, (_, new) in texts.items():
            replace_file(file, new.encode())
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(f"{file} cannot be read or written: {why}") from None
