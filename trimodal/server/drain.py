"""Lets running requests finish. Ends no process: the caller does afterwards.

Every model is unloaded through the repository API, those that call others before
those that they call (speech before speech_recognize). From then on readiness is
false on HTTP and gRPC, new requests are refused, and streams go on to their end.
(Triton's own SIGTERM closes HTTP to new connections but keeps gRPC ready and serving
until the last HTTP connection ends, so a probe over gRPC would send more work.)

Triton keeps a model loaded as long as a client holds a gRPC stream open on which it
once asked that model, idle or not. A model that reports its requests in flight
(gauges `trimodal_…_active_requests`, `…_queued_requests` with a `model` label) is
therefore done when they are zero; any other only when Triton has unloaded it.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterable, Sequence

from trimodal.server.api import Api

_POLL = 0.1  # seconds
_IDLE_LOOKS = 3  # in a row: the last response may still be on its way out


def drain(api: Api, waves: Sequence[Iterable[str]], limit: float, *, stop: Callable[[], bool]) -> list[str]:
    """Refuses new requests and waits up to `limit` seconds for the running ones.

    Args:
        waves: every loaded model; those of a wave go when the wave before has no requests any more.
        stop: polled; True ends the waiting.

    Returns:
        the models that still had requests, empty when all came to their end.
    """
    deadline = time.monotonic() + limit
    running: set[str] = set()
    try:
        for wave in waves:
            running |= set(wave)
            _drain_wave(api, running, deadline, stop)
    except (OSError, http.client.HTTPException):
        pass  # the server is going down by itself: the caller sees to it
    return sorted(running)


def _drain_wave(api: Api, running: set[str], deadline: float, stop: Callable[[], bool]) -> None:
    """Unloads the models `running` and takes those out of it that came to their end."""
    idle_looks = dict.fromkeys(running, 0)
    for name in sorted(running):
        api.unload(name)
    while running and not stop():
        states = api.states()
        flying = api.in_flight()
        for name in sorted(running):
            idle = flying.get(name) == 0
            idle_looks[name] = idle_looks[name] + 1 if idle else 0
            if states.get(name, ("UNAVAILABLE", ""))[0] == "UNAVAILABLE" or idle_looks[name] >= _IDLE_LOOKS:
                running.discard(name)
        if running and time.monotonic() > deadline:
            break
        if running:
            time.sleep(_POLL)
