"""build/llm_place.py: what is put in place, what its manifest says, and what is refused."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import Result

from tests.builders.engine_builds import command, sentence
from trimodal.errors import ArtefactError
from trimodal.llm.engines import artefact
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import CheckpointTokenizer
from trimodal.manifest import read_manifest, sha256
from trimodal.runtimes import gpu_device


@pytest.fixture
def checkpoint(llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama, tmp_path / "tiny"))


def place(*arguments: object) -> Result:
    with mock.patch.object(sys, "argv", ["llm_place.py", *map(str, arguments)]):
        return command("llm_place")(*arguments)


def refused(*arguments: object) -> str:
    return sentence(place(*arguments)).removeprefix("error: ")


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_checkpoint_is_linked_and_described(checkpoint: Path, tmp_path: Path) -> None:
    result = place(checkpoint, "--out", tmp_path / "placed")
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "placed", task="llm", runtime="checkpoint")
    config = json.loads((checkpoint / "config.json").read_text())
    assert manifest.source == "tiny"
    assert manifest.precision == {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[config["dtype"]]
    assert manifest.shapes["max_position_embeddings"] == config["max_position_embeddings"]
    assert manifest.shapes["head_dim"] * config["num_attention_heads"] == config["hidden_size"]
    assert manifest.extra == {"eos_token_ids": [511], "has_chat_template": True, "random_weights": True}
    assert manifest.command == f"trimodal build llm --runtime place {checkpoint} --out {tmp_path / 'placed'}"
    for name, digest in manifest.files.items():
        placed = tmp_path / "placed" / name
        assert placed.is_symlink()
        assert placed.resolve() == checkpoint / name
        assert sha256(checkpoint / name) == digest
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= set(manifest.files)


def test_the_engines_and_the_service_take_it(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = tmp_path / "placed"
    assert place(checkpoint, "--copy", "--out", placed).exit_code == 0
    assert not any(file.is_symlink() for file in placed.iterdir())
    shutil.rmtree(checkpoint)
    gpu = gpu_device.Gpu(0, "NVIDIA L4", "8.9", 24 << 30, 23 << 30, "580.65")
    monkeypatch.setattr(artefact, "visible_gpus", lambda: [gpu])
    found = artefact.checkpoint(LlmSettings(engine="vllm", artefact=str(placed)))
    assert (found.max_model_len, found.eos_ids) == (512, [511])
    tokenizer = CheckpointTokenizer(placed)
    assert tokenizer.has_chat_template
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


def test_it_goes_where_engines_go(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMODAL_ENGINES", str(tmp_path / "engines"))
    assert place(checkpoint).exit_code == 0
    assert (tmp_path / "engines" / "llm" / "checkpoint" / "manifest.json").is_file()
    assert place(checkpoint, "--name", "other").exit_code == 0
    assert (tmp_path / "engines" / "llm" / "other" / "config.json").is_file()
    assert "is not a plain directory name" in refused(checkpoint, "--name", "../x")


def test_a_directory_of_other_files_is_not_replaced(checkpoint: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / "other").mkdir(parents=True)
    assert f"{models} holds files and no manifest.json" in refused(checkpoint, "--out", models)
    result = command("random_checkpoint")("llama-tiny", "--out", models)
    assert f"{models} holds files and no config.json" in sentence(result)
    (models / "other").rmdir()
    for _ in range(2):  # an empty one is taken, and an artefact is replaced
        assert place(checkpoint, "--out", models).exit_code == 0


@pytest.mark.parametrize("name", ["", ".."])  # as of a variable that is not set
def test_the_directory_of_all_artefacts_is_none(name: str) -> None:
    with pytest.raises(ArtefactError, match=f"--name '{name}' is not a plain directory name"):
        import_module("steps.artefact").target("llm", "int8", name, "")


def test_heads_that_draft_have_no_tokenizer(checkpoint: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRIMODAL_ENGINES", str(tmp_path / "engines"))
    (checkpoint / "tokenizer.json").unlink()
    edit(checkpoint / "config.json", architectures=["LlamaForCausalLMEagle3"], eos_token_id=None)
    (checkpoint / "generation_config.json").unlink(missing_ok=True)
    assert "not a causal language model" in refused(checkpoint)
    result = place(checkpoint, "--draft", "--copy")
    assert result.exit_code == 0, result.output
    manifest = read_manifest(tmp_path / "engines" / "llm" / "draft", task="llm", runtime="checkpoint")
    assert (manifest.shapes, manifest.extra) == ({}, {})
    assert {"config.json", "model.safetensors"} <= set(manifest.files)
    (checkpoint / "config.json").unlink()
    told = "tiny has no config.json, or an empty one: not a Hugging Face checkpoint"
    assert refused(checkpoint, "--draft") == told


def test_parts_belong_together_and_doubles_stay_out(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "consolidated.safetensors").write_bytes(b"again")
    assert place(checkpoint, "--out", tmp_path / "whole").exit_code == 0
    assert not (tmp_path / "whole" / "consolidated.safetensors").exists()
    os.rename(checkpoint / "model.safetensors", checkpoint / "model-00001-of-00002.safetensors")
    weights = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    sentence = refused(checkpoint, "--out", tmp_path / "whole")
    assert sentence == "tiny lacks model-00002-of-00002.safetensors, which model.safetensors.index.json names"
    assert (tmp_path / "whole" / "model.safetensors").is_symlink(), "the old artefact stays"
    shutil.copyfile(checkpoint / weights["a"], checkpoint / weights["b"])
    assert place(checkpoint, "--out", tmp_path / "parts").exit_code == 0
    assert {file.name for file in (tmp_path / "parts").glob("*.safetensors")} == set(weights.values())


@pytest.mark.parametrize(
    ("file", "changes", "expected"),
    [
        ("config.json", {"dtype": "bfloat16"}, "bf16"),
        ("config.json", {"dtype": None, "torch_dtype": "float16"}, "fp16"),
        ("config.json", {"quantization_config": {"quant_method": "FP8"}}, "fp8"),
        ("hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ("config.json", {"dtype": "complex64"}, "unknown"),
    ],
)
def test_precision_is_the_weights(
    checkpoint: Path, file: str, changes: dict[str, Any], expected: str
) -> None:
    (checkpoint / "hf_quant_config.json").write_text("{}")
    edit(checkpoint / file, **changes)
    assert import_module("llm_place").precision(checkpoint) == expected


def test_ends_are_collected_from_all_who_know_them(checkpoint: Path) -> None:
    script = import_module("llm_place")
    edit(checkpoint / "generation_config.json", eos_token_id=[5, 6])
    edit(checkpoint / "config.json", eos_token_id=7)
    assert script.special_ids(checkpoint)["eos_token_ids"] == [5, 6, 7, 511]
    edit(checkpoint / "config.json", text_config={"eos_token_id": 8})
    assert 8 in script.special_ids(checkpoint)["eos_token_ids"]


def test_a_byte_order_mark_is_no_damage(checkpoint: Path) -> None:
    """As editors of Windows write UTF-8."""
    script = import_module("llm_place")
    for name in ("config.json", "generation_config.json"):
        file = checkpoint / name
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    assert 511 in script.special_ids(checkpoint)["eos_token_ids"]
    import_module("steps.llm.checkpoint").check_causal(checkpoint, "tiny")


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("tokenizer.json", None, "tiny has no tokenizer.json: load its tokenizer"),
        ("model.safetensors", None, "holds no weights"),
        ("config.json", "[]", "config.json is no readable JSON object"),
        ("generation_config.json", "[1]", "generation_config.json is no readable JSON object"),
        (
            "generation_config.json",
            '{"a": 1 "b"}',
            "no readable JSON object (Expecting ',' delimiter: line 1",
        ),
        ("tokenizer.json", '{"version": ', "tokenizer.json of tiny cannot be read"),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": "../private.txt"}}',
            "model.safetensors.index.json of tiny names '../private.txt', which is not in it",
        ),
        ("model.safetensors.index.json", '{"weight_map": ["a"]}', "tiny lacks weights, which model."),
    ],
)
def test_what_cannot_be_served_is_refused(
    checkpoint: Path, tmp_path: Path, file: str, content: str | None, sentence: str
) -> None:
    if content is None:
        (checkpoint / file).unlink()
    else:
        (checkpoint / file).write_text(content)
    assert sentence in refused(checkpoint, "--out", tmp_path / "placed")
    assert not (tmp_path / "placed").exists()


def test_pickled_weights_and_missing_dimensions_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    edit(checkpoint / "config.json", max_position_embeddings=None)
    assert "config.json of tiny lacks or garbles" in refused(checkpoint, "--out", tmp_path / "placed")
    os.rename(checkpoint / "model.safetensors", checkpoint / "pytorch_model.bin")
    assert "pickled weights are not served" in refused(checkpoint, "--out", tmp_path / "placed")
    assert "no checkpoint at" in refused(tmp_path / "nothing" / "here")
    (checkpoint / "manifest.json").touch()
    assert "is the artefact itself" in refused(checkpoint, "--out", checkpoint)


def test_a_copy_that_has_no_room_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 1_000)
    assert "whose disk has 0 MB left" in refused(checkpoint, "--copy", "--out", tmp_path / "placed")
    assert place(checkpoint, "--out", tmp_path / "placed").exit_code == 0, "links need none"
