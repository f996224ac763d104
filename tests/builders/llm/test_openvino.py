"""build/llm_openvino.py and build/random_checkpoint.py, in this process: torch is imported once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.engine_builds import Build, command, sentence
from trimodal.manifest import MANIFEST, read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def build() -> Build:
    return command("llm_openvino")


@pytest.fixture(scope="module")
def artefacts(llama: Path, build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("artefacts")
    # Of a name that is no UTF-8 no manifest could be written, after minutes of a build.
    calibration = directory / os.fsdecode(b"calibr\xe4tion.txt")
    calibration.write_text("\n".join(f"sample {index} of a text" for index in range(16)))
    result = build(
        *(llama, "--precision", "int8", "--precision", "int4", "--out", directory / "{precision}"),
        *("--calibration", calibration),
    )
    assert result.exit_code == 0, result.output
    return directory


def test_random_checkpoint_decodes_every_id_and_encodes_any_text(llama: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(llama / "tokenizer.json"))
    words = [tokenizer.decode([index]) for index in range(256, 509)]
    assert len(set(words)) == len(words)
    assert tokenizer.encode("".join(words)).ids == list(range(256, 509))
    assert tokenizer.decode(tokenizer.encode("naïve café 😀").ids) == "naïve café 😀"


def test_artefact_holds_what_serving_needs(artefacts: Path) -> None:
    names = {path.name for path in (artefacts / "int8").iterdir()}
    assert names >= {
        *("openvino_model.xml", "openvino_model.bin", "config.json", "generation_config.json"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "manifest.json"),
    }
    assert [path.name for path in artefacts.iterdir() if path.name.startswith(".")] == []


def test_manifest_tells_shapes_and_check(artefacts: Path) -> None:
    manifest = read_manifest(artefacts / "int8", task="llm", runtime="openvino")
    assert manifest.precision == "int8"
    assert manifest.source == "tiny"
    assert manifest.shapes == {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
        "max_position_embeddings": 512,
    }
    assert manifest.extra["eos_token_ids"] == [511]
    assert manifest.extra["has_chat_template"] is True
    assert manifest.check["positions"] == 16 * 32
    assert manifest.check["token_agreement"] > 0.5  # as served: INT8 or bf16 sums, and an 8-bit KV cache
    assert manifest.check["served"] == "numerics fast, KV cache u8"
    assert 0 < manifest.check["logit_error_mean"] < manifest.check["logit_error_max"] < 2
    assert manifest.check["perplexity_built"] == pytest.approx(manifest.check["perplexity_torch"], rel=0.1)


def test_int4_fits_its_scales_to_the_calibration_texts(artefacts: Path) -> None:
    int4 = read_manifest(artefacts / "int4", task="llm", runtime="openvino")
    assert int4.calibration == {"file": "calibr\ufffdtion.txt", "samples": 16}
    assert (int4.extra["group_size"], int4.extra["scale_estimation"]) == (64, True)
    int8 = read_manifest(artefacts / "int8", task="llm", runtime="openvino")
    assert int4.check["logit_error_mean"] > int8.check["logit_error_mean"]


@pytest.mark.slow
def test_fp32_gives_the_logits_of_torch(llama: Path, build: Build, tmp_path: Path) -> None:
    result = build(llama, "--precision", "fp32", "--out", tmp_path / "fp32")
    assert result.exit_code == 0, result.output
    check = read_manifest(tmp_path / "fp32", task="llm", runtime="openvino").check
    assert (check["greedy_answers"], check["reference"]) == (16, "torch float32")
    assert check["logit_error_max"] < 1e-3
    assert check["perplexity_ratio"] == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_low_agreement_leaves_the_old_artefact(
    llama: Path, artefacts: Path, build: Build, tmp_path: Path
) -> None:
    target = tmp_path / "int4"
    target.mkdir()
    (target / MANIFEST).write_text("old")
    result = build(llama, "--precision", "int4", "--out", target, "--min-agreement", "1")
    assert "less than --min-agreement 1: nothing was replaced" in sentence(result)
    assert [path.name for path in tmp_path.rglob("*")] == ["int4", MANIFEST]


def test_too_small_a_disk_is_one_sentence_before_anything_is_exported(
    llama: Path, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 300_000)
    monkeypatch.delattr("llm_openvino.export")
    told = sentence(
        build(llama, "--precision", "int8", "--precision", "int4", "--out", tmp_path / "{precision}")
    )
    assert re.search(r"needs at least \d+ MB in .*, whose disk has 0 MB left: free some", told)
    assert not list(tmp_path.iterdir())


def test_a_missing_source_is_one_sentence(build: Build, tmp_path: Path) -> None:
    assert "name an existing directory or a hub id" in sentence(build(tmp_path / "nothing"))


def test_weights_that_are_not_there_are_named(llama: Path, build: Build, tmp_path: Path) -> None:
    """transformers made them up, and the built model agreed with that."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(llama, tmp_path / "copy")
    file = tmp_path / "copy" / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    told = sentence(build(tmp_path / "copy", "--out", tmp_path / "built"))
    assert "copy lacks weights: model.layers.1.mlp.up_proj.weight" in told


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{", "config.json is no readable JSON object"),
        (
            json.dumps({"architectures": ["BertModel"]}),
            "not a causal language model (architectures: BertModel)",
        ),
        (json.dumps({"architectures": ["LlamaForCausalLM"]}), "holds no weights"),
    ],
)
def test_an_unfit_source_is_one_sentence(build: Build, tmp_path: Path, config: str, expected: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert expected in sentence(build(tmp_path))


def test_a_damaged_generation_config_is_refused_before_weights_are_loaded(
    build: Build, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    (tmp_path / "generation_config.json").write_text("{")
    assert "generation_config.json is no readable JSON object (" in sentence(build(tmp_path))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--precision", "int4", "--calibration", "few.txt"),
            "few.txt holds 2 lines or paragraphs: at least 16",
        ),
        (("--precision", "int4", "--calibration", "none.txt"), "none.txt cannot be read as UTF-8 text"),
        (("--precision", "int8", "--awq"), "apply to --precision int4 only"),
        (("--precision", "int8", "--precision", "int4", "--out", "same"), "needs its own directory"),
        (("--name", "a/b"), "not a plain directory name"),
    ],
)
def test_unfit_options_are_one_sentence(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few.txt").write_text("one\ntwo\n")
    assert expected in sentence(build(tmp_path, *options))


FOR_NOBODY = """
import os, pwd, sys
def unknown(number):
    raise KeyError(number)
pwd.getpwuid = unknown
del os.environ["HOME"]
sys.path.insert(0, "build")
from steps.llm.export import import_converters
import_converters()
"""


def test_the_converters_open_for_a_user_whom_the_system_does_not_know() -> None:
    """As `docker run --user 1234` makes one, without HOME."""
    environment = {**os.environ, "HOME": "/"}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FOR_NOBODY], env=environment, check=True, timeout=120
    )
