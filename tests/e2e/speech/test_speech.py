"""Live streams on the real server: three transports, two formats, answers at once, windows in one batch.

The recogniser is the fake one, which hears exactly what was said: every word is checked, and its times.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.metrics import total
from tests.e2e.speech.streams import (
    BUSY,
    LINES,
    MODELS,
    POLICIES,
    Stream,
    batches,
    changes,
    cut,
    fresh,
    heard,
    over_grpc,
    over_http,
    sentences,
    speak,
    spelled,
)
from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.client.decoding import read
from trimodal.client.transports.tensors import decode
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

FRAME_S = 0.02  # of Whisper: word times are no finer


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(MODELS, changes())


def check(words: list[Word], said: list[Word], name: str = "") -> None:
    """The same words at the same times."""
    assert spelled(words) == spelled(said), name
    for word, spoken in zip(words, said, strict=True):
        assert abs(word.start - spoken.start) < FRAME_S, name
        assert abs(word.end - spoken.end) < FRAME_S, name


@pytest.mark.parametrize("transport", LINES)
def test_a_request_without_an_id_is_a_recording_of_its_own(server: TritonServer, transport: str) -> None:
    """As perf_analyzer sends them; two at once do not meet."""
    with LINES[transport](server) as line:
        for seed in (4, 5):
            samples, said = sentences(seed, 12)
            update = line({"audio": samples[None, :]}, {}, {"policy": "file"})
            assert update.final
            check(list(update.committed), said)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("transport", LINES)
def test_every_transport_hears_every_word(server: TritonServer, transport: str, policy: str) -> None:
    samples, said = sentences(1, 30)
    with LINES[transport](server) as line:
        for number, form in enumerate((np.float32, np.int16)):
            given = samples if form is np.float32 else (samples * 32767).astype(np.int16)
            chunks = list(cut(given, number, 0.02, 2.0))
            updates = Stream(line, policy=policy).say(chunks)
            check(heard(updates), said)
            assert "".join(update.text for update in updates) == "".join(spelled(said))
            assert [update.final for update in updates] == [False] * (len(chunks) - 1) + [True]
            received = np.cumsum([len(chunk) for chunk in chunks]) / SAMPLE_RATE
            np.testing.assert_allclose([update.received_s for update in updates], received)
            lag = updates[-1].received_s - said[-1].end
            assert updates[-1].lag_s == pytest.approx(lag, abs=FRAME_S)
            assert updates[-1].tentative == ""


def test_an_end_may_be_without_audio_or_with_less_than_a_chunk(server: TritonServer) -> None:
    samples, said = sentences(3, 5)
    with over_http(server) as line:
        for last in (None, np.zeros(0, np.float32), np.zeros(100, np.float32)):
            stream = Stream(line)
            updates = [stream.send(samples), stream.send(last, end=True)]
            check(heard(updates), said)


def test_words_come_while_the_speaker_goes_on(server: TritonServer) -> None:
    """All but the last few are committed before END, and some are guessed before they are committed."""
    samples, said = sentences(4, 60)
    with over_grpc(server) as line:
        stream = Stream(line, policy="edge")
        updates = []
        for chunk in cut(samples, 5, 0.1, 0.1):
            updates.append(stream.send(chunk))
        early, guesses = len(heard(updates)), [update.tentative for update in updates]
        updates.append(stream.send(None, end=True))
    check(heard(updates), said)
    assert early > len(said) * 0.8
    assert any(guesses)


def test_chunks_are_answered_while_the_recogniser_is_busy(serve: Callable[..., TritonServer]) -> None:
    """A window is out for a second and a half; whatever waited for it would be answered after it."""
    server = serve(MODELS, BUSY)
    samples, said = speak(["what", "is", "a", "lambda", 1.0])
    with over_grpc(server) as line:
        stream = Stream(line, policy="vad")
        runs, _ = batches(server)
        updates = [stream.send(samples)]
        wait_until(lambda: total(server, "trimodal_speech_windows_in_flight") == 1, "a window on its way")
        updates += [stream.send(np.zeros(320, np.float32)) for _ in range(10)]
        assert batches(server)[0] == runs, "eleven answers, and the first window is still out"
        assert not heard(updates)
        updates.append(stream.send(None, end=True))
    check(heard(updates), said)


async def test_chunks_sent_without_waiting_are_taken_in_order(server: TritonServer) -> None:
    """A client may send ahead on a gRPC stream: Triton keeps a stream's chunks in line."""
    samples, said = sentences(6, 40)
    chunks = list(cut(samples, 7, 0.02, 0.1))
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    number = fresh()
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for index, chunk in enumerate(chunks):
            tensor = grpcclient.InferInput("audio", [1, len(chunk)], "FP32")
            tensor.set_data_from_numpy(chunk[None])
            client.async_stream_infer(
                "speech",
                [tensor],
                sequence_id=number,
                sequence_start=index == 0,
                sequence_end=index == len(chunks) - 1,
            )
        updates = []
        for _ in chunks:
            result, error = answers.get(timeout=BOUND)
            assert error is None, str(error)
            updates.append(read(decode(result.get_response())))
    received = [update.received_s for update in updates]
    assert received == sorted(received)
    assert len(set(received)) == len(chunks)
    check(heard(updates), said)


@pytest.mark.parametrize("transport", LINES)
def test_the_words_before_a_microphone_is_muted_come_without_more_audio(
    server: TritonServer, transport: str
) -> None:
    samples, said = speak(("hello", "world", "explain", "lambda"))
    samples = samples[: round(said[-1].end * SAMPLE_RATE)]
    with LINES[transport](server) as line:
        stream = Stream(line)
        updates = [stream.send(chunk) for chunk in cut(samples, 1, 0.05, 0.2)]
        while len(heard(updates)) < len(said):
            updates.append(stream.news(updates[-1].received_s))
        updates.append(stream.send(None, end=True))
        assert spelled(heard(updates)) == spelled(said)
        assert updates[-1].received_s == pytest.approx(len(samples) / SAMPLE_RATE)
