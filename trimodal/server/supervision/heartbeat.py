"""Ends a tritonserver that runs and answers nothing: a crash that hangs, a stopped process."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import signal
import threading
import time

from trimodal.server.admin import Api

logger = logging.getLogger(__name__)

BEAT_S = 1.0


class Heartbeat(threading.Thread):
    """Asks tritonserver once a second for a sign of life, and kills its group after `limit_s` without one.

    Ends when `stopping` is set. Only the time of questions without an answer counts: after a sleep of the
    whole machine nothing is ended.

    Args:
        grpc_url: asked where HTTP is silent: each load of a model holds one of Triton's eight HTTP threads
            until it is done (2.51), so eight at once leave none for as long as they take.
    """

    def __init__(self, api: Api, grpc_url: str, pid: int, limit_s: float, stopping: threading.Event) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._api, self._grpc_url, self._pid = api, grpc_url, pid
        self._limit_s, self._stopping = limit_s, stopping
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        try:
            self._watch()
        finally:
            if self._connection:
                self._connection.close()

    def _watch(self) -> None:
        silence = 0.0
        while not self._stopping.wait(BEAT_S):
            asked = time.monotonic()
            if self._answers_http() or answers_grpc(self._grpc_url, self._api.timeout):
                silence = 0.0
                continue
            silence += BEAT_S + min(2 * self._api.timeout, time.monotonic() - asked)
            if silence >= self._limit_s:
                logger.error("tritonserver runs and answers nothing for %.0f s: it is ended", silence)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._pid, signal.SIGKILL)
                return

    def _answers_http(self) -> bool:
        """Over one connection that stays: a server that clients leave no descriptors still answers on it."""
        self._connection = self._connection or self._api.connect()
        try:
            self._connection.request("GET", "/v2/health/live")
            self._connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            return False
        return True


def answers_grpc(url: str, timeout: float) -> bool:
    """Whether tritonserver answers over gRPC within `timeout` seconds."""
    import grpc  # seldom needed

    with grpc.insecure_channel(url, [("grpc.enable_http_proxy", 0)]) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        try:
            return bool(live(b"", timeout=timeout))
        except grpc.RpcError:
            return False
