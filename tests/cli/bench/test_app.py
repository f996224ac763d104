"""`trimodal bench …` as a user calls it: refusals at once, and each bench once with its fake engine."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.bench.speech.spoken import write_recordings
from tests.project.pages import ROOT
from tests.vision.pictures import artefact
from trimodal.bench.speech.utterances import Utterance
from trimodal.cli.app import app
from trimodal.speech.engines.fake import speak


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], env={"COLUMNS": "120", "TERM": "dumb"})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["vision", "--image-size", "big"], "--image-size big: 224 or 640x480 is needed"),
        (["vision", "--image-size", "8x8"], "16 to 4096 pixels a side"),
        (["vision", "--concurrency", "0"], "concurrency"),
        (["vision", "--set", "vision"], "--set vision: write it as model.parameter=value"),
        (["vision", "--set", "vision.top_z=1"], "unknown parameter 'top_z'"),
        (["vision", "--set", "vision.top_k=none"], "parameter 'top_k' = 'none'"),
        (["vision", "--pixels"], "profile cpu: vision is one model, which takes image files alone"),
        (["vision", "--profile", "tpu"], "tpu is not a profile: cpu, cuda or tensorrt"),
        (["vision", "--profile", "tensorrt", "--bare"], "only Triton runs this classifier"),
        (["embedding", "--profile", "tpu"], "tpu is not a profile"),
        (["embedding", "--profile", "cuda", "--set", "colour=red"], "unknown parameter 'colour'"),
        (["speech", "--profile", "tpu"], "tpu is not a profile"),
        (["speech", "--policy", "best"], "--policy best: known are live, agreement, vad, window"),
        (["speech", "--streams", "0"], "streams"),
        (["speech", "--chunk-ms", "10"], "chunk-ms"),
        (["speech", "--set", "engine=fake"], "write it as model.parameter=value"),
        (["speech", "--samples", "/nowhere"], "--samples /nowhere/samples.json: FileNotFoundError"),
        (["embedding", "--set", "engine"], "--set engine: parameter=value is needed"),
        (["embedding", "--set", "engine=none"], "parameter 'engine' = 'none'"),
        (["llm", "--set", "engine"], "--set engine: parameter=value is needed"),
        (["llm", "--prompt-tokens", "64", "--prompt-tokens", "4"], "prompt-tokens"),
        (["llm", "--peer", "vllm"], "--peer vllm: known is fastapi"),
        (
            ["llm", "--peer", "fastapi", "--peer-dtype", "int8"],
            "--peer-dtype int8: known are bfloat16, float32",
        ),
        (["llm", "--peer", "fastapi", "--set", "engine=fake"], "the fake engine has no checkpoint"),
        (["vision", "--peer", "vllm"], "--peer vllm: known is fastapi"),
        (["speech", "--peer", "vllm"], "--peer vllm: known is fastapi"),
        (["stall", "--requests", "0"], "requests"),
        (["stall", "--json", "/nowhere/figures.json"], "--json /nowhere/figures.json: no file can be"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(arguments, sentence):
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert sentence in result.output.replace("│\n│", "").replace("\n", "")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "name", ["assistant", "cache", "embedding", "llm", "overload", "speech", "stall", "vision"]
)
def test_help_shows_a_typical_command_that_its_options_allow(name):
    shown = " ".join(run(name, "--help").output.split())
    typical = re.search(rf"Typical: trimodal bench {name}((?: [a-z-][\w.,-]*| \d+)*)", shown)
    assert typical
    for option in re.findall(r"--[a-z-]+", typical[1]):
        assert shown.count(option) >= 2, f"{option} is no option of it"


@pytest.fixture
def figures(tmp_path, monkeypatch):
    """`figures("llm", …)`: output and JSON of a bench that ends well."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))

    def measure(*arguments):
        target = tmp_path / "figures.json"
        result = run(*arguments, "--json", target)
        assert result.exit_code == 0, result.output
        return result.output, json.loads(target.read_text())

    return measure


@pytest.mark.slow
@pytest.mark.e2e
def test_llm(figures, tmp_path):
    questions = tmp_path / "questions.txt"
    questions.write_text("one question\n\nanother question\n")
    options = ("--streams", "2", "--rounds", "1", "--max-tokens", "10", "--prefix", "64")
    sides = ("--bare", "--versus", "fake_step_ms=100", "--prompts", questions)
    output, found = figures("llm", "--set", "engine=fake", "--set", "fake_step_ms=1", *options, *sides)
    assert "shared prefix of 64 tokens" in output
    two = found["prompts"]["streams_2"]
    assert set(two) == {"bare", "versus", "served"}
    assert all(side["tokens_per_second"] > 0 for side in two.values())
    # Two streams of 10 steps that each sleep 0.1 s, however busy the machine is.
    assert two["versus"]["tokens_per_second"] <= 2 * 10 / 0.9, "the steps of `--versus` are longer"


@pytest.mark.slow
@pytest.mark.e2e
def test_llm_beside_its_peer(figures, tmp_path):
    checkpoint = tmp_path / "tiny"
    script = [sys.executable, "build/random_checkpoint.py", "llama-tiny", "--out", str(checkpoint)]
    subprocess.run(script, cwd=ROOT, check=True, capture_output=True)
    peer = ("--peer", "fastapi", "--peer-checkpoint", checkpoint, "--peer-dtype", "float32")
    lengths = ("--prompt-tokens", "16", "--prompt-tokens", "40", "--max-tokens", "6")
    fake = ("--set", "engine=fake", "--set", "fake_step_ms=1", "--rounds", "1", "--streams", "2")
    output, found = figures("llm", *fake, *lengths, *peer)
    assert "served over peer" in output
    assert found["peer"] == {"checkpoint": str(checkpoint), "same": False}
    for length in (16, 40):
        sides = found[f"prompt_{length}"]["streams_2"]
        assert set(sides) == {"served", "peer float32"}
        assert all(ratio > 0 for ratio in sides["peer float32"]["served_over"].values())


def test_questions_that_cannot_be_read_are_one_sentence(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    for file, sentence in ((empty, "no line with text"), (tmp_path / "none.txt", "cannot be read")):
        result = run("llm", "--set", "engine=fake", "--prompts", file)
        assert result.exit_code == 1
        assert sentence in result.output


@pytest.mark.slow
@pytest.mark.e2e
def test_vision(figures, tmp_path):
    fake = ("--artefact", artefact(tmp_path / "fake"), "--set", "vision.engine=fake")
    cases = ("--concurrency", "1", "--concurrency", "3", "--batch", "4", "--image-size", "64x48")
    output, found = figures("vision", *fake, *cases, "--rounds", "1", "--seconds", "0.2", "--bare")
    assert "best served case" in output
    assert set(found["served"]) == {"1x1", "3x1", "3x4"}
    assert set(found["bare"]) == {f"{kind}_{size}" for kind in ("engine", "pipeline") for size in (1, 3, 4)}
    assert found["served"]["1x1"]["steps"]["vision"]["batch"] == 1
    assert found["served"]["3x4"]["steps"]["vision"]["batch"] >= 4
    assert all(one["rate"] > 0 and one["requests"] > 0 for one in found["served"].values())


@pytest.mark.slow
@pytest.mark.e2e
def test_embedding(figures):
    options = ("--set", "engine=fake", "--concurrency", "1", "--concurrency", "4")
    output, found = figures("embedding", *options, "--rounds", "1", "--seconds", "0.2", "--bare")
    assert "texts/s" in output
    assert found["served_1"]["batch"] == 1
    assert found["ratio_4"] > 0
    assert found["added_ms_1"] > 0  # a fake embeds in no time: what is left is the way


@pytest.mark.e2e
def test_stall(figures):
    output, found = figures("stall", "--requests", "50")
    assert "50 sequential requests" in output
    assert found["requests"] == 50


@pytest.mark.slow
@pytest.mark.e2e
def test_live_streams_on_the_fake_recogniser(figures, tmp_path):
    """The fake hears what was said without an error: any that is counted is the bench's or the sessions'."""
    sentences = ["what is a list", "explain the while statement", "one two three four"]
    utterances = [Utterance(samples, text, tuple(words)) for text, samples, words in map(said, sentences)]
    fake = ("--set", "speech_recognize.engine=fake", "--set", "speech.vad=energy")
    _, found = figures(
        *("speech", "--samples", write_recordings(tmp_path, utterances), *fake),
        *("--streams", "1", "--streams", "3", "--policy", "vad", "--seconds", "2"),
    )
    rows = found["live"]
    assert set(rows) == {"vad_1", "vad_3"}
    for row in rows.values():
        assert (row["wer"], row["offline_wer"], row["wer_to_offline"], row["failed"]) == (0, 0, 0, 0)
        assert row["words"] > 0
        # No word is held before it ends.
        assert 0 < row["lag_p50"] <= row["lag_p99"]
        assert row["compute"] > 0
        assert 1 <= row["batch_mean"] <= row["batch_most"]


def said(sentence):
    samples, words = speak(sentence.split())
    return sentence, samples, words
