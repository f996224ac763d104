"""`trimodal bench speech` as a user calls it: refusals at once, and live streams once on the fake engine."""

import json

import pytest

from tests.bench.speech.spoken import write_recordings
from tests.cli.bench.test_app import run
from trimodal.bench.speech.utterances import Utterance
from trimodal.speech.engines.fake import speak


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "best"], "--policy best: known are live, agreement, vad, window"),
        (["--streams", "0"], "streams"),
        (["--chunk-ms", "10"], "chunk-ms"),
        (["--set", "engine=fake"], "write it as model.parameter=value"),
        (["--samples", "/nowhere"], "--samples /nowhere/samples.json: FileNotFoundError"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(arguments, sentence):
    result = run("speech", *arguments)
    assert result.exit_code in (1, 2)
    assert sentence in result.output.replace("│\n│", "").replace("\n", "")
    assert "Traceback" not in result.output


@pytest.mark.e2e
def test_live_streams_on_the_fake_recogniser(tmp_path, monkeypatch):
    """The fake hears what was said without an error: any that is counted is the bench's or the sessions'."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    sentences = ["what is a list", "explain the while statement", "one two three four"]
    utterances = [Utterance(samples, text, tuple(words)) for text, samples, words in map(said, sentences)]
    fake = ("--set", "speech_recognize.engine=fake", "--set", "speech.vad=energy")
    target = tmp_path / "figures.json"
    result = run(
        *("speech", "--samples", write_recordings(tmp_path, utterances), *fake),
        *("--streams", "1", "--streams", "3", "--policy", "vad", "--seconds", "5", "--json", target),
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(target.read_text())["live"]
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
