"""Requests of every kind, explained on the real server: their parts add up to what the client measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile
import tritonclient.grpc as grpcclient

from tests.e2e.fakes import LLM, png, vision
from trimodal.explain.requests import Question
from trimodal.explain.run import Server, explain
from trimodal.explain.values import Waterfall, four_parts
from trimodal.server.launch import OPERATOR_HEADER
from trimodal.speech.engines.fake import speak

pytestmark = pytest.mark.e2e
VISION = ("decode and resize", "classify", "rank")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    (folder / "red.png").write_bytes(png(1))
    samples, _ = speak(["what", "is", "a", "lambda"])
    soundfile.write(folder / "spoken.wav", samples, 16_000)
    return folder


def adds_up(waterfall: Waterfall) -> None:
    """The parts are the client's total within 1 ms or 2 %, and nothing had to be cut to make them so."""
    least = max(1e-3, 0.02 * waterfall.total)
    assert sum(four_parts(waterfall).values()) == pytest.approx(waterfall.total, abs=least)
    assert waterfall.moved <= least
    assert waterfall.notes == [], "nor has one machine two monotonic clocks"
    assert "Triton's trace" in waterfall.sources


def names(waterfall: Waterfall, place: str) -> list[str]:
    return [one.name for one in waterfall.spans if one.place == place]


def settings(server) -> dict[str, list[str]]:
    headers = {f"triton-grpc-protocol-{OPERATOR_HEADER}": server.operator_key}
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        found = client.get_trace_settings("llm", headers=headers, as_json=True)["settings"]
    return {name: setting["value"] for name, setting in found.items()}


async def test_the_parts_of_every_kind_add_up(fakes, files):
    server = Server(fakes.grpc_url, fakes.operator_key)
    before = settings(fakes)

    llm = await explain(Question("llm", max_tokens=6), server)
    adds_up(llm)
    steps = ["queue", "hand over to the model", "tokenize", "cache lookup, admission", "wait for the engine"]
    assert names(llm, "llm")[:6] == [*steps, "prefill, first token"]
    assert llm.first_text is not None
    assert all(piece.made is not None and piece.made <= piece.received for piece in llm.pieces)

    picture = await explain(Question("vision", image=files / "red.png"), server)
    adds_up(picture)
    assert [place for place in dict.fromkeys(one.place for one in picture.spans) if "vision" in place]
    assert {"queue", *VISION} <= {one.name for one in picture.spans}

    vector = await explain(Question("embedding", "a text"), server)
    adds_up(vector)
    assert names(vector, "embedding") == ["queue", "hand over to the model", "embed", "hand back to Triton"]

    words = await explain(Question("speech", audio=files / "spoken.wav"), server)
    adds_up(words)
    assert words.answer == "“what is a lambda”"
    assert "recognise 1.9 s" in names(words, "speech")

    assert settings(fakes) == before
    assert not list(Path(before["trace_file"][0]).parent.glob("trace.*"))


async def test_without_the_operator_s_key_the_models_own_times_remain(fakes, files):
    llm = await explain(Question("llm", max_tokens=6), Server(fakes.grpc_url))
    assert sum(four_parts(llm).values()) == pytest.approx(llm.total)
    assert "--operator-key-file" in llm.notes[0]
    assert "wait for the engine" in names(llm, "llm")
    picture = await explain(Question("vision", image=files / "red.png"), Server(fakes.grpc_url))
    assert {"server", *VISION} <= {one.name for one in picture.spans}


@pytest.mark.slow
async def test_the_assistant_s_stages_and_what_they_call(serve, files, tmp_path):
    changes = {"llm": LLM, "speech": {"vad": "energy"}, "speech_recognize": {"engine": "fake"}}
    started = serve(("assistant",), changes={**changes, **vision(tmp_path)})
    question = Question("assistant", image=files / "red.png", audio=files / "spoken.wav")
    waterfall = await explain(question, Server(started.grpc_url, started.operator_key))
    adds_up(waterfall)
    stages = [one.name for one in waterfall.spans if one.place == "assistant" and one.depth == 1]
    assert {"hear", "see", "answer"} <= set(stages)
    assert "prefill, first token" in names(waterfall, "llm")
    assert "queue" in names(waterfall, "llm"), "its own request over gRPC is traced too"
    assert any(name.startswith("recognise") for name in names(waterfall, "speech"))


@pytest.mark.slow
def test_the_command_on_a_server_of_its_own(tmp_path, monkeypatch, files):
    from typer.testing import CliRunner

    from trimodal.cli.app import app

    changes = {"llm": LLM}
    given = [f"--set={model}.{name}={value}" for model, one in changes.items() for name, value in one.items()]
    wanted = ["--json", str(tmp_path / "a.json")]
    ended = CliRunner().invoke(app, ["explain", "llm", "a question", *given, *wanted])
    assert ended.exit_code == 0, ended.output
    assert "prefill, first token" in ended.output
    assert json.loads((tmp_path / "a.json").read_text())["sources"][1] == "Triton's trace"
