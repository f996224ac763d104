"""Loads a Python model again whose process died, and knows what works.

Triton itself (2.51) does neither: the model stays "ready", requests inside a decoupled one never end, others
fail one a second. The requests that the dead process had get no answer from Triton any more: clients that
read the health page (`health_page.py`) end them, and those that ask Triton over HTTP lose their connection.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from trimodal.errors import STARVED
from trimodal.repository import Model
from trimodal.server.admin import Api
from trimodal.server.supervision.connections import end_silent
from trimodal.server.supervision.heartbeat import Heartbeat
from trimodal.server.supervision.stubs import StubWatch

logger = logging.getLogger(__name__)

LOOK_S = 0.25  # for processes that stand still, and those of models that lack some
STARTED_S = 2.0  # for other processes that were started, by all hundred threads of tritonserver
AGAIN_S = 1.0  # between two tries to unload
SILENT_S = 0.5  # HTTP connections that say nothing for so long after a loss are ended
KEPT_S = 0.1  # a state may be this old: many may ask
CALM_S, LONGEST_WAIT_S = 60.0, 30.0
_NO_ENGINE = "its engine is being restarted, or was given up"


class Backoff:
    """No wait at first, then 1, 2, 4 … 30 s, until a start was followed by a calm minute."""

    def __init__(self) -> None:
        self._wait = 0.0  # before the next start, seconds
        self._last = 0.0  # when the last start was, or is to be, by the monotonic clock

    def next(self) -> float:
        """Seconds to wait before the next start."""
        now = time.monotonic()
        if now - self._last > CALM_S:
            self._wait = 0.0
        wait, self._wait = self._wait, min(LONGEST_WAIT_S, max(1.0, 2 * self._wait))
        self._last = now + wait
        return wait


@dataclass
class Losses:
    """What became of one model's processes; guarded by the supervisor's lock."""

    count: int = 0
    # When it was last taken from a dead process: what was sent before and is not answered will not be.
    at: float | None = None
    hanging: bool = False  # its streams over HTTP are still to be ended
    restarting: bool = False
    reason: str = ""  # why it could not be loaded
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True)
class ModelHealth:
    """One model: whether it takes requests and why not, and how its last process was lost.

    The highest version that Triton calls ready decides: it has whoever names none. Routes past it are the
    gateway's to know.
    `versions` is version → why it takes no requests; empty: it does.
    """

    ready: bool
    reason: str = ""
    lost: int = 0
    lost_s_ago: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """Whether the server takes requests for all of its models."""

    ready: bool
    draining: bool
    models: Mapping[str, ModelHealth]


class Supervisor:
    """Owns what is known of one server and of its models' processes."""

    def __init__(self, api: Api, grpc_url: str = "", hang_timeout: float = 0.0) -> None:
        self._api, self._grpc_url = api, grpc_url
        self._hang_timeout = hang_timeout  # seconds; 0: what stands still is left alone
        self._models: Mapping[str, Model] = {}
        self._expected: dict[str, int] = {}  # of Python models: the processes that each has; the thread's
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._stopping = threading.Event()  # nothing is loaded again any more
        self._asking = threading.Lock()  # of many who ask for the health at once one asks Triton
        self._lock = threading.Lock()  # guards all below
        self._losses: dict[str, Losses] = {}
        self._watching = self._draining = False
        self._ended = False  # tritonserver itself
        self._health: tuple[float, Health] | None = None

    def watch(self, pid: int, models: Mapping[str, Model]) -> None:
        """Begins when all `models` are ready; `pid` is tritonserver's.

        Raises: ProcessLookupError: it has ended; RuntimeError: no thread can be started.
        """
        stubs = StubWatch(pid)
        stubs.refresh()
        self._expected = {name: model.instances for name, model in models.items() if model.instances}
        with self._lock:
            self._models = models
            self._losses = {name: Losses() for name in self._expected}
            self._watching = True
        thread = threading.Thread(target=self._watch, args=(stubs, pid), name="supervisor", daemon=True)
        try:
            thread.start()
        except BaseException:
            stubs.close()
            raise
        self._thread = thread
        if self._hang_timeout:
            Heartbeat(self._api, self._grpc_url, pid, self._hang_timeout, self._stopping).start()

    def drain(self) -> None:
        """From now on the server is not ready, whatever its models are, and no model is loaded again."""
        with self._lock:
            self._draining = True
            self._health = None
        self._stopping.set()

    def close(self) -> None:
        """Ends the watch; a load that is under way ends with the server."""
        self._closed.set()
        self._stopping.set()
        if self._thread:
            self._thread.join(5.0)

    @property
    def alive(self) -> bool:
        """Whether tritonserver runs, or still loads its models."""
        return not self._ended

    def lost(self) -> dict[str, float]:
        """Model → seconds since it was taken from a process that died. Asks nobody."""
        now = time.monotonic()
        with self._lock:
            return {name: round(now - one.at, 3) for name, one in self._losses.items() if one.at is not None}

    def health(self) -> Health:
        """What works now; nothing before `watch`. Asks Triton, at most ten times a second."""
        with self._asking:
            with self._lock:
                if not self._watching:
                    return Health(ready=False, draining=self._draining, models={})
                if self._health and time.monotonic() - self._health[0] < KEPT_S:
                    return self._health[1]
            reasons = self._ask()
            with self._lock:
                health = self._summed_up(reasons)
                self._health = time.monotonic(), health
                return health

    def _ask(self) -> dict[str, dict[str, str]]:
        """Model → version → why it takes no requests, as Triton and the models say; empty: it does."""
        try:
            states = self._api.versions()
            engines = self._api.engines()
        except (OSError, http.client.HTTPException, ValueError):
            return {name: {"": "the server does not answer"} for name in self._models}
        reasons = {}
        for name in self._models:
            own = reasons[name] = dict[str, str]()
            found = states.get(name, {"": "UNAVAILABLE"})
            for version in sorted(found, key=lambda one: (len(one), one)):
                own[version] = "" if found[version] == "READY" else f"the model is {found[version].lower()}"
                if not own[version] and engines.get((name, version)) == 0:
                    own[version] = _NO_ENGINE
        return reasons

    def _summed_up(self, reasons: Mapping[str, Mapping[str, str]]) -> Health:
        now = time.monotonic()
        models = {}
        for name, versions in reasons.items():
            asked = [why for why in versions.values() if why in ("", _NO_ENGINE)]
            reason = (asked or [*versions.values()])[-1]
            losses = self._losses.get(name) or Losses()
            if losses.restarting:
                reason = losses.reason or "its process died; it is being loaded again"
            elif self._draining:
                reason = reason or "the server drains"
            ago = None if losses.at is None else round(now - losses.at, 3)
            told = {version: why for version, why in versions.items() if version}
            models[name] = ModelHealth(not reason, reason, losses.count, ago, told)
        ready = not self._draining and all(model.ready for model in models.values())
        return Health(ready, self._draining, models)

    def _watch(self, stubs: StubWatch, pid: int) -> None:
        refreshed = time.monotonic()
        while not self._closed.is_set() and not stubs.ended:
            # An end is told at once, what was started is looked for. Short, as `close` waits for it.
            stubs.wait(LOOK_S)
            lacking = any(stubs.count(name) < count for name, count in self._expected.items())
            if lacking or time.monotonic() - refreshed >= STARTED_S:
                stubs.refresh()
                refreshed = time.monotonic()
            self._end_stopped(stubs)
            self._end_hanging(pid)
            for name in self._expected:
                if not stubs.ended and self._is_lost(name, stubs) and self._begins(name):
                    logger.warning("a process of model %s died: it is loaded again", name)
                    thread = threading.Thread(target=self._replace, args=(name,), name=f"load {name}")
                    thread.daemon = True
                    try:
                        thread.start()
                    except STARVED as error:  # the next look tries again
                        logger.error("model %s cannot be loaded: %s", name, error)
                        self._ends(name)
        if stubs.ended:
            self._stopping.set()
            with self._lock:
                self._ended, self._health = True, None
        stubs.close()

    def _end_stopped(self, stubs: StubWatch) -> None:
        """Kills processes that stand still for too long: their clients are told, as of any loss."""
        for pid, name, seconds in stubs.stopped() if self._hang_timeout else ():
            if seconds >= self._hang_timeout and not self._stopping.is_set():
                logger.error("a process of model %s is stopped for %.0f s: it is killed", name, seconds)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _end_hanging(self, pid: int) -> None:
        """Ends the HTTP connections that have been silent since a process with streams was lost.

        Triton does not tell which model a connection waits for: one that is idle, or waits for another model
        in silence, goes with them.
        """
        now = time.monotonic()
        with self._lock:
            due = {name: one for name, one in self._losses.items() if one.hanging and one.at is not None}
            due = {name: one for name, one in due.items() if now - (one.at or now) >= SILENT_S}
            for one in due.values():
                one.hanging = False
        for name, one in due.items():
            try:
                ended = end_silent(pid, self._api.http_port, now - (one.at or now))
            except OSError as error:
                logger.warning("HTTP streams of %s wait for their own timeout (%s)", name, error.strerror)
            else:
                logger.warning("%d silent HTTP connections were ended, as model %s died", ended, name)

    def _is_lost(self, name: str, stubs: StubWatch) -> bool:
        """Whether a model that Triton calls ready has fewer processes than Triton thinks."""
        running = stubs.count(name)
        if running >= self._expected[name]:
            self._expected[name] = running
            return False
        try:
            # An operator may have unloaded it, or loaded it with other settings.
            if self._api.states().get(name) != "READY":
                return False
            self._expected[name] = self._api.instances(name)
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False
        stubs.refresh()  # ready by now: its processes are there
        return stubs.count(name) < self._expected[name]

    def _begins(self, name: str) -> bool:
        """Marks a model as being loaded again; False: it is already, or the server drains."""
        with self._lock:
            losses = self._losses[name]
            if self._draining or losses.restarting:
                return False
            losses.restarting, losses.reason, self._health = True, "", None
            return True

    def _replace(self, name: str) -> None:
        """Takes a model from its dead process and loads it, as often as it takes or until the server ends."""
        losses = self._losses[name]
        try:
            while self._called(lambda: self._api.unload(name)) is not None:
                if self._stopping.wait(AGAIN_S):
                    return
            with self._lock:
                losses.count, losses.at = losses.count + 1, time.monotonic()
                losses.hanging = self._models[name].config.model_transaction_policy.decoupled
                self._health = None
            # Its callers in a pipeline hold the model that is gone.
            names = [name, *(one.name for one in self._models.values() if name in one.steps)]
            while not self._stopping.wait(losses.backoff.next()):
                reasons = (self._called(partial(self._api.load, one)) for one in names)
                reason = next(filter(None, reasons), None)
                if reason is None:
                    logger.warning("model %s is loaded again", name)
                    return
                logger.error("model %s cannot be loaded: %s", name, reason)
                with self._lock:
                    losses.reason = "its process died, and it cannot be loaded: the server's log says why"
        finally:
            self._ends(name)

    def _ends(self, name: str) -> None:
        """A model is not being loaded any more."""
        with self._lock:
            self._losses[name].restarting, self._health = False, None

    def _called(self, call: Callable[[], str | None]) -> str | None:
        """Why a call of the repository API failed; None: it did not."""
        try:
            return call() or None
        except (OSError, http.client.HTTPException, ValueError, *STARVED) as error:
            return str(error) or type(error).__name__
