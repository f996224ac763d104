"""Performs operators' calls: adapters come and go, the engine sleeps and wakes up."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from trimodal.errors import ArtefactError, InvalidArgument, RequestError, Unavailable
from trimodal.llm.engine_core.supervisor import EngineSupervisor
from trimodal.llm.engines.protocol import Adapter, EngineCall, Output
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.request.outputs import Delta, Note, Sink
from trimodal.llm.settings import ADAPTER_NAME, MAX_ADAPTER_NAME, MAX_ADAPTERS, LlmSettings
from trimodal.paths import setting_path

logger = logging.getLogger(__name__)

ASLEEP = "the engine sleeps: an operator's wake_up wakes it"
_CONFIG = "adapter_config.json"
_AGAIN_S = 5.0  # between looks for the files of adapters that could not be read


@dataclass(eq=False)
class PendingCall:
    """One that the engine has; sent as a RequestState is. Without a sink the server itself made it."""

    call: EngineCall
    sink: Sink | None
    request_id: str = ""
    sending: bool = False
    result: Delta | RequestError | None = None

    def take(self) -> Delta | RequestError | None:
        result, self.result = self.result, None
        return result

    def sent(self, item: Delta | RequestError, metrics: LlmMetrics) -> None:
        """Nothing is counted."""

    def break_off(self, error: RequestError) -> None:
        """Its client is gone; what was done is done."""


class OperatorCalls:
    """Knows the adapters and whether the engine sleeps. Guarded by the service's lock.

    Raises: ArtefactError: an adapter of the settings is not there.
    """

    def __init__(self, settings: LlmSettings, engine: EngineSupervisor, ids: Iterator[int]) -> None:
        self._settings = settings
        self._engine = engine
        self._ids = ids
        self._pending: dict[int, PendingCall] = {}
        self._loaded: dict[str, tuple[Adapter, int]] = {}  # and when
        # Adapters that the next engine is to have, or this one: why their files cannot be read.
        self._lost: dict[str, str] = {}
        self._look_at = 0.0  # for these files, by the monotonic clock
        self.asleep = False
        on_cpu = settings.engine == "vllm" and settings.device == "cpu"
        self._most = settings.max_loras if on_cpu else MAX_ADAPTERS
        try:
            names = settings.lora_modules.split()
            if len(names) > self._most:
                raise InvalidArgument(f"it names {len(names)} adapters, and {self._most} may be loaded")
            for name in names:
                self._give(EngineCall(0, "load_lora_adapter", self._adapter(name)), None)
        except InvalidArgument as error:
            raise ArtefactError(f"parameter 'lora_modules': {error}") from None

    @property
    def adapters(self) -> dict[str, int]:
        """Name → when it was loaded, in seconds since 1970."""
        return {name: loaded for name, (_, loaded) in self._loaded.items()}

    def loading(self, *, asked: bool = True) -> list[str]:
        """Names of adapters that are being loaded, with those or without that clients asked for.

        So are those whose files could not be read when the engine was opened anew: they may be back.
        """
        calls = [one.call for one in self._pending.values() if asked or not one.sink]
        names = [one.adapter.name for one in calls if one.adapter and one.name == "load_lora_adapter"]
        return [*names, *self._lost]

    def adapter(self, name: str) -> Adapter | None:
        """The adapter that a request names; None: it names none.

        Raises:
            InvalidArgument: there is none.
            Unavailable: the engine is loading it.
        """
        if not name:
            return None
        if name in self.loading():
            raise Unavailable(f"lora_name is '{name}', which is being loaded")
        if name not in self._loaded:
            known = ", ".join(self._loaded) or "none"
            raise InvalidArgument(f"lora_name is '{name}', which is not loaded: {known} is")
        return self._loaded[name][0]

    def begin(self, wanted: OperatorCall, sink: Sink, request_id: str) -> None:
        """Gives the engine a call; its end comes to `take`.

        Raises:
            InvalidArgument: the engine has no such call, or there is no such adapter.
        """
        name, info = wanted.name, self._engine.client.info
        if name not in info.calls:
            why = "max_loras is 0" if "lora" in name else "it was opened without --enable-sleep-mode"
            raise InvalidArgument(f"operate: engine '{info.name}' has no {name} as it runs here: {why}")
        if (length := len(wanted.lora_name)) > MAX_ADAPTER_NAME:
            raise InvalidArgument(f"lora_name has {length} characters: at most {MAX_ADAPTER_NAME}")
        adapter = None
        self._lost.pop(wanted.lora_name, None)  # it is the operator's now
        if name == "load_lora_adapter":
            taken = {*self._loaded, *self.loading()}
            if wanted.lora_name in taken:
                raise InvalidArgument(f"lora_name is '{wanted.lora_name}', which is loaded already")
            if len(taken) >= self._most:
                raise InvalidArgument(f"lora_name: {self._most} adapters are loaded, which is the most")
            adapter = self._adapter(wanted.lora_name)
        elif name == "unload_lora_adapter":
            adapter = self.adapter(wanted.lora_name)
            del self._loaded[wanted.lora_name]  # what runs goes on with it
        self.asleep = self.asleep or name == "sleep"
        self._give(EngineCall(0, name, adapter, wanted.level), sink, request_id)

    def take(self, output: Output) -> PendingCall | None:
        """The call that an output ends; None: it is not one of a call, or its maker waits for nothing."""
        pending = self._pending.pop(output.id, None)
        if pending is None:
            return None
        call, failed = pending.call, output.finish_reason == "error"
        if call.name == "load_lora_adapter" and call.adapter and not failed:
            self._loaded[call.adapter.name] = (call.adapter, int(time.time()))
        if call.name == ("sleep" if failed else "wake_up"):
            self.asleep = any(one.call.name == "sleep" for one in self._pending.values())
        if failed and pending.sink is None and call.adapter:
            logger.error("the adapter '%s' was not loaded: %s", call.adapter.name, output.error)
        told = {"lora_name": call.adapter.name} if call.adapter else {}
        done = Delta(json.dumps({call.name: "done"} | told), "done", note=Note())
        return self._ended(pending, InvalidArgument(f"{call.name}: {output.error}") if failed else done)

    def lost(self, reason: str) -> list[PendingCall]:
        """The engine died: those that wait for what it did."""
        self._lost = dict.fromkeys([*self._loaded, *self.loading(asked=False)], "")
        self._loaded = {}
        pending, self._pending = list(self._pending.values()), {}
        return [one for call in pending if (one := self._ended(call, Unavailable(reason)))]

    def reopened(self) -> None:
        """Loads the adapters anew, each with a number of its own."""
        self.asleep, self._look_at = False, 0.0
        self.load_lost()

    def load_lost(self) -> None:
        """Loads the adapters that an engine before had, and whose files can be read by now."""
        now = time.monotonic()
        if not self._lost or now < self._look_at:
            return
        self._look_at = now + _AGAIN_S
        lost, self._lost = self._lost, {}
        for name, before in lost.items():
            try:
                self._give(EngineCall(0, "load_lora_adapter", self._adapter(name)), None)
            except InvalidArgument as error:
                self._lost[name] = str(error)
                if str(error) != before:
                    logger.error("an adapter is lost until its files are back: %s", error)

    def _ended(self, pending: PendingCall, result: Delta | RequestError) -> PendingCall | None:
        pending.result = result
        return pending if pending.sink else None

    def _give(self, call: EngineCall, sink: Sink | None, request_id: str = "") -> None:
        id = next(self._ids)
        given = EngineCall(id, call.name, call.adapter, call.level)
        self._pending[id] = PendingCall(given, sink, request_id)
        self._engine.client.call(given)

    def _adapter(self, name: str) -> Adapter:
        """The adapter of a directory, with a number that none had.

        Raises InvalidArgument: it is none, or cannot be read.
        """
        directory = self._settings.version_directory / setting_path(self._settings.lora_directory) / name
        file = f"{name}/{_CONFIG} in the directory of adapters"
        try:
            if not re.fullmatch(ADAPTER_NAME, name) or not (directory / _CONFIG).is_file():
                raise InvalidArgument(f"lora_name is '{name}': there is no {file}")
        except OSError as error:  # a stale handle, or no right to look
            raise InvalidArgument(f"lora_name is '{name}': {file}: {error.strerror}") from None
        # For the engine's own process, which has a locale.
        return Adapter(name, next(self._ids), os.fsencode(directory.resolve()).decode(errors="replace"))
