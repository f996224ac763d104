"""Answers GET /v1/models: what a caller may ask for, with its aliases; has the llm do what operators want."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from trimodal.client.client import Client
from trimodal.client.transports.base import Parameter, Request, Timeouts, Transport
from trimodal.client.transports.probes import PROBES
from trimodal.errors import ModelNotFound, TrimodalError
from trimodal.gateway.access import Caller
from trimodal.gateway.errors import ApiError
from trimodal.gateway.openai.fields import Body
from trimodal.settings import shorten

LLM = "llm"
_INNER = {"judge", "speech_recognize", "turn", "vision_classify", "vision_preprocess", "vision_rank"}
"""Models that others ask, and no endpoint."""
_FRESH_S = 1.0
_CALL_S = 600.0  # an adapter from a slow disk, weights that come back to a GPU


class AdapterRequest(Body):
    """POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them.

    `lora_path`: where vLLM's clients say that it lies; ours is a directory of that name.
    """

    lora_name: str = Field(min_length=1, max_length=128)
    lora_path: str | None = None
    load_inplace: Literal[False] = False


class ModelList:
    """The models of the servers behind; `created` is when the llm was built, or another was first seen."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: dict[str, int] = {}
        self._adapters: Mapping[str, int] = {}
        self._loading: Collection[str] = ()
        self._asked = -_FRESH_S

    async def all(self, caller: Caller) -> list[dict[str, Any]]:
        """The entries of the models that the caller may use, then the llm's adapters and those of aliases."""
        names = [one.name for one in await self._client.models() if one.name not in _INNER]
        entries = {name: await self._entry(name) for name in names if caller.key.may_use(name)}
        for name, created in (await self.adapters() if LLM in names else {}).items():
            if caller.key.may_use(name) and name not in names:
                base = entries.get(LLM) or await self._entry(LLM)
                entries[name] = {**base, "id": name, "created": created, "parent": LLM}
        aliases = [
            {**entries[model], "id": alias, "root": model}
            for alias, model in caller.aliases.items()
            if model in entries and alias not in entries
        ]
        return [*entries.values(), *aliases]

    async def one(self, caller: Caller, name: str) -> dict[str, Any]:
        """The entry of one of them. Raises: ApiError 404."""
        for entry in await self.all(caller):
            if entry["id"] == name:
                return entry
        raise ApiError(
            404, f"the server has no model '{shorten(name)}'", param="model", code="model_not_found"
        )

    async def adapters(self) -> Mapping[str, int]:
        """The llm's adapters and when they were loaded, at most a second ago."""
        if time.monotonic() - self._asked >= _FRESH_S:
            await self._told()
        return self._adapters

    async def is_adapter(self, name: str) -> bool:
        """Whether the llm has an adapter of that name, or is loading it."""
        return name in await self.adapters() or name in self._loading

    def forget(self) -> None:
        """The adapters are others now."""
        self._asked = -_FRESH_S

    async def _entry(self, name: str) -> dict[str, Any]:
        told = await self._told() if name == LLM else {}
        created = told.get("created") or self._seen.setdefault(name, int(time.time()))
        entry = {"id": name, "object": "model", "created": created, "owned_by": "trimodal", "root": name}
        if "max_model_len" in told:
            entry["max_model_len"] = told["max_model_len"]
        return entry

    async def _told(self) -> Mapping[str, Any]:
        """What the llm says of itself; nothing where it does not answer."""
        try:
            told = json.loads(await self._client.probe(PROBES[LLM]))
        except (TrimodalError, ValueError):
            return {}
        told = told if isinstance(told, dict) else {}
        self._adapters, self._loading = told.get("adapters", {}), told.get("loading", ())
        self._asked = time.monotonic()
        return told


async def operate(servers: Sequence[Transport], key: str, call: str, **more: Parameter) -> None:
    """Has the llm of every server, in each of its versions, do what an operator wants.

    One without an llm is left out, as long as another has one.

    Raises: ApiError where the gateway has no operator's key; TrimodalError: the first that did not.
    """
    if not key:
        raise ApiError(501, "the gateway has no operator's key of the servers: --operator-key-file has it")
    request = Request(LLM, {}, parameters={"operate": call, "operator_key": key, **more})
    ends = await asyncio.gather(*(_operate(server, request) for server in servers), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    if not any(ends):
        raise ModelNotFound(f"the server has no model '{LLM}'")


async def _operate(server: Transport, request: Request) -> bool:
    """Returns whether the server has an llm. Raises: TrimodalError: it did not do it."""
    client = Client(transport=server, timeouts=Timeouts(connect=_CALL_S, silence=_CALL_S))
    listed = await server.models(Timeouts(total=Timeouts.connect))
    if versions := [f"{LLM}@{one.version}" for one in listed if one.name == LLM]:
        for model in versions:
            await client.probe(replace(request, model=model))
        return True
    try:  # without one that is ready the server says why
        await client.probe(request)
    except ModelNotFound:
        return False
    return True
