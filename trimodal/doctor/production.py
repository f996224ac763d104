"""Checks what docs/security.md asks of a server that strangers reach: keys, addresses, files, caches."""

from __future__ import annotations

import os
import resource
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trimodal.doctor.machine import LEAST_FILES
from trimodal.doctor.values import Check, Group
from trimodal.errors import OperatorError
from trimodal.gateway.keys import Key, read_keys
from trimodal.gateway.settings import GatewaySettings, is_loopback
from trimodal.paths import cache_directory
from trimodal.repository import Model
from trimodal.server.installation import find_triton
from trimodal.server.options import ServerOptions
from trimodal.settings import describe, read_as

PRODUCTION = Group("production")
_PTRACE = Path("/proc/sys/kernel/yama/ptrace_scope")
_SHM = Path("/dev/shm")
_OPERATOR_KEYS = ("TRIMODAL_OPERATOR_KEY", "TRIMODAL_OPERATOR_KEY_FILE")
_MINUTE = ("requests_per_minute", "tokens_per_minute", "audio_seconds_per_minute", "images_per_minute")


def check_production(
    options: ServerOptions, models: Iterable[Model], gateway: Mapping[str, Any], environ: Mapping[str, str]
) -> Iterator[Check]:
    """What is not so of the page's list. `gateway`: what its command line says, named as its settings."""
    yield _inside(options)
    try:
        settings = GatewaySettings.model_validate(gateway)
        keys = read_keys(settings.keys) if settings.keys else []
    except ValidationError as error:
        yield PRODUCTION.error("gateway", describe(error, GatewaySettings))
        return
    except OperatorError as error:
        yield PRODUCTION.refused("gateway", error)
        return
    yield from _keys(settings, keys)
    yield _outside(settings)
    yield _prefixes(models, {key.tenant for key in keys})
    yield _operator(environ)
    yield _private()
    yield _regions()
    yield _descriptors()
    yield _version(environ)


def _inside(options: ServerOptions) -> Check:
    found = f"Triton listens on {options.host}"
    if is_loopback(options.host):
        return PRODUCTION.ok("Triton's ports", found)
    remedy = "--host 127.0.0.1, or a firewall that lets the gateway alone in: it asks for no key"
    return PRODUCTION.error("Triton's ports", found, remedy)


def _keys(settings: GatewaySettings, keys: list[Key]) -> Iterator[Check]:
    if settings.keys is None:
        yield PRODUCTION.error("keys", "none are asked for", "trimodal keys add NAME, and --keys")
        return
    mode = settings.keys.stat().st_mode & 0o777
    found = f"{len(keys)} in {settings.keys}, mode {mode:04o}"
    if mode & 0o077:
        yield PRODUCTION.error("keys", found, f"chmod 600 {shlex.quote(str(settings.keys))}")
    elif not keys:
        yield PRODUCTION.error("keys", f"{settings.keys} has none", "trimodal keys add NAME")
    else:
        yield PRODUCTION.ok("keys", found)
    free = [key.name for key in keys if not key.operator and not (key.max_streams and _is_limited(key))]
    told = f"{len(free)} of {len(keys)} keys have no limit a minute or none at once: {', '.join(free[:5])}"
    remedy = "one of them can take all room: trimodal keys add has --max-streams, --tokens-per-minute …"
    yield PRODUCTION.warning("limits", told if free else "every key has some", remedy, when=bool(free))


def _is_limited(key: Key) -> bool:
    return any(getattr(key, name) for name in _MINUTE)


def _outside(settings: GatewaySettings) -> Check:
    if "*" in settings.cors_origins:
        return PRODUCTION.error("gateway", "pages of every site are let in", "name the sites: --cors-origin")
    found = f"listens on {settings.host}"
    remedy = "TLS is not spoken: keys go in clear, unless a proxy in front ends it and alone can connect"
    return PRODUCTION.warning("gateway", found, remedy, when=not is_loopback(settings.host))


def _prefixes(models: Iterable[Model], tenants: set[str]) -> Check:
    shared = [
        model.name
        for model in models
        if model.parameters.get("prefix_cache_scope") == "shared"
        and read_as(bool, model.parameters.get("enable_prefix_caching", "true"), True)
    ]
    if not shared or len(tenants) < 2:
        return PRODUCTION.ok("prefix cache", "no tenant learns of another by it")
    found = f"{shared[0]} shares it between {len(tenants)} tenants, who can tell what others have sent"
    return PRODUCTION.error("prefix cache", found, f"--set {shared[0]}.prefix_cache_scope=tenant")


def _operator(environ: Mapping[str, str]) -> Check:
    """A key that is set must not be shown by `ps`."""
    try:
        scope = int(_PTRACE.read_text())
    except (OSError, ValueError):
        scope = 0
    if scope >= 2 and any(map(environ.get, _OPERATOR_KEYS)):
        remedy = "set none: each start makes a random one, or let nobody else log in here"
        return PRODUCTION.error("operator key", f"ps shows it: ptrace_scope is {scope}", remedy)
    return PRODUCTION.ok("operator key", "is on no command line that ps shows")


def _private() -> Check:
    folder = cache_directory()
    mode = folder.stat().st_mode & 0o777 if folder.exists() else 0o700
    found = f"{folder}, mode {mode:04o}"
    remedy = f"chmod 700 {shlex.quote(str(folder))}: answers that are kept, and logs, are there"
    return PRODUCTION.warning("cache and logs", found, remedy, when=bool(mode & 0o077))


def _regions() -> Check:
    """The models' shared memory holds prompts in clear."""
    mine = (one for one in _SHM.glob("trimodal-*") if one.stat().st_uid == os.getuid())
    open_ones = sorted(one.name for one in mine if one.stat().st_mode & 0o077)
    if open_ones:
        found = f"others may read {open_ones[0]}" + (f" and {len(open_ones) - 1} more" * (len(open_ones) > 1))
        return PRODUCTION.error("/dev/shm", found, "start the server again: it makes them 0600")
    return PRODUCTION.ok("/dev/shm", "nobody else may read a server's regions")


def _descriptors() -> Check:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = most != resource.RLIM_INFINITY and most < LEAST_FILES
    found = f"{'unlimited' if most == resource.RLIM_INFINITY else most} (ulimit -Hn)"
    remedy = f"idle connections take them all: ulimit -Hn {LEAST_FILES} or more"
    return PRODUCTION.warning("open files", found, remedy, when=few)


def _version(environ: Mapping[str, str]) -> Check:
    try:
        is_wheel = find_triton().is_wheel
    except OperatorError:
        is_wheel = False  # told among Triton's own checks
    found = "2.51 of the wheel has flaws that newer ones do not" if is_wheel else "is not the wheel's"
    remedy = "nothing but the gateway may reach it, or serve from NVIDIA's container: docs/gpu.md"
    return PRODUCTION.warning("Triton's version", found, remedy, when=is_wheel)
