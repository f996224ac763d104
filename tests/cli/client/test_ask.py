import json

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.client.streams.test_ask import TIMING, assistant
from trimodal.cli import common
from trimodal.cli.app import app
from trimodal.client import Client, FakeTransport
from trimodal.errors import InvalidArgument


@pytest.fixture
def fake(monkeypatch):
    transport = FakeTransport(assistant=assistant)
    monkeypatch.setattr(common, "connect", lambda url, silence: Client(transport=transport))
    monkeypatch.delenv("TRIMODAL_URL", raising=False)
    return transport


@pytest.fixture
def recording(tmp_path):
    file = tmp_path / "q.wav"
    soundfile.write(file, np.zeros(16_000), 16_000)
    return str(file)


def run(*arguments, stdin=""):
    return CliRunner().invoke(app, ["ask", *arguments], input=stdin)


def test_the_answer_goes_to_stdout_and_what_was_found_to_stderr(fake, recording):
    result = run("q", "--audio", recording, "--max-tokens", "9", "--tier", "premium", "--stats")
    assert (result.exit_code, result.stdout) == (0, "An answer\n")
    saw, heard, stats = result.stderr.splitlines()
    assert (saw, heard) == ("saw: 7 0.75, 1 0.25", "heard: wörds")
    assert stats.startswith("stop · prompt ")
    assert " · answer 2 tokens · heard in 12 ms · first text after 20 ms · all in 42 ms" in stats
    inputs = fake.requests[0].inputs
    assert set(inputs) == {"text_input", "audio", "max_tokens", "tier"}
    assert inputs["audio"].shape == (16_000,)


def test_json_lines(fake):
    *items, summary = [json.loads(line) for line in run("q", "--json").stdout.splitlines()]
    assert [item["stage"] for item in items] == ["saw", "heard", "answer", "answer"]
    assert items[0]["labels"][0] == {"label": "7", "score": 0.75}
    assert (summary["text"], summary["stages_ms"]) == ("An answer", TIMING)


def test_without_a_question(fake):
    result = run("--image", "a.png")
    assert result.exit_code == 2
    assert "a question is needed" in result.stderr


def test_what_goes_wrong_is_one_sentence(fake, monkeypatch, tmp_path):
    async def refuse(request):
        raise InvalidArgument("saw: image: not a JPEG, PNG or WebP file")
        yield

    for arguments in (["q", "--audio", "none.wav"], ["q", "--image", "none.png"]):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == f"trimodal: {arguments[2]}: no such file or directory\n"
    monkeypatch.setitem(fake.functions, "assistant", refuse)
    assert run("q").stderr == "trimodal: saw: image: not a JPEG, PNG or WebP file\n"
    error = json.loads(run("q", "--json").stdout)
    assert error == {"error": "saw: image: not a JPEG, PNG or WebP file", "code": "INVALID_ARG"}
