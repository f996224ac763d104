"""The command on the fake speech model, which hears the same words in every recording."""

import asyncio
import io
import json
import os
import signal

import numpy as np
import pytest
import soundfile
from rich.console import Console
from typer.testing import CliRunner

from trimodal.cli import common
from trimodal.cli.app import app
from trimodal.cli.client import live_view
from trimodal.client import Client, FakeTransport, LiveUpdate, Word
from trimodal.client.transports.fake import FakeSpeech
from trimodal.errors import InvalidArgument, Unavailable

RATE = 16_000
WORDS = [("what", 0.1, 0.3), ("is", 0.4, 0.6), ("ä", 1.0, 1.1), ("lambda", 1.2, 1.8)]


@pytest.fixture
def speech():
    return FakeSpeech(*WORDS)


@pytest.fixture
def fake(monkeypatch, speech):
    transport = FakeTransport(speech=speech)
    monkeypatch.setattr(common, "connect", lambda url, silence: Client(transport=transport))
    monkeypatch.delenv("TRIMODAL_URL", raising=False)
    return transport


@pytest.fixture
def talk(tmp_path):
    soundfile.write(tmp_path / "talk.wav", np.zeros((22_050 * 2, 2)), 22_050)
    return tmp_path / "talk.wav"


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, ["transcribe", *map(str, arguments)], input=stdin)


def test_plain_text(fake, talk, speech):
    result = run(talk, "--language", "en", "--prompt", "p")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "what is ä lambda\n", "")
    first = fake.requests[0].parameters
    assert {first[name] for name in ("policy", "language", "prompt")} == {"file", "en", "p"}
    assert sum(array.size for request in fake.requests for array in request.inputs.values()) == 2 * RATE
    assert not speech.streams
    assert fake.closed


def test_a_path_with_brackets(fake, talk):
    """It was taken for markup: a traceback."""
    (talk.parent / "talks[").mkdir()
    moved = talk.rename(talk.parent / "talks[" / "2024].wav")
    result = run(moved)
    assert (result.exit_code, result.stdout) == (0, "what is ä lambda\n")


def test_the_formats(fake, talk):
    assert run(talk, "--format", "srt").stdout == "1\n00:00:00,100 --> 00:00:01,800\nwhat is ä lambda\n"
    assert run(talk, "--format", "vtt").stdout.startswith("WEBVTT\n\n00:00:00.100 --> 00:00:01.800\n")
    value = json.loads(run(talk, "--format", "json").stdout)
    assert (value["file"], value["text"], value["seconds"]) == (str(talk), "what is ä lambda", 2.0)
    assert value["words"][3] == {"word": " lambda", "start": 1.2, "end": 1.8, "probability": 0.9}
    assert run(talk, "--format", "docx").exit_code == 2


def test_several_files(fake, talk, tmp_path):
    soundfile.write(tmp_path / "cut.flac", np.zeros(RATE), RATE)
    result = run(talk, tmp_path / "cut.flac", "--policy", "vad")
    assert result.stdout == f"==> {talk} <==\nwhat is ä lambda\n==> {tmp_path / 'cut.flac'} <==\nwhat is\n"
    assert fake.requests[0].parameters["policy"] == "vad"
    lines = run(talk, tmp_path / "cut.flac", "--format", "json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["what is ä lambda", "what is"]
    refused = run(talk, tmp_path / "cut.flac", "--format", "srt")
    assert refused.exit_code == 2
    assert "--out FOLDER" in refused.stderr


def test_written_to_files(fake, talk, tmp_path):
    result = run(talk, "--format", "vtt", "--out", tmp_path / "a.vtt")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "what is ä lambda" in (tmp_path / "a.vtt").read_text(encoding="utf-8")
    soundfile.write(tmp_path / "cut.flac", np.zeros(RATE), RATE)
    assert run(talk, tmp_path / "cut.flac", "--format", "srt", "--out", tmp_path / "a" / "new").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "a" / "new").iterdir()) == ["cut.srt", "talk.srt"]
    assert run(talk, "--out", tmp_path / "a" / "new").exit_code == 0
    assert (tmp_path / "a" / "new" / "talk.txt").read_text(encoding="utf-8") == "what is ä lambda\n"


def test_a_name_that_is_no_text_of_this_system_is_written_escaped(fake, talk, tmp_path):
    """It was a traceback, after the work."""
    recording = talk.rename(tmp_path / os.fsdecode(b"caf\xe9.wav"))
    result = run(recording, "--format", "json", "--out", tmp_path / "a.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["file"] == str(recording)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "FILE"),
        (["{talk}", "--out", "{tmp}/no/where.txt"], "there is no folder"),
        (["{talk}", "{talk}", "--out", "{tmp}/new"], "would both be"),
        (["{talk}", "{tmp}/b.wav", "--out", "{talk}"], "a folder is needed"),
        (["{talk}", "--chunk-ms", "10"], "chunk-ms"),
        (["{talk}", "--live", "--speed", "0"], "speed"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(fake, talk, tmp_path, arguments, words):
    result = run(*(part.format(talk=talk, tmp=tmp_path) for part in arguments))
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", "").split())
    assert fake.requests == []


def test_a_bad_file_is_reported_and_the_others_are_written(fake, talk, tmp_path):
    (tmp_path / "bad.wav").write_text("no audio")
    result = run(tmp_path / "bad.wav", tmp_path / "missing.mp3", talk, "--format", "json")
    assert result.exit_code == 1
    bad, missing, good = map(json.loads, result.stdout.splitlines())
    assert (bad["code"], missing["code"], good["text"]) == ("FILE", "FILE", "what is ä lambda")
    first, second = result.stderr.splitlines()
    assert first.startswith(f"trimodal: {tmp_path / 'bad.wav'}: cannot be read as audio")
    assert second == f"trimodal: {tmp_path / 'missing.mp3'}: no such file or directory"


def test_refusals_are_one_sentence(fake, talk, monkeypatch):
    def refuse(request):
        raise InvalidArgument("policy is 'x': edge, vad or file is needed")

    monkeypatch.setitem(fake.functions, "speech", refuse)
    result = run(talk, "--policy", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"trimodal: {talk}: policy is 'x': edge, vad or file is needed\n"

    def full(request):
        raise Unavailable("256 streams are open")

    monkeypatch.setitem(fake.functions, "speech", full)
    assert run(talk, talk).stderr == "trimodal: 256 streams are open\n"
    fake.reachable = False
    result = run(talk)
    assert result.exit_code == 1
    assert result.stderr == "trimodal: no server at nowhere: start one with `trimodal serve`\n"


def test_live_lines(fake, talk, speech):
    result = run(talk, "--live", "--chunk-ms", "500", "--speed", "100")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "[  1.0 s, lag 0.7 s] what",
        "[  1.5 s, lag 0.9 s] is",
        "[  2.0 s, lag 0.9 s] ä",
        "[  2.0 s, lag 0.2 s] lambda",
        "what is ä lambda",
    ]
    assert "policy" not in fake.requests[0].parameters
    sizes = [array.size for request in fake.requests for array in request.inputs.values()]
    assert sizes == [8_000] * 4
    assert not speech.streams


def test_raw_audio_on_stdin(fake):
    result = run("-", "--live", "--speed", "100", stdin=b"\0" * (2 * RATE))
    assert result.stdout.splitlines()[-1] == "what is"
    assert run("-", stdin=b"\0" * (4 * RATE)).stdout == "what is ä lambda\n"
    assert run("-", stdin=b"").stderr == "trimodal: stdin: there is no audio in it\n"


def interrupting(speech, after):
    """The fake model, which presses Ctrl-C when it gets its chunk number `after`."""
    chunks = 0

    def model(request):
        nonlocal chunks
        chunks += 1
        if chunks == after:
            # What asyncio does when the signal comes. A real one kills a process that has run OpenVINO's
            # pipeline, as this one has by now when the whole suite runs; the command itself never loads it.
            asyncio.get_running_loop()._handle_signal(signal.SIGINT)
        return speech(request)

    return model


def test_ctrl_c_ends_a_live_file_and_prints_what_was_heard(fake, talk, speech, monkeypatch):
    monkeypatch.setitem(fake.functions, "speech", interrupting(speech, 7))
    result = run(talk, talk, "--live")
    assert result.exit_code == 130
    assert result.stdout.endswith(f"==> {talk} <==\nwhat is\n")
    assert fake.requests[-1].parameters["sequence_end"]
    assert 7 <= len(fake.requests) <= 9
    assert not speech.streams


def test_ctrl_c_is_the_end_of_a_microphone_and_the_document_is_written(fake, speech, monkeypatch, tmp_path):
    monkeypatch.setitem(fake.functions, "speech", interrupting(speech, 7))
    target = tmp_path / "said.txt"
    result = run("-", "--live", "--out", target, stdin=b"\0" * (4 * RATE))
    assert result.exit_code == 0, result.output
    assert target.read_text() == "what is\n"
    assert fake.requests[-1].parameters["sequence_end"]
    assert not speech.streams


async def test_the_screen_of_a_terminal(speech):
    console = Console(force_terminal=True, width=40, height=6, file=io.StringIO(), color_system=None)
    async with Client(transport=FakeTransport(speech=speech)).listen() as stream:
        update = await stream.send(np.zeros(RATE * 12 // 10, np.float32))
        with live_view.viewing(console) as show:
            show(stream, update)
            with console.capture() as shown:
                console.print(live_view.drawn(console, stream, update))
            assert [line.rstrip() for line in shown.get().splitlines()] == [
                "what is ä",
                "1.2 s received · lag 0.6 s · 2 words",
            ]
            words = live_view.drawn(console, stream, update).renderables[0]
            assert [(words.plain[span.start : span.end], span.style) for span in words.spans] == [
                (" ä", "dim")
            ]
            update = await stream.end(np.zeros(RATE, np.float32))
            said = [*(f" word{number}" for number in range(50)), "\x1b[2J"]
            stream._words.add(Word(text, 3.0, 3.1, 0.9) for text in said)
            tail = live_view.drawn(console, stream, LiveUpdate(tentative=" perhaps\x07")).renderables[0].plain
            assert len(tail) <= 40 * 2 + 1
            assert tail.startswith("…")
            assert tail.endswith(" word49[2J perhaps")
