"""Budgets that follow from a manifest, and those that its model does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimodal.errors import ArtefactError, SettingsError
from trimodal.llm.engines import budgets
from trimodal.llm.engines.budgets import fitted
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import Manifest, write_manifest

SMOLLM2 = {
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}


def settings(
    directory: Path, shapes: dict[str, int], runtime: str = "openvino", **values: Any
) -> LlmSettings:
    manifest = Manifest(
        task="llm", runtime=runtime, runtime_version="1", precision="int8", source="tiny", source_sha256="ab",
        command="python build/llm_openvino.py tiny", shapes=shapes,
    )  # fmt: skip
    directory.mkdir(exist_ok=True)
    write_manifest(directory, manifest)
    return LlmSettings.model_validate({"artefact": str(directory), **values})


def test_they_are_as_long_as_the_model_takes(tmp_path: Path) -> None:
    found = fitted(settings(tmp_path / "a", SMOLLM2))
    assert (found.max_prompt_tokens, found.max_output_tokens, found.default_max_tokens) == (8191, 8191, 8191)
    assert found.num_kv_blocks == 2 * 8192 // 32
    assert fitted(settings(tmp_path / "b", SMOLLM2, default_max_tokens=128)).default_max_tokens == 128
    assert fitted(found) == found


def test_what_is_set_stays(tmp_path: Path) -> None:
    values = {"max_prompt_tokens": 100, "max_output_tokens": 200, "num_kv_blocks": 64}
    found = fitted(settings(tmp_path / "a", SMOLLM2, **values))
    assert {name: getattr(found, name) for name in values} == values


def test_a_short_model_has_a_pool_for_many_and_shortens_the_default_answer(tmp_path: Path) -> None:
    found = fitted(settings(tmp_path / "a", SMOLLM2 | {"max_position_embeddings": 100}))
    assert (found.max_output_tokens, found.default_max_tokens, found.num_kv_blocks) == (99, 99, 512)


def test_the_pool_takes_a_quarter_of_the_memory_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "host_memory", lambda: (1 << 30, 0))
    shapes = SMOLLM2 | {"max_position_embeddings": 131_072}
    token = 2 * 30 * 3 * 64  # bytes, in u8
    assert fitted(settings(tmp_path / "a", shapes)).num_kv_blocks == (1 << 28) // token // 32
    half = fitted(settings(tmp_path / "b", shapes, kv_cache_precision="f16"))
    assert half.num_kv_blocks == (1 << 28) // (2 * token) // 32


@pytest.mark.parametrize("name", ["max_prompt_tokens", "max_output_tokens"])
def test_more_than_the_model_takes_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^parameter '{name}' = 8192: .* takes 8192 tokens, prompt and"):
        fitted(settings(tmp_path / "a", SMOLLM2, **{name: 8192}))
    assert getattr(fitted(settings(tmp_path / "a", SMOLLM2, **{name: 8191})), name) == 8191


def test_an_engine_on_gpus_has_its_own_length_and_pool(tmp_path: Path) -> None:
    found = fitted(settings(tmp_path / "b", SMOLLM2, "checkpoint", engine="vllm", max_model_len=1000))
    assert (found.max_prompt_tokens, found.max_output_tokens, found.num_kv_blocks) == (999, 999, 0)


def test_the_fake_engine_needs_no_artefact_and_the_others_say_how_it_is_built(tmp_path: Path) -> None:
    found = fitted(LlmSettings(engine="fake", num_kv_blocks=0, max_prompt_tokens=7))
    assert (found.num_kv_blocks, found.max_prompt_tokens, found.max_output_tokens) == (512, 7, 1024)
    with pytest.raises(ArtefactError, match="build"):
        fitted(LlmSettings(artefact=str(tmp_path / "nothing")))
