"""Clients of the trivial models in tests/e2e/repository."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import numpy as np
import tritonclient.grpc as grpcclient

from tests.e2e.conftest import wait_until


def text(name: str, shape: list[int], value: str) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, shape, "BYTES")
    tensor.set_data_from_numpy(np.full(shape, value.encode(), dtype=np.object_))
    return tensor


def echo(client: grpcclient.InferenceServerClient, value: str) -> str:
    answer = client.infer("echo", [text("text_input", [1, 1], value)], client_timeout=10)
    return answer.as_numpy("text_output")[0, 0].decode()


class Ticks:
    """One stream of the ticker: what arrived, and how it ended. It keeps the gRPC stream open."""

    def __init__(self, url: str, count: int) -> None:
        self.numbers: list[int] = []
        self.error = ""
        self.ended = threading.Event()
        self._client = grpcclient.InferenceServerClient(url)
        self._client.start_stream(self._on)
        tensor = grpcclient.InferInput("count", [1], "INT32")
        tensor.set_data_from_numpy(np.array([count], dtype=np.int32))
        self._client.async_stream_infer("ticker", [tensor], enable_empty_final_response=True)

    def _on(self, result: grpcclient.InferResult | None, error: Exception | None) -> None:
        if error:
            self.error = str(error)
            self.ended.set()
        elif result:
            if result.get_response().parameters["triton_final_response"].bool_param:
                self.ended.set()
            else:
                self.numbers.append(int(result.as_numpy("tick")[0]))

    def started(self) -> None:
        wait_until(lambda: len(self.numbers) >= 3, "the first ticks")

    def close(self) -> None:
        self._client.stop_stream(cancel_requests=not self.ended.is_set())
        self._client.close()


def status(url: str, *, data: bytes | None = None, headers: dict[str, str] | None = None) -> int:
    """The HTTP status; 0 when nobody answers."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data=data, headers=headers or {}), timeout=5
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0
