"""Live streams against a real server with the fake recogniser: what to say, and ways to send it.

The fake reads words out of tones, so every test knows which words must come, and when they were said.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import BOUND, processes
from tests.e2e.metrics import total
from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.client.decoding import read
from trimodal.client.values import LiveUpdate
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import VOCABULARY, speak

MODELS = ("speech", "speech_recognize")
POLICIES = ("edge", "vad")
Changes = dict[str, dict[str, str]]


def changes(*, batch_ms: float = 0, window_ms: float = 0, **speech: object) -> Changes:
    """The fake recogniser with these times, and settings of `speech`."""
    recognize = {"engine": "fake", "fake_batch_ms": str(batch_ms), "fake_window_ms": str(window_ms)}
    return {
        "speech_recognize": recognize,
        "speech": {"vad": "energy"} | {name: str(value) for name, value in speech.items()},
    }


# A recogniser that takes a second and a half for a batch, and room for three streams.
BUSY = changes(batch_ms=1500, max_streams=3, refuse_lag_s=1)

# A real Whisper, as ./scripts/test builds it; steps that do not widen, so that the audio alone decides.
TINY_EN = {
    "speech_recognize": {"artefact": "ctranslate2-tiny.en"},
    "speech": {"step_s": "1.0", "max_step_s": "1.0"},
}


def sentences(seed: int, count: int) -> tuple[Samples, list[Word]]:
    """`count` random words; one in five is followed by a pause of 0.3 to 1.5 s."""
    rng = np.random.default_rng(seed)
    said: list[str | float] = []
    for index in rng.integers(len(VOCABULARY), size=count).tolist():
        said.append(VOCABULARY[index])
        if rng.random() < 0.2:
            said.append(float(rng.uniform(0.3, 1.5)))
    return speak([*said, 0.5])


def cut(samples: Samples, seed: int, shortest_s: float = 0.02, longest_s: float = 1.0) -> Iterator[Samples]:
    """The samples in chunks of random length; the last may be shorter than a chunk may be."""
    rng = np.random.default_rng(seed)
    at = 0
    while at < len(samples):
        size = round(rng.uniform(shortest_s, longest_s) * SAMPLE_RATE)
        yield samples[at : at + size]
        at += size


def heard(updates: Iterable[LiveUpdate]) -> list[Word]:
    """All words that answers committed."""
    return [word for update in updates for word in update.committed]


def spelled(words: Iterable[Word]) -> list[str]:
    return [word.text for word in words]


class Line(Protocol):
    """A way to a server: the answer to one chunk of one stream."""

    def __call__(
        self, inputs: Mapping[str, Any], sequence: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> LiveUpdate: ...


def _tensors(module: Any, inputs: Mapping[str, Any]) -> list[Any]:
    tensors = []
    for name, array in inputs.items():
        kind = {"float32": "FP32", "int16": "INT16"}[array.dtype.name]
        tensors.append(module.InferInput(name, array.shape, kind))
        tensors[-1].set_data_from_numpy(array)
    return tensors


def _update(result: Any) -> LiveUpdate:
    outputs = result.get_response()
    names = [one["name"] for one in outputs["outputs"]] if isinstance(outputs, dict) else None
    names = names or [one.name for one in outputs.outputs]
    return read({name: result.as_numpy(name) for name in names})


@contextmanager
def over_grpc(server: TritonServer) -> Iterator[Line]:
    """One unary call a chunk."""
    with grpcclient.InferenceServerClient(server.grpc_url) as client:

        def send(inputs: Any, sequence: Any, parameters: Any) -> LiveUpdate:
            tensors = _tensors(grpcclient, inputs)
            return _update(
                client.infer("speech", tensors, client_timeout=BOUND, parameters=parameters, **sequence)
            )

        yield send


@contextmanager
def over_http(server: TritonServer) -> Iterator[Line]:
    """One POST a chunk."""
    with httpclient.InferenceServerClient(server.http_url, network_timeout=BOUND) as client:

        def send(inputs: Any, sequence: Any, parameters: Any) -> LiveUpdate:
            tensors = _tensors(httpclient, inputs)
            return _update(client.infer("speech", tensors, parameters=parameters or None, **sequence))

        yield send


@contextmanager
def over_stream(server: TritonServer) -> Iterator[Line]:
    """One bidirectional gRPC stream for all chunks."""
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))

        def send(inputs: Any, sequence: Any, parameters: Any) -> LiveUpdate:
            client.async_stream_infer(
                "speech", _tensors(grpcclient, inputs), parameters=parameters, **sequence
            )
            result, error = answers.get(timeout=BOUND)
            if error is not None:
                raise error
            return _update(result)

        yield send


LINES: dict[str, Callable[[TritonServer], Any]] = {
    "gRPC": over_grpc,
    "gRPC stream": over_stream,
    "HTTP": over_http,
}


def fresh() -> int:
    """An id that no other stream has."""
    return secrets.randbelow(1 << 62) + 1


class Stream:
    """One stream over a line, chunk by chunk."""

    def __init__(self, line: Line, number: int | None = None, **parameters: Any) -> None:
        self.id = fresh() if number is None else number
        self._send = partial(line)
        self._parameters = parameters
        self._started = False

    def send(self, samples: Samples | None, *, start: bool | None = None, end: bool = False) -> LiveUpdate:
        start = not self._started if start is None else start
        self._started = True
        name = "audio_int16" if samples is not None and samples.dtype == np.int16 else "audio"
        inputs = {} if samples is None else {name: samples.reshape(1, -1)}
        sequence = {"sequence_id": self.id, "sequence_start": start, "sequence_end": end}
        return self._send(inputs, sequence, self._parameters if start else {})

    def news(self, after_s: float) -> LiveUpdate:
        """Words that come without more audio."""
        sequence = {"sequence_id": self.id, "sequence_start": False, "sequence_end": False}
        return self._send({}, sequence, {"after_s": str(after_s)})  # tritonclient knows no floats

    def say(self, chunks: Sequence[Samples]) -> list[LiveUpdate]:
        """The answers to all chunks, the last of them with END."""
        return [self.send(chunk, end=chunk is chunks[-1]) for chunk in chunks]


def settled(server: TritonServer, name: str, labels: str = "") -> float:
    """`total`, with all that was counted until now: models carry their counts over every 50 ms."""
    time.sleep(0.2)
    return total(server, f"trimodal_{name}", labels)


def batches(server: TritonServer) -> tuple[float, float]:
    """Runs of the recogniser, and windows in them, so far."""
    return settled(server, "speech_batch_size_count"), total(server, "trimodal_speech_batch_size_sum")


def memory(server: TritonServer) -> dict[str, float]:
    """Resident MiB of tritonserver and of each model's stub."""
    found = {}
    for pid, line, _ in processes():
        stub = re.search(r"python_backend_stub \S*/(\w+)/\d+/model\.py", line)
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == server.pid and (stub or pid == server.pid):
                # Shared memory is counted once, as tritonserver's.
                pages = Path(f"/proc/{pid}/statm").read_text().split()
                own = int(pages[1]) - (int(pages[2]) if stub else 0)
                found[stub[1] if stub else "tritonserver"] = own * os.sysconf("SC_PAGE_SIZE") / 2**20
    return found


def empty(server: TritonServer) -> bool:
    """Nothing is open, nothing owed, nothing at the recogniser."""
    gauges = ("active_streams", "active_requests", "windows_in_flight")
    return not any(total(server, f"trimodal_speech_{name}") for name in gauges)


def refused(stream: Stream, samples: Samples | None, **flags: bool) -> tuple[str, str]:
    """Status and sentence of a chunk that is refused."""
    with pytest.raises(InferenceServerException) as caught:
        stream.send(samples, **flags)
    return caught.value.status(), caught.value.message()
