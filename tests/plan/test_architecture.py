"""Parameter counts against transformers' own modules, and configs that cannot be counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plan.model_shapes import LLAMA_8B, LLAMA_70B, architecture
from trimodal.errors import ArtefactError
from trimodal.plan.architecture import FAMILIES, read_architecture

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
SPARSE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "LlamaForCausalLM": [{}, {"attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True}],
    "MixtralForCausalLM": [{"num_local_experts": 4, "num_experts_per_tok": 2}],
    "Qwen2MoeForCausalLM": [SPARSE | {"shared_expert_intermediate_size": 80, "mlp_only_layers": [1]}],
    "Qwen3ForCausalLM": [{}, {"attention_bias": True, "head_dim": 32}],
    "Qwen3MoeForCausalLM": [SPARSE, SPARSE | {"decoder_sparse_step": 2}],
    "GemmaForCausalLM": [{}, {"attention_bias": True}],
}


@pytest.mark.build
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "variant"), [(name, each) for name in FAMILIES for each in VARIANTS.get(name, [{}])]
)
def test_parameters_are_those_of_the_torch_module(name: str, variant: dict[str, Any], tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model_class = getattr(transformers, name)
    config = model_class.config_class(**SMALL, **variant)
    with torch.device("meta"):  # Shapes alone.
        model = model_class(config)
    config.architectures = [name]
    config.save_pretrained(tmp_path)
    counted = read_architecture(tmp_path)
    assert counted.parameters == sum(each.numel() for each in model.parameters())
    matrices = [p for n, p in model.named_parameters() if p.dim() > 1 and ".layers." in n]
    routers = sum(p.numel() for n, p in model.named_parameters() if n.endswith("gate.weight"))
    assert counted.linear == sum(each.numel() for each in matrices) - routers


def test_published_counts(tmp_path: Path) -> None:
    # Parameters as the hub shows them: huggingface.co/meta-llama/Llama-3.1-8B and …-70B
    assert architecture(tmp_path, LLAMA_8B).parameters == 8_030_261_248
    assert architecture(tmp_path, LLAMA_70B).parameters == 70_553_706_496


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not a readable config.json"),
        ("{", "is not a readable config.json"),
        ("[]", "is not a readable config.json"),
        ("{}", r"the architecture \(none named\) of .* is not known here"),
        ('{"architectures": ["MambaForCausalLM"]}', "MambaForCausalLM .* known are Ll"),
        (json.dumps({"architectures": ["LlamaForCausalLM"]}), "needs .'hidden_size'."),
        (json.dumps(LLAMA_8B | {"num_hidden_layers": 0}), "num_hidden_layers is below 1"),
        (json.dumps(LLAMA_8B | {"hidden_size": "wide"}), "lacks or garbles what a LlamaForCausalLM needs"),
    ],
)
def test_unfit_configs_are_one_sentence(tmp_path: Path, content: str | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ArtefactError, match=sentence):
        read_architecture(tmp_path / "config.json")
