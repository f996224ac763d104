"""Asks the launched server over HTTP: is it ready, what is loaded, what is running; and drains it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trimodal.server.launch import OPERATOR_HEADER
from trimodal.triton.stub import count_instances

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_IN_FLIGHT = re.compile(r"trimodal_\w*(?:active|queued)_requests\{")
_ENGINES = re.compile(r"trimodal_llm_engine_ready\{")
_POLL, _SHORT_POLL = 0.1, 0.002  # seconds
_PORT_SECONDS = 10.0
_COPY_SECONDS = 600.0  # links, and a few files that are written anew: slow on a disk of a network
_IDLE_LOOKS = 3  # in a row: the last response may still be on its way out


def drain(
    api: Api, callers: Mapping[str, frozenset[str]], limit: float, *, stop: Callable[[], bool]
) -> list[str]:
    """Refuses new requests and waits up to `limit` seconds, or until `stop()`, for the running ones.

    A model goes as soon as those that call it have no requests: an unload takes Triton 1.3 s, also an idle
    model's. Returns those that still had requests, or were not unloaded yet.
    """
    deadline = time.monotonic() + limit
    waiting, running = set(callers), set[str]()
    idle_looks = dict.fromkeys(callers, 0)
    try:
        while (waiting or running) and not stop():
            free = {name for name in waiting if not callers[name] & (waiting | running)}
            if not (free or running):  # they call each other
                free = set(waiting)
            unloading = {name for name in sorted(free) if _unloads(api, name)}
            waiting, running = waiting - unloading, running | unloading
            with contextlib.suppress(TimeoutError):
                running -= _ended(api, running, idle_looks)
            if time.monotonic() > deadline:
                break
            if waiting or running:
                time.sleep(_POLL)
    except (OSError, http.client.HTTPException):
        pass  # the server is going down by itself: the caller sees to it
    return sorted(waiting | running)


def _unloads(api: Api, model: str) -> bool:
    """Whether an unload was answered in time: Triton holds it back while a model is being loaded."""
    with contextlib.suppress(TimeoutError):
        api.unload(model)
        return True
    return False


def await_unloaded(api: Api, models: Iterable[str], limit: float) -> None:
    """Waits up to `limit` seconds until models that were told to go have closed what they keep.

    One that has a request which Triton (2.51) keeps for good never goes.
    """
    deadline = time.monotonic() + limit
    try:
        while time.monotonic() < deadline:
            states = api.states()
            if all(states.get(name, "UNAVAILABLE") == "UNAVAILABLE" for name in models):
                return
            time.sleep(_POLL)
    except (OSError, http.client.HTTPException):
        pass  # the server is gone


def _ended(api: Api, running: Iterable[str], idle_looks: dict[str, int]) -> set[str]:
    """The models that came to their end: unloaded, or without requests for a while."""
    states, flying, ended = api.states(), api.in_flight(), set()
    for name in running:
        idle_looks[name] = idle_looks[name] + 1 if flying.get(name) == 0 else 0
        if states.get(name, "UNAVAILABLE") == "UNAVAILABLE" or idle_looks[name] >= _IDLE_LOOKS:
            ended.add(name)
    return ended


@dataclass(frozen=True)
class Api:
    """`timeout` in seconds per call. Calls that fail on the way raise OSError or HTTPException."""

    host: str
    http_port: int
    metrics_port: int
    operator_key: str
    timeout: float = 2.0

    def ready(self, model: str | None = None) -> bool:
        """Whether the server, or one model, is ready; False also without an answer."""
        path = f"/v2/models/{model}/ready" if model else "/v2/health/ready"
        return self._answers(path, self.http_port)

    def live(self) -> bool:
        """Whether tritonserver answers at all."""
        return self._answers("/v2/health/live", self.http_port)

    def shows_metrics(self) -> bool:
        """Whether the metrics page answers; its port is opened last."""
        return self._answers("/metrics", self.metrics_port)

    def states(self) -> dict[str, str]:
        """Model → state of the repository index, for models that were ever loaded."""
        # Versions come in their order: one that is ready speaks for the model, else the highest.
        return {
            model: "READY" if "READY" in versions.values() else [*versions.values()][-1]
            for model, versions in self.versions().items()
        }

    def versions(self) -> dict[str, dict[str, str]]:
        """Model → version → state of the repository index, for what was ever loaded."""
        models: dict[str, dict[str, str]] = {}
        for entry in self._index():
            if "state" in entry:
                models.setdefault(entry["name"], {})[entry.get("version", "")] = entry["state"]
        return models

    def _index(self) -> list[dict[str, str]]:
        status, body = self._call("POST", "/v2/repository/index", self.http_port)
        if status != 200:
            raise http.client.HTTPException(json.loads(body)["error"])
        return list(json.loads(body))

    def instances(self, model: str) -> int:
        """How many instances a loaded model has, of all its versions. Raises KeyError: it is not loaded."""
        _, body = self._call("GET", f"/v2/models/{model}/config", self.http_port)
        each = count_instances(json.loads(body)["instance_group"])
        ready = [one for one in self._index() if one["name"] == model and one.get("state") == "READY"]
        return each * len(ready)

    def page_of(self, health_port: int) -> int | None:
        """The HTTP port of the server whose health page is there; None: there is none. It sees no key."""
        try:
            status, body = replace(self, operator_key="")._call("GET", "/refresh", health_port)
            return int(json.loads(body)["http_port"]) if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return None

    def refresh(self, health_port: int) -> str | None:
        """Has a server that reads a copy of its repository make it again. Returns why it could not be made.

        None: it was not made, as the page is another's. Raises TimeoutError: it is still being made.
        """
        try:
            status, body = replace(self, timeout=_COPY_SECONDS)._call("POST", "/refresh", health_port)
        except TimeoutError:
            raise TimeoutError(
                f"the server is still copying its repository after {_COPY_SECONDS:g} s, and goes on with it: "
                "its disk is slow or hangs; try again later"
            ) from None
        if status == 200:
            return ""
        return str(json.loads(body)["error"]) if status == 409 else None

    def load(self, model: str) -> str:
        """Loads a model, however long that takes. Returns Triton's reason where it failed, else nothing."""
        status, body = self._call(
            "POST", f"/v2/repository/models/{model}/load", self.http_port, bounded=False
        )
        return "" if status == 200 else str(json.loads(body)["error"])

    def unload(self, model: str) -> None:
        """Stops a model from taking requests; those it has go on. Returns at once."""
        self._call("POST", f"/v2/repository/models/{model}/unload", self.http_port)

    def in_flight(self) -> dict[str, float]:
        """Model → requests in it, for models with gauges `trimodal_…_{active,queued}_requests`."""
        totals: dict[str, float] = {}
        for sample in self._samples(_IN_FLIGHT):
            model = sample.labels.get("model", "")
            totals[model] = totals.get(model, 0.0) + sample.value
        return totals

    def engines(self) -> dict[tuple[str, str], float]:
        """Model and version → 1 while its engine is open, else 0; where the engine is a process."""
        samples = self._samples(_ENGINES)
        return {(one.labels.get("model", ""), one.labels.get("version", "")): one.value for one in samples}

    def _samples(self, names: re.Pattern[str]) -> Iterator[Sample]:
        """The series of these names on the metrics page, which has hundreds of others."""
        # Here, as no start waits for it: it took 15 ms of the time before tritonserver is started.
        from prometheus_client.parser import text_string_to_metric_families

        lines = filter(names.match, self._metrics().splitlines(keepends=True))
        for family in text_string_to_metric_families("".join(lines)):
            yield from family.samples

    def _metrics(self) -> str:
        return self._call("GET", "/metrics", self.metrics_port)[1].decode()

    def _answers(self, path: str, port: int) -> bool:
        try:
            return self._call("GET", path, port)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def connect(self, port: int | None = None, *, bounded: bool = True) -> http.client.HTTPConnection:
        """A connection to Triton's HTTP port, or another of its ports; opened by its first request."""
        # 0.0.0.0 and :: mean every address when listened on; loopback is one of them.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        timeout = self.timeout if bounded else None
        return http.client.HTTPConnection(host, port or self.http_port, timeout=timeout)

    def _call(self, method: str, path: str, port: int, *, bounded: bool = True) -> tuple[int, bytes]:
        connection = self.connect(port, bounded=bounded)
        try:
            headers = {OPERATOR_HEADER: self.operator_key}
            connection.request(method, path, body=b"{}" if method == "POST" else None, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


class LoadsInTurn(threading.Thread):
    """Loads models one after the other through the repository API; `failure` says why one did not load.

    Triton answers when a model is loaded. The end of the server ends this thread.
    """

    def __init__(self, api: Api, models: Sequence[str]) -> None:
        super().__init__(name="loads in turn", daemon=True)
        self._api, self._models = api, models
        self.failure = ""

    def run(self) -> None:
        try:
            if self._models:
                # Triton says that it has started its HTTP service a moment before it has, and until it is
                # asked for the first load that it is ready: so the looks are frequent.
                deadline = time.monotonic() + _PORT_SECONDS
                while not self._api.ready() and time.monotonic() < deadline:
                    time.sleep(_SHORT_POLL)
            for name in self._models:
                if reason := self._api.load(name):
                    self.failure = f"model {name}: {reason}"
                    return
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.failure = f"tritonserver did not answer while models were loading ({error})"
