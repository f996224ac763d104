"""GGUF files as checkpoints: tokens of the tokenizer and logits of the model that the file was made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders.engine_builds import Build, command, sentence
from tests.builders.llm import gguf_files
from tests.builders.scripts import Later
from trimodal.errors import ArtefactError
from trimodal.llm.tokenizer import CheckpointTokenizer
from trimodal.manifest import read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
gguf: Any = Later("steps.llm.gguf")
CASES = {
    "llama, smollm": ("llama", "smollm"),
    "llama, llama-bpe": ("llama", "llama-bpe"),
    "qwen2": ("qwen2", "qwen2"),
    "qwen3": ("qwen3", "qwen2"),
    "llama, SentencePiece": ("llama", "prefix"),
    "gemma3": ("gemma3", "symbols"),
}


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))


def write(file: Path, architecture: str, rule: str, **fields: Any) -> tuple[Any, Any]:
    """The file, and the tokenizer and the model that it is made of."""
    if rule in ("prefix", "symbols"):
        tokenizer, scores, kinds = gguf_files.sentencepiece(prefix=rule == "prefix")
        fields = {"scores": scores, "kinds": kinds, "kind": "llama", **fields}
        if rule == "symbols":
            fields["add_space_prefix"] = False
    else:
        tokenizer = gguf_files.byte_level(rule)
        fields = {"pre": rule, **fields}
    model = gguf_files.random_model(architecture, tokenizer.get_vocab_size())
    gguf_files.write_gguf(file, architecture, tokenizer, model, **fields)
    return tokenizer, model


@pytest.mark.parametrize(("architecture", "rule"), CASES.values(), ids=CASES)
def test_tokens_and_logits_are_those_of_the_original(tmp_path: Path, architecture: str, rule: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = write(tmp_path / "tiny.gguf", architecture, rule)
    directory = gguf.resolve_model(str(tmp_path / "tiny.gguf"))
    served, theirs = CheckpointTokenizer(directory), AutoTokenizer.from_pretrained(directory)
    begin = [1] if rule in ("prefix", "symbols") else []
    for text in gguf_files.TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert served.encode(text) == ids, text
        assert served.encode_prompt(text) == theirs(text)["input_ids"] == begin + ids, text
        assert served.decode(ids) == tokenizer.decode(ids), text
    assert served.render([{"role": "user", "content": "hi"}]) == "<|im_start|>hi<|im_end|>"

    ids = torch.tensor([tokenizer.encode(" ".join(gguf_files.TEXTS[:2])).ids[:100]])
    converted = AutoModelForCausalLM.from_pretrained(directory, dtype="float32").eval()
    with torch.inference_mode():
        expected, found = (one(ids).logits[0].numpy() for one in (model, converted))
    assert np.abs(expected - found).max() < 0.02 * np.abs(expected).max()  # weights are halves there
    assert (converted.generation_config.eos_token_id, converted.config.eos_token_id) == ([2], 2)


def test_transformers_finds_the_package_where_python_does_not_know_whose_a_module_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.10 reads top_level.txt alone, which gguf has not: no GGUF file could be read under it."""
    from transformers.utils import import_utils

    monkeypatch.delitem(import_utils.PACKAGE_DISTRIBUTION_MAPPING, "gguf", raising=False)
    gguf.name_version()
    assert import_utils.is_gguf_available.__wrapped__()


def test_a_file_says_whether_a_prompt_begins_with_bos(tmp_path: Path) -> None:
    write(tmp_path / "bos.gguf", "llama", "llama-bpe", add_bos_token=True)
    served = CheckpointTokenizer(gguf.resolve_model(str(tmp_path / "bos.gguf")))
    assert served.encode_prompt("a")[0] == 1
    write(tmp_path / "none.gguf", "llama", "prefix", add_bos_token=False)
    served = CheckpointTokenizer(gguf.resolve_model(str(tmp_path / "none.gguf")))
    assert served.encode_prompt("a")[0] != 1


def test_a_directory_with_one_file_is_that_file_and_with_two_is_asked_about(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    write(folder / "a.gguf", "llama", "smollm")
    directory = gguf.resolve_model(str(folder))
    assert (directory / "config.json").is_file()
    assert gguf.resolve_model(str(folder / "a.gguf")) == directory, "converted once"
    (folder / "b.gguf").write_bytes((folder / "a.gguf").read_bytes())
    with pytest.raises(ArtefactError, match=r"has 2 \.gguf files: name one of a\.gguf, b\.gguf"):
        gguf.resolve_model(str(folder))
    (folder / "config.json").write_text("{}")
    assert gguf.resolve_model(str(folder)) == folder, "a checkpoint in place goes first"


WAY = r": build from the checkpoint that the file was made of"


@pytest.mark.parametrize(
    ("architecture", "fields", "expected"),
    [
        (
            "stablelm",
            {},
            "is of the architecture 'stablelm'; GGUF is read for llama, qwen2, qwen3, gemma3" + WAY,
        ),
        (
            "llama",
            {"pre": "tekken"},
            "splits text by the rule 'tekken'; known are gpt-2, smollm" + ".*" + WAY,
        ),
        ("llama", {"pre": "default"}, "splits text by the rule 'default'; known are gpt-2.*" + WAY),
        ("llama", {"kind": "bert"}, "has a tokenizer of the kind 'bert'; known are gpt2, llama" + WAY),
        ("llama", {"kind": "llama"}, r"lacks tokenizer\.ggml\.scores, which its tokenizer is made of" + WAY),
        (
            "llama",
            {"rope_scaling": "yarn"},
            "scales its rotary embedding, which is not read from GGUF.*" + WAY,
        ),
    ],
)
def test_what_is_not_known_is_named_with_the_way_round(
    tmp_path: Path, architecture: str, fields: dict[str, Any], expected: str
) -> None:
    tokenizer = gguf_files.byte_level("smollm")
    model = gguf_files.random_model("llama", tokenizer.get_vocab_size())
    fields = {"pre": "smollm", **fields}
    gguf_files.write_gguf(tmp_path / "odd.gguf", architecture, tokenizer, model, **fields)
    with pytest.raises(ArtefactError, match=rf"^odd\.gguf {expected}"):
        gguf.resolve_model(str(tmp_path / "odd.gguf"))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, -4000])
def test_a_damaged_file_is_one_sentence_and_leaves_nothing(tmp_path: Path, keep: int) -> None:
    write(tmp_path / "whole.gguf", "llama", "smollm")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "whole.gguf").read_bytes()[:keep])
    with pytest.raises(ArtefactError, match=r"cut\.gguf cannot be read as GGUF: \S+"):
        gguf.resolve_model(str(tmp_path / "cut.gguf"))
    assert not (tmp_path / "cache").exists()


def test_a_file_without_all_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers made up what it lacks, and warned where nobody sees it."""
    whole = gguf_files.tensors
    monkeypatch.setattr(
        gguf_files, "tensors", lambda *of: [one for one in whole(*of) if "ffn_up" not in one[0]]
    )
    write(tmp_path / "tiny.gguf", "llama", "smollm")
    with pytest.raises(ArtefactError, match=r"^tiny\.gguf lacks weights: model\.layers\.0\.mlp\.up_proj"):
        gguf.resolve_model(str(tmp_path / "tiny.gguf"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.slow
def test_a_file_is_built_and_served_like_a_directory(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", "llama", "smollm")
    build: Build = command("llm_openvino")
    result = build(
        *(tmp_path / "tiny.gguf", "--precision", "fp32", "--out", tmp_path / "built"),
        *("--min-agreement", "0"),
    )
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "built", task="llm", runtime="openvino")
    assert (manifest.extra["eos_token_ids"], manifest.shapes["max_position_embeddings"]) == ([2], 256)
    assert sentence(build(tmp_path / "nothing.gguf")).endswith("nothing.gguf")


def test_a_directory_of_one_file_is_named_in_the_manifest_as_it_was_given(tmp_path: Path) -> None:
    """It had the name of the converted checkpoint, so that `build all --missing` built it each time."""
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine" / "tiny.gguf", "llama", "smollm")
    result = command("llm_place")(tmp_path / "mine", "--copy", "--out", tmp_path / "placed")
    assert result.exit_code == 0, result.output
    assert read_manifest(tmp_path / "placed", task="llm", runtime="checkpoint").source == "mine"


def test_a_file_is_put_in_place_for_vllm_as_the_checkpoint_made_of_it(tmp_path: Path) -> None:
    write(tmp_path / "tiny.gguf", "llama", "smollm")
    result = command("llm_place")(tmp_path / "tiny.gguf", "--copy", "--out", tmp_path / "placed")
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "placed", task="llm", runtime="checkpoint")
    assert (manifest.precision, manifest.extra["eos_token_ids"]) == ("fp16", [2])
    assert {"model.safetensors", "tokenizer.json"} <= {each.name for each in (tmp_path / "placed").iterdir()}


def test_too_small_a_disk_is_told_before_a_file_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "tiny.gguf", "llama", "smollm")
    monkeypatch.setitem(gguf.check_room.__globals__, "free_room", lambda place: 1_000)
    with pytest.raises(ArtefactError, match="whose disk has 0 MB left: free some"):
        gguf.resolve_model(str(tmp_path / "tiny.gguf"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
