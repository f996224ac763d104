"""Keeps connections to this machine away from the proxy that a company's environment names."""

from __future__ import annotations

from collections.abc import MutableMapping

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_VARIABLES = ("no_proxy", "NO_PROXY")  # readers prefer the first; some know only one


def exempt_loopback(environment: MutableMapping[str, str]) -> None:
    """Adds this machine's names to `no_proxy`, for gRPC, urllib, httpx and libcurl.

    With `http_proxy` alone all of them ask the proxy for 127.0.0.1: the server was ready, and every request
    to it failed.
    """
    given = {name.strip() for key in _VARIABLES for name in environment.get(key, "").split(",")} - {""}
    if "*" not in given:
        environment.update(dict.fromkeys(_VARIABLES, ",".join([*sorted(given - {*_LOOPBACK}), *_LOOPBACK])))
