"""Packages beside OpenAI's, as their users call them, and what Open WebUI and LibreChat send, as their
sources form it: before the starter set.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import BOUND
from tests.e2e.gateway.calls.starter import JAPAN, SAMPLES, Starter

# Slow: the packages are fetched.
pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

HERE = Path(__file__).parent / "others"
CAT = "data:image/jpeg;base64," + base64.b64encode((SAMPLES / "photos" / "cat.jpg").read_bytes()).decode()
# Open WebUI: routers/openai.py, what a user sets under "Advanced Params", as utils/payload.py casts it.
OPEN_WEBUI = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.0,
    "top_p": 1.0,
    "max_tokens": 24,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "reasoning_effort": "low",
    "seed": 1,
    "stop": ["\n\n"],
}
# LibreChat: endpoints/openai/llm.ts through LangChain's ChatOpenAI.
LIBRECHAT = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "max_tokens": 24,
    "n": 1,
    "user": "66f0c0ffee",
    "parallel_tool_calls": False,
}


def run(*command: str | Path, cwd: Path, limit_s: float) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(1500)  # some hundred packages, fetched and compiled at their first import
def test_langchain_llamaindex_pydantic_ai_instructor_litellm(starter: Starter, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    wanted = HERE / "requirements.txt"
    run(python, "-m", "pip", "install", "--quiet", "-r", wanted, cwd=tmp_path, limit_s=800)
    told = run(python, HERE / "calls.py", starter.url, cwd=tmp_path, limit_s=600)
    assert "FAILED" not in told, told
    assert told.count("ok ") == 28, told


@pytest.mark.timeout(600)
def test_vercels_ai_sdk(starter: Starter, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: Vercel's AI SDK was not tried")
    for name in ("package.json", "calls.mjs"):
        shutil.copy(HERE / name, tmp_path)
    run("npm", "install", "--no-audit", "--no-fund", cwd=tmp_path, limit_s=300)
    told = run("node", "calls.mjs", starter.url, cwd=tmp_path, limit_s=300)
    assert "FAILED" not in told, told
    assert told.count("ok ") == 13, told


@pytest.fixture
def http(starter: Starter) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{starter.url}/v1", timeout=BOUND, trust_env=False) as client:
        yield client


def streamed(http: httpx.Client, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text of a streamed chat, and its usage."""
    text, usage = "", {}
    with http.stream("POST", "/chat/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    return text, usage


@pytest.mark.parametrize("sent", [OPEN_WEBUI, LIBRECHAT], ids=["Open WebUI", "LibreChat"])
def test_a_chat_streams_with_its_usage(http: httpx.Client, sent: dict[str, Any]) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": JAPAN[0]["content"]}]}]
    system = [{"role": "system", "content": "Answer in one short sentence."}]
    text, usage = streamed(http, {"model": "llm", "messages": [*system, *parts], **sent})
    assert "Tokyo" in text
    assert usage["completion_tokens"] > 0


@pytest.mark.parametrize("detail", [{}, {"detail": "auto"}], ids=["Open WebUI", "LibreChat"])
def test_a_picture_beside_the_text(http: httpx.Client, detail: dict[str, str]) -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": CAT, **detail}},
    ]
    body = {"model": "assistant", "messages": [{"role": "user", "content": parts}], "stream": True}
    text, _ = streamed(http, body)
    assert "cat" in text.lower()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"model": "whisper-1"}, "6f2a.wav"),  # Open WebUI's routers/audio.py
        ({"model": "whisper-1", "language": "en"}, "audio.wav"),  # LibreChat's STTService
    ],
)
def test_a_recording_is_written_down(http: httpx.Client, fields: dict[str, str], name: str) -> None:
    recording = (SAMPLES / "speech" / "austen-2-young-man.wav").read_bytes()
    answer = http.post("/audio/transcriptions", data=fields, files={"file": (name, recording, "audio/wav")})
    assert "young man" in answer.json()["text"]
