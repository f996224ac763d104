"""build/speech_ctranslate2.py and the Whispers of build/random_checkpoint.py, on small random weights."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import soundfile

from tests.builders.engine_builds import command, sentence
from tests.speech.whisper.checkpoints import LANGUAGES, sound, write_checkpoint
from trimodal.audio.values import SAMPLE_RATE
from trimodal.manifest import MANIFEST, read_manifest
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def build():
    return command("speech_ctranslate2")


@pytest.fixture(scope="module")
def artefacts(checkpoint, audio, build, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("artefacts")
    options = ("--precision", "int8", "--precision", "float32", "--precision", "float16")
    out = ("--out", directory / "{precision}", "--audio", audio, "--contexts", "10,5")
    result = build(checkpoint, *options, *out, "--min-agreement", 0.1)
    assert result.exit_code == 0, result.output
    return directory


@pytest.mark.slow
def test_float32_writes_torchs_tokens_also_after_int8_was_converted(artefacts):
    check = read_manifest(artefacts / "float32", task="speech", runtime="ctranslate2").check
    assert check["windows"] == 5
    assert check["tokens"] > 20
    assert check["token_agreement"] == check["windows_identical"] == 1
    assert check["encoder_relative_error"] < 1e-4


@pytest.mark.parametrize(("precision", "least", "most"), [("float16", 1e-5, 1e-2), ("int8", 1e-3, 0.1)])
def test_others_encode_up_to_their_rounding(artefacts, precision, least, most):
    check = read_manifest(artefacts / precision, task="speech", runtime="ctranslate2").check
    assert least < check["encoder_relative_error"] < most


def test_the_manifest_tells_shapes_and_where_it_comes_from(artefacts):
    manifest = read_manifest(artefacts / "int8", task="speech", runtime="ctranslate2")
    assert manifest.shapes == {
        "contexts_s": [5.0, 10.0], "languages": ["en"], "mel_bins": 80, "sample_rate": 16000,
        "padding": "silence", "positions": 448,
    }  # fmt: skip
    assert (manifest.source, manifest.precision) == ("english", "int8")
    assert manifest.extra["multilingual"] is False
    assert manifest.extra["alignment_heads"] == "named by the checkpoint"
    # torch's words for made-up sounds are not those of the text, by a known number of edits.
    assert manifest.check["word_error_rate_torch"] > 0
    wanted = {"model.bin", "config.json", "vocabulary.json", "tokenizer.json", "preprocessor_config.json"}
    assert wanted <= set(manifest.files)


def test_faster_whisper_opens_it_and_writes_the_same(artefacts):
    import faster_whisper

    model = faster_whisper.WhisperModel(str(artefacts / "float32"), device="cpu", cpu_threads=1)
    assert model.supported_languages == ["en"]
    segments, _ = model.transcribe(
        sound(4, 3), beam_size=1, temperature=0.0, without_timestamps=True, word_timestamps=True,
        condition_on_previous_text=False, no_speech_threshold=None,
    )  # fmt: skip
    assert sum(len(segment.words) for segment in segments) > 0


def test_refused_where_the_agreement_is_too_low_and_the_old_stays(checkpoint, audio, build, tmp_path):
    target = tmp_path / "int8"
    target.mkdir()
    (target / MANIFEST).write_text("old")
    convert = importlib.import_module("speech_ctranslate2").convert

    def other_words(checkpoint, directory, precision):
        weight = checkpoint.model.model.decoder.embed_positions.weight
        weight.data = weight.data.flip(0)
        convert(checkpoint, directory, precision)

    with mock.patch("speech_ctranslate2.convert", other_words):
        result = build(checkpoint, "--out", target, "--audio", audio)
    assert "less than --min-agreement 0.9: nothing was replaced" in sentence(result)
    assert [path.name for path in tmp_path.rglob("*")] == ["int8", MANIFEST]


@pytest.mark.slow
def test_a_multilingual_checkpoint_in_shards_without_alignment_heads(audio, build, tmp_path):
    from transformers import WhisperForConditionalGeneration

    write_checkpoint(tmp_path / "whole", LANGUAGES, end_gain=1)
    model = WhisperForConditionalGeneration.from_pretrained(tmp_path / "whole")
    model.generation_config.alignment_heads = None
    model.save_pretrained(tmp_path / "shards", max_shard_size="100KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "whole" / name, tmp_path / "shards")
    result = build(
        *(tmp_path / "shards", "--precision", "float32", "--out", tmp_path / "out"),
        *("--audio", audio, "--language", "de"),
    )
    assert result.exit_code == 0, result.output
    assert "names no alignment_heads" in result.output
    manifest = read_manifest(tmp_path / "out", task="speech", runtime="ctranslate2")
    assert manifest.extra["alignment_heads"] == "all of the decoder's later half"
    assert manifest.shapes["languages"] == list(LANGUAGES)
    assert manifest.check["token_agreement"] == 1
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["alignment_heads"] == [[1, 0], [1, 1]]
    assert "does not know the language 'fr'" in sentence(
        build(tmp_path / "shards", "--out", tmp_path / "out", "--audio", audio, "--language", "fr")
    )


@pytest.mark.slow
def test_an_old_checkpoint_as_pytorch_bin_with_128_mel_bins_and_fewer_decoder_layers(audio, build, tmp_path):
    """large-v3's features in a distilled shape; weights in half precision."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    write_checkpoint(tmp_path / "base", end_gain=1)
    config = WhisperConfig.from_pretrained(tmp_path / "base", num_mel_bins=128, decoder_layers=1)
    model = WhisperForConditionalGeneration(config).half()
    model.generation_config.alignment_heads = [[0, 1]]
    out = tmp_path / "distilled"
    model.save_pretrained(out)
    (out / "model.safetensors").unlink()
    weights = {name: value for name, value in model.state_dict().items() if name != "proj_out.weight"}
    torch.save(weights, out / "pytorch_model.bin")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "base" / name, out)
    result = build(out, "--precision", "float32", "--out", tmp_path / "out", "--audio", audio)
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "out", task="speech", runtime="ctranslate2")
    assert manifest.shapes["mel_bins"] == 128
    assert manifest.check["token_agreement"] == 1


@pytest.mark.slow
def test_a_random_whisper_ends_where_it_should_and_is_judged_by_its_encoder(audio, build, tmp_path):
    result = command("random_checkpoint")("whisper-nano", "--out", tmp_path / "nano")
    assert result.exit_code == 0, result.output
    result = build(tmp_path / "nano", "--out", tmp_path / "int8", "--audio", audio, "--contexts", "5")
    assert result.exit_code == 0, result.output
    assert "random weights: the encoder's error is judged" in result.output
    manifest = read_manifest(tmp_path / "int8", task="speech", runtime="ctranslate2")
    assert manifest.check["tokens"] == 16 * manifest.check["windows"]
    assert manifest.check["min_agreement"] == 0
    assert "word_error_rate_torch" not in manifest.check
    assert len(manifest.shapes["languages"]) == 99
    engine = open_engine(tmp_path / "int8", RecogniseSettings(artefact="x", intra_op_threads=1))
    (heard,) = engine.recognise([Window(sound(5, 1), "de")])
    assert len(heard.words) > 3
    assert len({word.text for word in heard.words}) > 3
    assert heard.average_log_probability > -1, "no guard would take it for noise"
    assert heard.no_speech_probability < 0.6
    engine.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--contexts", "5,x"), "is not a list of seconds such as 5,10,30"),
        (("--contexts", "31"), "a context of 31 s does not fit: at most 30 s"),
        (("--contexts", "0.03"), "in steps of 0.02 s"),
        (("--padding", "noise"), "is one of silence, zeros"),
        (("--audio", "nowhere"), "no folder nowhere with audio to check on"),
        (("--audio", "empty"), "holds no audio"),
        (("--audio", "broken"), "a.wav: cannot be read as audio"),
        (("--precision", "int8", "--precision", "float32", "--out", "same"), "needs its own directory"),
        (("--name", "a/b"), "not a plain directory name"),
    ],
)
def test_unfit_options_are_one_sentence(checkpoint, audio, build, tmp_path, monkeypatch, options, expected):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken", "a.wav").write_bytes(b"RIFF")
    out = () if "--name" in options else ("--out", "out")
    assert expected in sentence(build(checkpoint, *out, "--audio", audio, *options))
    assert not Path("out").exists()


def test_every_length_in_steps_of_the_encoder_is_a_context():
    every = [f"{step * 0.02:.2f}" for step in range(1, 1501)]
    assert len(importlib.import_module("steps.speech.checkpoint").parse_contexts(",".join(every), 30)) == 1500


def test_no_more_of_a_folder_is_read_than_is_heard(tmp_path):
    """Or a corpus of a thousand hours would be decoded for 64 windows."""
    for number in range(64):
        soundfile.write(tmp_path / f"{number:02}.wav", sound(0.1, number), SAMPLE_RATE)
    (tmp_path / "more.wav").write_bytes(b"not read")
    assert len(importlib.import_module("steps.speech.audio").read_recordings(tmp_path, 5.0)) == 64


def test_of_a_recording_that_is_too_long_the_beginning_is_heard(tmp_path):
    """A folder of one hour-long meeting held no audio, it was said."""
    soundfile.write(tmp_path / "meeting.wav", sound(7.0, 0), SAMPLE_RATE)
    (tmp_path / "samples.json").write_text('[{"file": "meeting.wav", "text": "all of it"}]')
    read = importlib.import_module("steps.speech.audio").read_recordings
    assert [(len(one.windows), one.text) for one in read(tmp_path, 0.1)] == [(64, None)]
    assert [(len(one.windows), one.text) for one in read(tmp_path, 1.0)] == [(7, "all of it")]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{", "config.json is no readable JSON object"),
        ('{"model_type": "bert"}', "is not a Whisper (model_type: bert)"),
        ('{"model_type": "whisper"}', "holds no weights"),
    ],
)
def test_an_unfit_source_is_one_sentence(build, tmp_path, config, expected):
    (tmp_path / "config.json").write_text(config)
    assert expected in sentence(build(tmp_path))


def test_missing_and_damaged_weights_are_one_sentence(checkpoint, audio, build, tmp_path):
    from safetensors.numpy import load_file, save_file

    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    weights = load_file(copy / "model.safetensors")
    del weights["model.decoder.layers.1.fc1.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert "lacks weights: model.decoder.layers.1.fc1.weight" in sentence(build(copy, "--audio", audio))
    (copy / "model.safetensors").write_bytes(np.zeros(100, np.uint8).tobytes())
    assert "copy cannot be loaded by transformers" in sentence(build(copy, "--audio", audio))
