"""Carries requests to one of several Tritons: the one that has their beginning, has room, and answers.

A stream of speech stays where it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trimodal import logs
from trimodal.client.errors import ConnectError, ConnectionLost, may_have_begun
from trimodal.client.transports.base import Request, Responses, Tensors, Timeouts, Transport, named
from trimodal.client.values import Model
from trimodal.errors import InvalidArgument, ModelNotFound, RequestError, Unavailable
from trimodal.gateway.tables import WatchedFile
from trimodal.gateway.upstreams.affinity import beginning, most_running, ranked
from trimodal.gateway.upstreams.failover import Failover, FailoverResponses, no_server
from trimodal.gateway.upstreams.file import read_upstreams
from trimodal.gateway.upstreams.routes import (
    ASSISTANT,
    Shares,
    key_of,
    models_asked,
    read_routes,
    version_for,
)
from trimodal.gateway.upstreams.server import Upstream

logger = logging.getLogger(__name__)

LOOK_S = 0.5  # who asks /ready is told of a death within a second
_FIRST_S = 2.0  # for all models' first answers; one that comes later does not answer until then


class Upstreams:
    """Several servers as one transport; owns what is known of them. Of one event loop.

    Args:
        servers: their addresses, or the file that has them. Raises: SettingsError where it cannot be read.
        routes: the file that shares models' requests out among their versions; None: Triton's highest.
    """

    def __init__(
        self,
        servers: Sequence[str] | Path,
        connect: Callable[[str], Transport],
        routes: Path | None = None,
    ) -> None:
        self._connect = connect
        self._file: WatchedFile[dict[str, bool]] | None = None
        self._servers: dict[str, Upstream] = {}
        self._leaving: dict[str, Upstream] = {}  # whose requests still run
        if isinstance(servers, Path):
            self._file = WatchedFile(servers, read_upstreams)
            self._set(self._file.contents)
        else:
            self._set(dict.fromkeys(servers, False))
        self._routes = WatchedFile(routes, read_routes) if routes else None
        self.routed: Counter[tuple[str, str]] = Counter()  # model and version → requests
        # Stream of speech → its server, and the model with the version that it began with.
        self._speech: dict[Any, tuple[Upstream, str]] = {}
        self._missing: dict[str, list[str]] = {}  # versions that routes name, and no server has
        self._turn = 0
        self._looked = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        # Requests that went to the server of their beginning, and those for which it had no room.
        self.kept = self.passed_on = 0

    @property
    def servers(self) -> list[Upstream]:
        return [*self._servers.values(), *self._leaving.values()]

    @property
    def state(self) -> dict[str, bool]:
        """Every model that is served, and whether servers that take requests answer for it.

        Where a route shares it out: whether the versions that answer have more than half of its requests. A
        canary that hangs takes nobody else's server away, through models that need it either.
        """
        return {name: self._is_ready(self._able(), name) for name in sorted(self.known)}

    @property
    def known(self) -> set[str]:
        """The names of the models that are served."""
        return {name for server in self._servers.values() for name in server.versions}

    @property
    def versions(self) -> dict[str, dict[str, bool]]:
        """Model → version → whether a server that takes requests answers; of models that have several.

        A version that a route names counts, loaded or not.
        """
        known: dict[str, dict[str, bool]] = {}
        for server in self._servers.values():
            for name, versions in server.versions.items():
                for version in versions:
                    answers = server.answers(name, version) and not server.draining
                    own = known.setdefault(name, {})
                    own[version] = own.get(version, False) or answers
        for name, unloaded in self._unloaded().items():
            known.setdefault(name, {}).update(dict.fromkeys(unloaded, False))
        return {name: versions for name, versions in sorted(known.items()) if len(versions) > 1}

    @property
    def routes(self) -> Mapping[str, Shares]:
        """Model → version → percent of its requests; of models that have a route."""
        return self._routes.contents if self._routes else {}

    def start(self, timeouts: Timeouts) -> None:
        """Begins to look after the servers."""
        self._watching = asyncio.ensure_future(self._watch(timeouts))

    async def looked(self) -> None:
        """Waits until every server was looked at."""
        await self._looked.wait()

    async def infer(self, request: Request, timeouts: Timeouts) -> Tensors:
        if "sequence_id" in request.parameters:
            return await self._hear(request, timeouts)
        request = self._to_version(request)
        failover = Failover(self._order(request.model), request, timeouts)
        outputs, _ = await failover.ask(lambda one: one.infer(failover.request, failover.timeouts))
        return outputs

    async def stream(self, request: Request, timeouts: Timeouts) -> Responses:
        key = beginning(request) if len(self._servers) > 1 else b""
        request = self._to_version(request)
        asked = [model for model in models_asked(request) if model in self.routes]
        if versions := {model: self._version_for(model, request) for model in asked}:
            self.routed.update(versions.items())
            request = replace(request, parameters={**request.parameters, "versions": json.dumps(versions)})
        order = self._order(request.model, key, versions)
        responses = FailoverResponses(Failover(order, request, timeouts))
        await responses.open()
        return responses

    def each(self) -> list[Transport]:
        """Every server by itself, for what all of them are to do."""
        return [server.transport for server in self._servers.values()]

    async def ready(self, model: str, timeouts: Timeouts) -> bool:
        await self.looked()
        state = self.state
        return state.get(model, False) if model else bool(state) and all(state.values())

    async def models(self, timeouts: Timeouts) -> list[Model]:
        timeouts = replace(timeouts, total=timeouts.connect)  # one that hangs holds nobody else's list
        able = self._able()
        asked = [server for server in able if server.is_reached is not False] or able
        questions = [server.transport.models(timeouts) for server in asked]
        answers = await asyncio.gather(*questions, return_exceptions=True)
        lists = [one for one in answers if not isinstance(one, BaseException)]
        if not lists:
            raise no_server()
        models = {model.name: model for found in lists for model in found}
        return [models[name] for name in sorted(models)]

    async def max_batch_size(self, model: str, timeouts: Timeouts) -> int:
        failover = Failover(self._order(model), Request(model, {}), timeouts)
        size, _ = await failover.ask(lambda one: one.max_batch_size(model, failover.timeouts))
        return size

    async def aclose(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        for server in self.servers:
            await server.aclose()

    async def _watch(self, timeouts: Timeouts) -> None:
        timeouts = replace(timeouts, total=timeouts.connect)
        looks: dict[Upstream, asyncio.Task[None]] = {}
        failures = logs.LoopFailures(logger)
        try:
            while True:
                try:
                    await self._look(looks, timeouts)
                except Exception as error:  # without the next look no death, no file's change is noticed
                    failures.tell("a look at the servers failed", error)
                await asyncio.sleep(LOOK_S)
        finally:
            for look in looks.values():
                look.cancel()
            await asyncio.gather(*looks.values(), return_exceptions=True)

    async def _look(self, looks: dict[Upstream, asyncio.Task[None]], timeouts: Timeouts) -> None:
        """Reads the files, has each server looked at whose last look is over, and closes those that left."""
        if self._file and self._file.changed():
            self._set(self._file.contents)
        if self._routes and self._routes.changed():
            logger.info("requests go by other routes: %s", self._routes.contents)
        for server in self._servers.values():
            if server not in looks or looks[server].done():  # never two at a time
                looks[server] = asyncio.ensure_future(server.look(timeouts))
        if not self._looked.is_set():
            await asyncio.wait(looks.values())
            await asyncio.gather(*(server.answered(_FIRST_S) for server in looks))
            self._looked.set()
        self._leave_hanging()
        before, self._missing = self._missing, self._unloaded()
        if self._missing and self._missing != before:
            logger.warning("routes name versions that no server has loaded: %s", self._missing)
        for server in [one for one in self._leaving.values() if not one.running]:
            del self._leaving[server.address]
            if look := looks.pop(server, None):
                look.cancel()
            await server.aclose()

    def _leave_hanging(self) -> None:
        """Has requests without an answer sent elsewhere that servers have whose last look had none in time.

        A stopped server keeps its connections: they would wait for as long as a model may be silent. Where no
        server is reached it may be this process that stood still.
        """
        if any(server.is_reached for server in self._able()):
            for server in self._servers.values():
                if server.hangs:
                    server.give_up()

    def _set(self, draining: Mapping[str, bool]) -> None:
        """Replaces the servers: address → whether it is to get no new requests. What runs goes on."""
        for address in list(self._servers):
            if address not in draining:
                self._leaving[address] = self._servers.pop(address)
        for address, drains in draining.items():
            if address not in self._servers:
                back = self._leaving.pop(address, None)
                self._servers[address] = back or Upstream(address, self._connect(address))
            if drains != self._servers[address].draining:
                logger.info("%s %s", address, "drains" if drains else "is used again")
            self._servers[address].draining = drains

    def _able(self) -> list[Upstream]:
        return [server for server in self._servers.values() if not server.draining]

    def _holding(self, needed: Mapping[str, str]) -> list[Upstream]:
        """The servers that take requests, without those that lack a model or version that another one has.

        Those would say NOT_FOUND while that one is drained or restarts.
        """
        for wanted in (needed, dict.fromkeys(needed, "")):  # a version that nobody has may be loaded just now
            if any(server.has(wanted) for server in self._servers.values()):
                return [server for server in self._able() if not server.versions or server.has(wanted)]
        return self._able()

    def _is_ready(self, servers: Sequence[Upstream], model: str) -> bool:
        shares = self.routes.get(model, {"": 100.0})
        loaded = self._loaded(model)
        shares = {one: share for one, share in shares.items() if not one or one in loaded}

        def answered(version: str) -> bool:
            return any(
                # What other models ask inside Triton knows no routes: the highest version.
                one.answers(model, version, partial(self._is_ready, [one]) if model == ASSISTANT else None)
                for one in servers
            )

        answering = sum(share for version, share in shares.items() if answered(version))
        return answering > sum(shares.values()) / 2

    def _order(
        self, model: str, key: bytes = b"", asked: Mapping[str, str] | None = None
    ) -> Sequence[Upstream]:
        """The servers that may be asked, best first.

        Args:
            key: the request's beginning.
            asked: versions of other models that the request needs.
        """
        needed = dict([named(model), *(asked or {}).items()])
        able = self._holding(needed)
        if len(able) < 2:
            return able

        # A look may be old: where no server is known to answer, all are tried.
        def answers(server: Upstream) -> bool:
            whole = server.answers(*named(model), lambda need: server.answers(need, needed.get(need, "")))
            return whole and all(server.answers(name, version) for name, version in (asked or {}).items())

        able = list(filter(answers, able)) or able
        # A late one lives, perhaps: it is asked where no other answers.
        quick = [server for server in able if not server.is_late(*named(model))] or able
        late = [server for server in able if server not in quick]
        return [*self._sorted(quick, key), *sorted(late, key=lambda server: server.running)]

    def _sorted(self, able: Sequence[Upstream], key: bytes) -> Sequence[Upstream]:
        if key:
            return self._by_beginning(key, able)
        self._turn += 1
        turned = [able[(self._turn + index) % len(able)] for index in range(len(able))]
        return sorted(turned, key=lambda server: server.running)

    def _by_beginning(self, key: bytes, able: Sequence[Upstream]) -> Sequence[Upstream]:
        order = [self._servers[address] for address in ranked(key, [server.address for server in able])]
        most = most_running(sum(server.running for server in able), len(able))
        with_room = sorted(order, key=lambda server: server.running >= most)
        if with_room[0] is order[0]:
            self.kept += 1
        else:
            self.passed_on += 1
        return with_room

    def _to_version(self, request: Request) -> Request:
        """The request to the version that its model's route has for it; as it is where there is no route."""
        if request.model not in self.routes:
            return request
        version = self._version_for(request.model, request)
        if "probe" not in request.parameters:  # nobody's request: the gateway asks what the model can do
            self.routed[request.model, version] += 1
            logs.note(version=version)
        return replace(request, model=f"{request.model}@{version}")

    def _version_for(self, model: str, request: Request) -> str:
        """The version of a routed model for a request. Raises: Unavailable where none of them is loaded."""
        shares, loaded = self.routes[model], self._loaded(model)
        if loaded and not loaded & shares.keys():
            raise Unavailable(f"{model}: no version is loaded that its requests are to go to", 1.0)
        return version_for(shares, model, key_of(request), loaded or None)

    def _loaded(self, model: str) -> set[str]:
        """The versions of a model that servers that take requests have, whether they answer or not."""
        return {version for server in self._able() for version in server.versions.get(model, ())}

    def _unloaded(self) -> dict[str, list[str]]:
        """Model → the versions that its route names and that no server has, of models that are there."""
        found = {}
        for model, shares in self.routes.items():
            loaded = self._loaded(model)
            if loaded and (missing := [version for version in shares if version not in loaded]):
                found[model] = missing
        return found

    async def _hear(self, request: Request, timeouts: Timeouts) -> Tensors:
        """Sends a chunk of speech to where its stream is."""
        stream = request.parameters["sequence_id"]
        begins, ended = (bool(request.parameters.get(f"sequence_{name}")) for name in ("start", "end"))
        if begins or stream not in self._speech:
            request = self._to_version(request)
            failover = Failover(self._order(request.model), request, timeouts)
            try:
                outputs, server = await failover.ask(
                    lambda one: one.infer(failover.request, failover.timeouts)
                )
            except BaseException as error:
                # It may have begun there all the same: its END is to find it.
                if begins and not ended and failover.asked is not None and may_have_begun(error):
                    self._keep(stream, failover.asked, request.model)
                raise
            if begins and not ended:
                self._keep(stream, server, request.model)
            return outputs
        server, model = self._speech[stream]
        request = replace(request, model=model)
        try:
            return await server.transport.infer(request, timeouts)
        except (ConnectError, ConnectionLost) as error:
            ended = True
            server.failed(model, error)
            raise
        except RequestError as error:
            its_own = isinstance(error, InvalidArgument) and not isinstance(error, ModelNotFound)
            ended = ended or not its_own  # the chunk's fault: the stream goes on
            raise
        finally:
            if ended and stream in self._speech:
                del self._speech[stream]
                server.running -= 1

    def _keep(self, stream: Any, server: Upstream, model: str) -> None:
        self._speech[stream] = server, model
        server.running += 1
