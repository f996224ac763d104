"""build/steps/speech/openai.py: OpenAI's .pt files, made of small random Whispers by OpenAI's own names."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.builders.engine_builds import command, sentence
from tests.speech.whisper.checkpoints import LANGUAGES, write_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
# As `whisper.model.Whisper.state_dict()` of openai-whisper 20250625 names them, for one layer of each half.
LAYER = {
    "attn.query": "self_attn.q_proj",
    "attn.key": "self_attn.k_proj",
    "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.out_proj",
    "attn_ln": "self_attn_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    "mlp_ln": "final_layer_norm",
}
CROSS = {
    "cross_attn.query": "encoder_attn.q_proj",
    "cross_attn.key": "encoder_attn.k_proj",
    "cross_attn.value": "encoder_attn.v_proj",
    "cross_attn.out": "encoder_attn.out_proj",
    "cross_attn_ln": "encoder_attn_layer_norm",
}
ENDS = {
    "encoder.conv1": "encoder.conv1",
    "encoder.conv2": "encoder.conv2",
    "encoder.ln_post": "encoder.layer_norm",
    "decoder.ln": "decoder.layer_norm",
    "decoder.token_embedding": "decoder.embed_tokens",
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def build():
    return command("speech_ctranslate2")


def write_pt(checkpoint: Path, file: Path) -> None:
    """The checkpoint as openai-whisper saves it, in half precision, with its tokenizer.json beside it."""
    import torch
    from transformers import WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(checkpoint)
    config, theirs = model.config, model.model.state_dict()
    names = {name: f"{half}.embed_positions.weight" for half in ("encoder", "decoder")
             for name in (f"{half}.positional_embedding",)}  # fmt: skip
    parts = dict(ENDS)
    for half, known in (("encoder", LAYER), ("decoder", LAYER | CROSS)):
        for at in range(getattr(config, f"{half}_layers")):
            parts |= {f"{half}.blocks.{at}.{a}": f"{half}.layers.{at}.{b}" for a, b in known.items()}
    for ours, other in parts.items():
        for kind in ("weight", "bias"):
            if f"{other}.{kind}" in theirs:
                names[f"{ours}.{kind}"] = f"{other}.{kind}"
    assert sorted(names.values()) == sorted(theirs), "every weight has a name of OpenAI's"
    dims = {
        "n_mels": config.num_mel_bins, "n_vocab": config.vocab_size, "n_audio_ctx": 1500, "n_text_ctx": 448,
        "n_audio_state": config.d_model, "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers, "n_text_state": config.d_model,
        "n_text_head": config.decoder_attention_heads, "n_text_layer": config.decoder_layers,
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: theirs[other].half() for name, other in names.items()}
    torch.save({"dims": dims, "model_state_dict": weights}, file)
    shutil.copy(checkpoint / "tokenizer.json", file.parent)


def test_a_pt_file_makes_the_same_network_as_the_checkpoint(tmp_path):
    import torch
    from transformers import WhisperForConditionalGeneration

    openai = importlib.import_module("steps.speech.openai")
    write_checkpoint(tmp_path / "whole", LANGUAGES, ffn=128)
    write_pt(tmp_path / "whole", tmp_path / "pt" / "small.pt")
    made = openai.resolve_whisper(str(tmp_path / "pt" / "small.pt"))
    assert openai.resolve_whisper(str(tmp_path / "pt")) == made, "its directory names it, too"
    one, other = (
        WhisperForConditionalGeneration.from_pretrained(each, dtype=torch.float32)
        for each in (tmp_path / "whole", made)
    )
    features, ids = torch.randn(2, 80, 3000), torch.tensor([[268, 269, 270, 5]] * 2)
    with torch.inference_mode():
        expected, found = (
            each(input_features=features, decoder_input_ids=ids).logits for each in (one, other)
        )
    assert float((expected - found).abs().max() / expected.abs().max()) < 5e-3, "but for half precision"
    assert set(other.generation_config.lang_to_id) == {f"<|{code}|>" for code in LANGUAGES}
    assert other.generation_config.is_multilingual


def test_a_pt_file_becomes_an_artefact_that_writes_torchs_tokens(audio, build, tmp_path):
    write_checkpoint(tmp_path / "whole", LANGUAGES, end_gain=1, ffn=128)
    file = tmp_path / "pt" / "small.pt"
    write_pt(tmp_path / "whole", file)
    options = ("--precision", "float32", "--out", tmp_path / "out", "--audio", audio, "--language", "zh")
    result = build(file, *options)
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "out", task="speech", runtime="ctranslate2")
    assert manifest.source == "small.pt"
    assert manifest.shapes["languages"] == list(LANGUAGES)
    assert manifest.check["token_agreement"] == 1
    assert manifest.check["tokens"] > 20


@pytest.mark.parametrize(("size", "after"), [(51864, 50363), (51865, 50364), (51866, 50365)])
def test_openais_vocabularies_are_those_of_the_starter_set(size, after, tmp_path, starter_whispers):
    openai = importlib.import_module("steps.speech.openai")
    ids = openai.tokenizer_for(tmp_path / "x.pt", size).get_vocab()
    assert sorted(ids.values()) == list(range(size))
    assert (ids["<|0.00|>"], ids["<|30.00|>"]) == (after, size - 1)
    if size == 51866:  # as openai/whisper-large-v3 on the hub has them
        assert (ids["<|su|>"], ids["<|yue|>"], ids["<|translate|>"]) == (50357, 50358, 50359)
        assert (ids["<|transcribe|>"], ids["<|notimestamps|>"]) == (50360, 50364)
    said = openai.generation(ids, 448)
    assert said["begin_suppress_tokens"] == [220, ids["<|endoftext|>"]]
    assert ids["<|startoftranscript|>"] in said["suppress_tokens"]
    assert ids["<|notimestamps|>"] not in said["suppress_tokens"]
    languages = {51864: 0, 51865: 99, 51866: 100}[size]
    assert len(said.get("lang_to_id", ())) == languages


@pytest.fixture
def starter_whispers(monkeypatch):
    """The starter set's vocabularies as they lie in the built artefacts."""
    repository = Path(__file__).parents[3] / "model_repository" / "speech_recognize" / "1"
    places = {"starter:whisper-base": "ctranslate2-int8", "starter:whisper-tiny.en": "ctranslate2-tiny.en"}
    openai = importlib.import_module("steps.speech.openai")
    monkeypatch.setattr(openai, "resolve_checkpoint", lambda source: repository / places[source])
    # The artefact's suppressed tokens are those that OpenAI publishes: the same as are made here.
    for source, size in (("starter:whisper-base", 51865), ("starter:whisper-tiny.en", 51864)):
        config = json.loads((repository / places[source] / "config.json").read_text())
        made = openai.generation(openai.tokenizer_for(Path("x.pt"), size).get_vocab(), 448)
        assert made["suppress_tokens"] == config["suppress_ids"]
        assert made["begin_suppress_tokens"] == config["suppress_ids_begin"]


def _without(name):
    def change(held):
        del held["model_state_dict"][name]

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda held: held.pop("dims"), "does not hold dims and model_state_dict, as OpenAI's files do"),
        (_without("decoder.blocks.1.mlp.0.weight"), "lacks weights, .*decoder.layers.1.fc1.weight"),
        (lambda held: held["dims"].update(n_vocab=900), "has 1778 ids, and x.pt only 900"),
        (lambda held: held["dims"].update(n_mels=128), "size mismatch for model.encoder.conv1.weight"),
    ],
)
def test_a_pt_file_that_is_no_whisper_is_one_sentence(build, tmp_path, change, expected):
    import torch

    write_checkpoint(tmp_path / "whole", LANGUAGES, ffn=128)
    file = tmp_path / "pt" / "x.pt"
    write_pt(tmp_path / "whole", file)
    held = torch.load(file, weights_only=True)
    change(held)
    torch.save(held, file)
    assert re.search(expected, sentence(build(file)))


def test_what_cannot_be_read_or_lacks_a_vocabulary_is_one_sentence(build, tmp_path):
    (tmp_path / "a.pt").write_bytes(b"nothing")
    assert "a.pt cannot be loaded by torch as plain weights" in sentence(build(tmp_path / "a.pt"))
    write_checkpoint(tmp_path / "whole", LANGUAGES, ffn=128)
    write_pt(tmp_path / "whole", tmp_path / "b.pt")
    (tmp_path / "tokenizer.json").unlink()
    assert "put its tokenizer.json beside it" in sentence(build(tmp_path / "b.pt"))
    assert "has 2 .pt files: name one of a.pt, b.pt" in sentence(build(tmp_path))


def test_too_small_a_disk_is_told_before_a_pt_file_is_converted(tmp_path, monkeypatch):
    openai = importlib.import_module("steps.speech.openai")
    (tmp_path / "small.pt").write_bytes(bytes(2_000))
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 1_000)
    with pytest.raises(ArtefactError, match="whose disk has 0 MB left: free some"):
        openai.resolve_whisper(str(tmp_path / "small.pt"))
