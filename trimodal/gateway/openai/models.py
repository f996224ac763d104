"""Answers GET /v1/models: what a caller may ask for, with its aliases."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from trimodal.client.client import Client
from trimodal.client.transports.probes import PROBES
from trimodal.errors import TrimodalError
from trimodal.gateway.access import Caller
from trimodal.gateway.errors import ApiError

_INNER = {"judge", "speech_recognize", "turn", "vision_classify", "vision_preprocess", "vision_rank"}
"""Models that others ask, and no endpoint."""


class ModelList:
    """The models of the servers behind; `created` is when the llm was built, or another was first seen."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: dict[str, int] = {}

    async def all(self, caller: Caller) -> list[dict[str, Any]]:
        """The entries of the models that the caller may use, then those of its aliases."""
        names = [one.name for one in await self._client.models() if one.name not in _INNER]
        entries = {name: await self._entry(name) for name in names if caller.key.may_use(name)}
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
        raise ApiError(404, f"the server has no model '{name}'", param="model", code="model_not_found")

    async def _entry(self, name: str) -> dict[str, Any]:
        told = await self._told(name) if name == "llm" else {}
        created = told.get("created") or self._seen.setdefault(name, int(time.time()))
        entry = {"id": name, "object": "model", "created": created, "owned_by": "trimodal", "root": name}
        return entry | {key: told[key] for key in ("max_model_len",) if key in told}

    async def _told(self, name: str) -> Mapping[str, Any]:
        """What a model says of itself; nothing where it does not answer."""
        try:
            told = json.loads(await self._client.probe(PROBES[name]))
        except (TrimodalError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}
