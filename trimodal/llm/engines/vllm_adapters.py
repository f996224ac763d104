"""Passes adapters, sleep and arguments of the engine on to vLLM, and log probabilities of prompts back."""

from __future__ import annotations

import asyncio
import re
import shlex
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from trimodal.errors import OperatorError
from trimodal.llm.engines.async_runtime import Refused, ranked
from trimodal.llm.engines.protocol import Adapter, CallName, EngineCall, EngineRequest, Logprobs
from trimodal.llm.settings import MAX_ADAPTERS, LlmSettings

_REASON = re.compile(r"Worker failed with error '(.*)', please check", re.DOTALL)
_LORA = ("enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras")


def lora_arguments(settings: LlmSettings) -> dict[str, Any]:
    """EngineArgs of adapters. All that may be loaded stay in host memory: their files are read once."""
    if not settings.max_loras:
        return {}
    slots = settings.max_loras
    if settings.device == "cpu":
        # vLLM (0.32) gives a row without an adapter slot -1 there, which torch takes for the last one: beside
        # others it was answered with that adapter's weights. Slots are filled from the first on, so the last
        # stays empty, also while sequences go on with adapters that were unloaded and replaced.
        slots = 2 * settings.max_loras + 1
    most = max(slots, MAX_ADAPTERS)
    return dict(zip(_LORA, (True, slots, settings.max_lora_rank, most), strict=True))


def own_arguments(settings: LlmSettings, taken: dict[str, Any]) -> dict[str, Any]:
    """What `engine_args` says, read by vLLM's own parser.

    Raises:
        OperatorError: vLLM has no such argument or not with this value, or it is set by our parameters.
    """
    if not settings.engine_args:
        return {}
    from vllm import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise OperatorError(f"parameter 'engine_args': {message}")

    parser = AsyncEngineArgs.add_cli_args(Parser(add_help=False))
    not_given = object()
    names = {action.dest for action in parser._actions}
    try:
        words = shlex.split(settings.engine_args)
    except ValueError as error:
        parser.error(f"{settings.engine_args!r} cannot be read: {error}")
    read = vars(parser.parse_args(words, Namespace(**dict.fromkeys(names, not_given))))
    given = {name: value for name, value in read.items() if value is not not_given}
    set_already = {name for name, value in taken.items() if value is not None}
    if ours := sorted(given.keys() & {*set_already, *_LORA}):
        parser.error(f"{ours[0]} is set by this server's own parameters")
    return given


def calls(settings: LlmSettings, given: dict[str, Any]) -> frozenset[CallName]:
    """What an operator may have this engine do."""
    loading: set[CallName] = {"load_lora_adapter", "unload_lora_adapter"} if settings.max_loras else set()
    sleeping: set[CallName] = {"sleep", "wake_up"} if given.get("enable_sleep_mode") else set()
    return frozenset(loading | sleeping)


def lora_request(adapter: Adapter) -> Any:
    """vLLM's own, of a new name each time: its prefix cache tells adapters apart by name and path alone."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(f"{adapter.name}#{adapter.id}", adapter.id, adapter.path)


def prompt_logprobs(
    request: EngineRequest, given: Sequence[Mapping[int, Any] | None] | None
) -> tuple[Logprobs | None, ...]:
    """Ours for vLLM's of a prompt, whose first entry is None; nothing where they were not asked for."""
    top = request.sampling.prompt_logprobs
    if top is None or not given:
        return ()
    pairs = zip(request.prompt_ids, given, strict=True)
    return tuple(ranked([id], [one], top)[0] if one else None for id, one in pairs)


class VllmCalls:
    """Performs operators' calls. An adapter that is unloaded goes with the last sequence that uses it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._users: Counter[int] = Counter()
        self._leaving: set[int] = set()  # and those that have left
        self._dropped = False  # the weights, by a sleep of level 2
        self._turn = asyncio.Lock()

    async def call(self, call: EngineCall) -> None:
        """One after the other, as they came. Raises what vLLM does."""
        async with self._turn:
            await self._perform(call)

    async def _perform(self, call: EngineCall) -> None:
        if call.name == "sleep":
            # vLLM ignores what comes while it sleeps: a second level 1 brings no weights back.
            self._dropped = self._dropped or call.level == 2  # noqa: PLR2004
            await self._engine.sleep(call.level)
        elif call.name == "wake_up" and self._dropped:
            await self._engine.wake_up(["weights"])
            await self._engine.collective_rpc("reload_weights")
            await self._engine.wake_up(["kv_cache"])
            self._dropped = False
        elif call.name == "wake_up":
            await self._engine.wake_up()
        elif call.adapter and call.name == "load_lora_adapter":
            try:
                await self._engine.add_lora(lora_request(call.adapter))
            except Exception as error:
                reason = _REASON.search(str(error))
                raise ValueError(reason[1] if reason else str(error)) from error
        elif call.adapter:
            self._leaving.add(call.adapter.id)
            await self._remove(call.adapter.id)

    @asynccontextmanager
    async def using(self, adapter: Adapter | None) -> AsyncIterator[None]:
        """A sequence uses it while this lasts. Raises Refused: it has gone, perhaps with its files.

        vLLM would load it again by itself, for good, and end where it cannot.
        """
        if adapter is None:
            yield
            return
        if adapter.id in self._leaving and not self._users[adapter.id]:
            raise Refused(f"the adapter '{adapter.name}' was unloaded before it began")
        self._users[adapter.id] += 1
        try:
            yield
        finally:
            self._users[adapter.id] -= 1
            await self._remove(adapter.id)

    async def _remove(self, id: int) -> None:
        if id in self._leaving and not self._users[id]:
            del self._users[id]
            await self._engine.remove_lora(id)
