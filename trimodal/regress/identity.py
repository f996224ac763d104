"""Reads what serves: Triton's version, and of each ready model its version and parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trimodal.client import Timeouts
from trimodal.regress.values import ServedModel, Server

# redis://user:password@host: a baseline is a file that people commit.
# Up to the last @ of the authority: a password may hold one, too.
_SECRET = re.compile(r"(://)[^/?#\s]*@")


async def identify(url: str, models: Iterable[tuple[str, str]], timeout: float) -> Server:
    """Asks the server for its version and its models' parameters.

    Args:
        url: as for `Client`.
        models: (name, version) of those to ask about.
        timeout: seconds for each answer.

    Raises:
        TrimodalError: it does not answer.
    """
    from trimodal.client.transports.grpc import GrpcTransport

    timeouts = Timeouts(total=timeout)
    triton = GrpcTransport(url, timeouts, connections=1)
    try:
        about, running = await triton.server(timeouts)
        served = {}
        for name, version in models:
            config = await triton.config(f"{name}@{version}", timeouts)
            found = {key: value.string_value for key, value in config.parameters.items()}
            served[name] = ServedModel(version=version, parameters=plain(found))
    finally:
        await triton.aclose()
    return Server(name=about, version=running, models=served)


def plain(parameters: Mapping[str, str]) -> dict[str, str]:
    """Parameters in order of their names, without names and passwords in URLs."""
    return {name: _SECRET.sub(r"\1…@", parameters[name]) for name in sorted(parameters)}


def differences(before: Server, after: Server) -> list[str]:
    """What the two servers differ in, a short text each: "llm.max_num_seqs 16 → 32"."""
    changes = []
    if (before.name, before.version) != (after.name, after.version):
        changes.append(f"server {before.name} {before.version} → {after.name} {after.version}")
    for name in sorted(before.models.keys() & after.models.keys()):
        old, new = before.models[name], after.models[name]
        if old.version != new.version:
            changes.append(f"{name} version {old.version} → {new.version}")
        for key in sorted(old.parameters.keys() | new.parameters.keys()):
            was, now = old.parameters.get(key), new.parameters.get(key)
            if was != now:
                changes.append(f"{name}.{key} {_shown(was)} → {_shown(now)}")
    return changes


def _shown(value: str | None) -> str:
    return "unset" if value is None else value or '""'
