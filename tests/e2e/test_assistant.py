"""The assistant on a real server: each stage × (client gone, cancelled, out of time), and what is left of it.

The engines are fakes that take their time. What counts is read from the metrics page: requests of the
assistant and of the llm, streams of speech, all back to zero.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from tests.e2e.conftest import run_python, wait_until
from tests.e2e.fakes import vision
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.metrics import listens, total
from trimodal.client import AskStream, AudioFindings, Client, Delta, ImageFindings, Timeouts
from trimodal.errors import InvalidArgument, RequestError, Unavailable
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import speak

pytestmark = pytest.mark.e2e

CLIENTS = Path(__file__).parents[2] / "clients"
STAGES = ("heard", "saw", "answer")
QUESTION = ["what", "is", "a", "lambda"]
WINDOW_MS, IMAGE_MS, STEP_MS = 400, 1_500, 20
HANGS = 30.0  # seconds
ACTIVE = {
    "assistant": "trimodal_assistant_active_requests",
    "llm": "trimodal_llm_active_requests",
    "llm queue": "trimodal_llm_queued_requests",
    "speech": "trimodal_speech_active_streams",
}
IDLE = dict.fromkeys(ACTIVE, 0.0)


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer], tmp_path_factory: pytest.TempPathFactory) -> TritonServer:
    changes = {
        "llm": {"engine": "fake", "fake_step_ms": str(STEP_MS), "max_num_seqs": "4", "max_queue": "100"},
        "speech": {"vad": "energy", "max_streams": "2"},
        "speech_recognize": {"engine": "fake", "fake_batch_ms": str(WINDOW_MS), "fake_window_ms": "0"},
        **vision(tmp_path_factory.mktemp("vision"), fake_delay_ms=str(IMAGE_MS)),
    }
    server = serve(("assistant",), changes=changes)
    wait_until(lambda: listens(server), "the metrics page")
    return server


@pytest.fixture
async def client(server):
    async with Client(server.grpc_url, timeouts=Timeouts(silence=30)) as client:
        yield client
    wait_until(lambda: active(server) == IDLE, "nothing to be under way", 10)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An image, a spoken question, and speech that takes seconds to hear."""
    folder = tmp_path_factory.mktemp("asked")
    Image.new("RGB", (16, 12), (2, 200, 100)).save(folder / "two.png")
    for name, words in {"short": QUESTION, "long": [*QUESTION, 1.0] * 12}.items():
        samples, _ = speak(words)
        soundfile.write(folder / f"{name}.wav", samples, 16_000)
    return folder


def active(server: TritonServer) -> dict[str, float]:
    """What is under way, by model."""
    return {name: total(server, gauge) for name, gauge in ACTIVE.items()}


def outcome(server: TritonServer, name: str) -> float:
    return total(server, "trimodal_assistant_requests_total", f'"{name}"')


def asked(files: Path, stage: str) -> dict[str, object]:
    """A question whose stage takes a while."""
    return {
        "heard": {"audio": files / "long.wav"},
        "saw": {"text": "what is it?", "image": files / "two.png"},
        "answer": {"text": "tell me everything", "max_tokens": 900},
    }[stage]


async def until(server: TritonServer, **wanted: float) -> None:
    """Until these are under way."""
    began = time.perf_counter()
    while True:
        now = await asyncio.to_thread(active, server)
        waited = time.perf_counter() - began
        if all(now[name] == count for name, count in wanted.items()):
            return
        assert waited < HANGS, f"{now} instead of {wanted}"
        await asyncio.sleep(0.01)


async def under_way(server: TritonServer, stage: str) -> None:
    await until(server, assistant=1)
    if stage == "heard":
        await until(server, speech=1)
    elif stage == "answer":
        await until(server, llm=1)
    await asyncio.sleep(0.1)


async def test_log_probabilities_are_the_llms(server: TritonServer) -> None:
    async with Client(server.grpc_url) as client:
        answer = await client.ask("what is a lambda?", max_tokens=20, top_logprobs=2).answer()
        assert (await client.ask("what is a lambda?", max_tokens=20).answer()).logprobs == ()
    assert len(answer.logprobs) == answer.usage.completion == 20
    assert b"".join(one.bytes for one in answer.logprobs).decode(errors="replace") == answer.text
    assert {len(one.top) for one in answer.logprobs} == {2}


async def test_a_question_of_text_image_and_speech(client: Client, files: Path) -> None:
    stream = client.ask("and now?", image=files / "two.png", audio=files / "short.wav", max_tokens=5)
    items = [item async for item in stream]
    findings = [item for item in items if not isinstance(item, Delta)]
    assert [type(item) for item in items[: len(findings)]] == [type(item) for item in findings]
    assert {type(item) for item in findings} == {AudioFindings, ImageFindings}
    assert stream.heard == "what is a lambda"
    assert stream.labels[0].label == "class 2"
    assert stream.labels[0].score > 0.9
    assert (stream.finish_reason, stream.usage.completion) == ("length", 5)
    assert stream.text == "".join(item.text for item in items if isinstance(item, Delta))
    stages = stream.stages
    assert None not in stages.values()
    assert max(stages["heard"], stages["saw"]) + stages["answer"] <= stages["total"] + 1
    assert stages["heard"] >= WINDOW_MS
    assert stages["saw"] >= IMAGE_MS
    assert stages["total"] < stages["heard"] + stages["saw"] + stages["answer"], "not one after the other"


async def test_an_answer_is_that_of_the_llm(client: Client) -> None:
    alone = await client.complete("hello", max_tokens=20)
    assert (await client.ask("hello", max_tokens=20).answer()).text == alone.text
    samples, _ = speak(QUESTION)
    spoken = await client.ask(audio=samples, max_tokens=20).answer()
    assert spoken.text == (await client.complete("what is a lambda", max_tokens=20)).text


@pytest.mark.parametrize("stage", STAGES)
async def test_the_client_is_gone(server: TritonServer, files: Path, stage: str) -> None:
    before = outcome(server, "cancelled")
    given = asked(files, stage)
    arguments = [str(given["text"])] if "text" in given else []
    for name in ("image", "audio", "max_tokens"):
        arguments += [f"--{name.replace('_', '-')}", str(given[name])] if name in given else []
    program = subprocess.Popen(
        [sys.executable, "-m", "trimodal.cli.app", "ask", *arguments, "--url", server.grpc_url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await asyncio.to_thread(wait_until, lambda: active(server)["assistant"] == 1, "the question", 30)
        await under_way(server, stage)
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait(10)
    await until(server, **IDLE)
    wait_until(lambda: outcome(server, "cancelled") == before + 1, "one more cancelled request", 10)


@pytest.mark.parametrize("stage", STAGES)
async def test_out_of_time(server: TritonServer, client: Client, files: Path, stage: str) -> None:
    stream = client.ask(**asked(files, stage), deadline_ms=700)
    if stage == "answer":  # what was said by then is kept
        answer = await stream.answer()
        assert answer.finish_reason == "deadline"
        assert answer.text
    else:
        with pytest.raises(Unavailable, match=f"^{stage}: deadline_ms passed: not done after 7"):
            await stream.answer()
    await until(server, **IDLE)


async def test_a_stage_that_fails_is_named(client: Client, files: Path) -> None:
    with pytest.raises(InvalidArgument, match="^saw: image: not a JPEG, PNG"):
        await client.ask("what is it?", image=b"nothing", audio=files / "long.wav").answer()
    with pytest.raises(InvalidArgument, match="^answer: max_tokens is 0"):
        await client.ask("a", max_tokens=0).answer()
    with pytest.raises(InvalidArgument, match="^heard: audio: no words are heard in it"):
        await client.ask(audio=np.zeros(16_000, np.float32)).answer()
    with pytest.raises(InvalidArgument, match="^audio: sample [0-9]+ is nan"):
        await client.ask(audio=np.full(16_000, np.nan, np.float32)).answer()
    async with client.listen() as one, client.listen() as other:
        await one.send(np.zeros(1600, np.float32))
        await other.send(np.zeros(1600, np.float32))
        with pytest.raises(Unavailable, match="^heard: speech: 2 streams are open"):
            await client.ask("a", audio=files / "short.wav").answer()


async def test_more_that_wait_than_the_backend_has_threads_for(server: TritonServer, client: Client) -> None:
    """Its 32 threads carry the responses, too: with all of them at the llm's queue nothing would go out."""
    streams = [client.ask(f"question {number}", max_tokens=900) for number in range(60)]
    reading = [asyncio.create_task(read(stream)) for stream in streams]
    await until(server, assistant=60, llm=4)
    with pytest.raises(InvalidArgument, match="at least one of them is needed"):
        await asyncio.wait_for(client.ask("").answer(), HANGS)
    for stream in streams:
        stream.cancel()
    await until(server, **IDLE)
    await asyncio.gather(*reading)
    assert (await client.ask("once more", max_tokens=3).answer()).finish_reason == "length"


async def test_an_engine_that_dies_in_the_middle_is_named(own_server: Callable[..., TritonServer]) -> None:
    changes = {
        "assistant": {"speech": "", "vision": ""},
        "llm": {"engine": "fake", "fake_crash_after": "9"},
    }
    server = own_server(("assistant",), changes=changes)
    assert sorted(server.models) == ["assistant", "llm"], "what it does not call is not loaded"
    async with Client(server.grpc_url, timeouts=Timeouts(silence=30)) as client:
        stream = client.ask("tell me everything", max_tokens=900)
        with pytest.raises(Unavailable, match="^answer: the engine that had this request died"):
            await stream.answer()
        assert stream.text
        with pytest.raises(InvalidArgument, match="image: this assistant has no model for images"):
            await client.ask("what is it?", image=b"x").answer()


@pytest.mark.slow
def test_the_programs(server: TritonServer, files: Path) -> None:
    given = ["--image", files / "two.png", "--audio", files / "short.wav", "--url", server.grpc_url]
    copied = run_python(CLIENTS / "ask.py", *given)
    assert copied.returncode == 0, copied.stderr
    findings, timing = copied.stderr.rstrip().rsplit("\n", 1)
    assert set(findings.split("\n")) - {""} >= {"heard: what is a lambda", "saw: class 2 (1.00)"}
    assert json.loads(timing)["total"] > 0
    command = run_python("-m", "trimodal.cli.app", "ask", *given, "--json", "--stats", "--max-tokens", 10)
    *items, summary = [json.loads(line) for line in command.stdout.splitlines()]
    assert {item["stage"] for item in items} == {"heard", "saw", "answer"}
    assert summary["text"] == "".join(item["delta"] for item in items if item["stage"] == "answer")
    assert summary["text"] == copied.stdout[: len(summary["text"])]
    assert "heard in" in command.stderr
    refused = run_python(CLIENTS / "ask.py", "a", "--image", files / "short.wav", "--url", server.grpc_url)
    assert refused.returncode == 1
    assert "saw: image: a WAV file, not a JPEG, PNG" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert (
        run_python(CLIENTS / "ask.py", "--audio", files / "two.png", "--url", server.grpc_url).returncode == 1
    )


async def read(stream: AskStream) -> None:
    try:
        async for _ in stream:
            pass
    except RequestError as error:
        raise AssertionError(f"{error} before it was cancelled") from error


@pytest.mark.slow
def test_a_program_that_asks_through_the_gateway(server: TritonServer, files: Path) -> None:
    with gateway(server.grpc_url) as url:
        api = ("--url", f"{url}/v1")
        voice, picture = files / "short.wav", files / "two.png"
        asked = run_python(
            CLIENTS / "openai_picture_and_voice.py", "--image", picture, "--audio", voice, *api
        )
        assert asked.returncode == 0, asked.stderr
        assert re.match(rf"heard: {' '.join(QUESTION)}\nsaw: .* \(\d\.\d\d\)\n", asked.stderr)
        assert asked.stdout.strip()
        refused = run_python(CLIENTS / "openai_picture_and_voice.py", "--image", voice, "--text", "a", *api)
    assert refused.returncode == 1
    assert "not a JPEG, PNG" in refused.stderr
