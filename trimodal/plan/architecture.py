"""Reads the dimensions and parameter counts of a causal language model from its config.json alone.

Counts are exact for the architectures below: the tests compare them with transformers' own modules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trimodal.errors import ArtefactError
from trimodal.files import read_at_most
from trimodal.paths import HUB_ID, expanded


@dataclass(frozen=True)
class Family:
    """What config.json of an architecture leaves unsaid.

    Attributes:
        tied: input and output embeddings share one table unless the config says otherwise.
        norms: RMS norms of hidden_size in a layer.
        qk_norm: queries and keys have norms of head_dim.
        qkv_bias: the three input projections have biases, whatever the config says.
        head_dim: when the config names none; 0 is hidden_size / num_attention_heads.
    """

    tied: bool = False
    norms: int = 2
    qk_norm: bool = False
    qkv_bias: bool = False
    head_dim: int = 0


FAMILIES = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(),
    "MixtralForCausalLM": Family(),
    "Phi3ForCausalLM": Family(),
    "Qwen2ForCausalLM": Family(qkv_bias=True),
    "Qwen2MoeForCausalLM": Family(qkv_bias=True),
    "Qwen3ForCausalLM": Family(qk_norm=True, head_dim=128),
    "Qwen3MoeForCausalLM": Family(qk_norm=True),
    "GemmaForCausalLM": Family(tied=True, head_dim=256),
    "Gemma2ForCausalLM": Family(tied=True, norms=4, head_dim=256),
    "Gemma3ForCausalLM": Family(tied=True, norms=4, qk_norm=True, head_dim=256),
}


@dataclass(frozen=True)
class Architecture:
    """A decoder. All counts are of the whole model, before any split over GPUs.

    Attributes:
        linear: parameters of the layers' matrices, all experts included: what a build quantises.
        intermediate_size: of all experts that one token uses together, in a mixture of experts.
        active_linear: those of them that one token uses; less than `linear` in a mixture of experts.
        channels: rows of these matrices: an INT8 build keeps a scale for each.
        kept: norms, biases and routers of the layers: they stay in 16 bits.
        embedding, lm_head: parameters of the token tables; `lm_head` is 0 where they are one table.
        window: tokens that some layers' attention is limited to; 0 where none is.
    """

    name: str
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    linear: int
    active_linear: int
    channels: int
    kept: int
    embedding: int
    lm_head: int
    window: int

    @property
    def parameters(self) -> int:
        return self.linear + self.kept + self.hidden_size + self.embedding + self.lm_head


def find_config(source: str) -> Path:
    """A local path as it is, else config.json of a hub id, fetched or cached. Raises: ArtefactError."""
    path = expanded(Path(source), "the checkpoint", ArtefactError)
    if path.exists():
        return path
    if not HUB_ID.fullmatch(source):
        raise ArtefactError(f"no config.json or checkpoint at {source}, and it is no hub id (owner/name)")
    try:
        import huggingface_hub

        return Path(huggingface_hub.hf_hub_download(source, "config.json"))
    except Exception as error:  # The hub's client raises a dozen kinds, from HTTP, sockets and the cache.
        raise ArtefactError(
            f"the hub did not give config.json of {source} ({type(error).__name__}): "
            "check the spelling and the connection, or name a local config.json"
        ) from None


def read_architecture(source: Path) -> Architecture:
    """Of a config.json or of the directory that holds it. Raises: ArtefactError naming what it lacks."""
    path = source / "config.json" if source.is_dir() else source
    try:
        config = json.loads(read_at_most(path))
        names = list(config.get("architectures") or [])
    except (OSError, ValueError, AttributeError):
        raise ArtefactError(f"{path} is not a readable config.json of a Hugging Face checkpoint") from None
    name = next((each for each in names if each in FAMILIES), None)
    if name is None:
        raise ArtefactError(
            f"the architecture {', '.join(map(str, names)) or '(none named)'} of {path} is not known here: "
            f"known are {', '.join(FAMILIES)}"
        )
    try:
        return _architecture(name, FAMILIES[name], config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ArtefactError(f"{path} lacks or garbles what a {name} needs ({error})") from None


def _architecture(name: str, family: Family, config: Mapping[str, Any]) -> Architecture:
    hidden, layers = _dimension(config, "hidden_size"), _dimension(config, "num_hidden_layers")
    heads, vocab = _dimension(config, "num_attention_heads"), _dimension(config, "vocab_size")
    head_dim = int(config.get("head_dim") or family.head_dim or hidden // heads)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    queries, keys = heads * head_dim, kv_heads * head_dim
    linear = layers * (2 * hidden * queries + 2 * hidden * keys)
    channels = layers * (queries + 2 * keys + hidden)
    kept = layers * (family.norms * hidden + (2 * head_dim if family.qk_norm else 0))
    if family.qkv_bias or config.get("attention_bias"):
        kept += layers * (queries + 2 * keys + (0 if family.qkv_bias else hidden))
    active = linear
    blocks = _feed_forward(config, layers)
    for block in blocks:
        linear += block.experts * 3 * hidden * block.size
        active += block.used * 3 * hidden * block.size
        channels += block.experts * (2 * block.size + hidden)
        kept += block.router
        if config.get("mlp_bias"):
            kept += 2 * block.size + hidden
    tied = config.get("tie_word_embeddings")
    table = vocab * hidden
    return Architecture(
        name=name,
        layers=layers,
        hidden_size=hidden,
        intermediate_size=max(block.size * block.used for block in blocks),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab,
        max_positions=int(config.get("max_position_embeddings") or 0),
        linear=linear,
        active_linear=active,
        channels=channels,
        kept=kept,
        embedding=table,
        lm_head=0 if (family.tied if tied is None else tied) else table,
        window=int(config.get("sliding_window") or 0) if config.get("use_sliding_window", True) else 0,
    )


class _Block(NamedTuple):
    """A feed-forward block: its intermediate size, parameters of its router, experts, experts a token."""

    size: int
    router: int = 0
    experts: int = 1
    used: int = 1


def _feed_forward(config: Mapping[str, Any], layers: int) -> list[_Block]:
    hidden = _dimension(config, "hidden_size")
    experts = int(config.get("num_local_experts") or config.get("num_experts") or 0)
    if not experts:
        return [_Block(_dimension(config, "intermediate_size"))] * layers
    used = _dimension(config, "num_experts_per_tok")
    size = int(config.get("moe_intermediate_size") or _dimension(config, "intermediate_size"))
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    step, dense = int(config.get("decoder_sparse_step") or 1), set(config.get("mlp_only_layers") or [])
    blocks = []
    for layer in range(layers):
        if layer in dense or (layer + 1) % step:
            blocks.append(_Block(_dimension(config, "intermediate_size")))
            continue
        blocks.append(_Block(size, experts * hidden, experts, used))
        if shared:
            blocks.append(_Block(shared, hidden))  # Its gate is a matrix of one row.
    return blocks


def _dimension(config: Mapping[str, Any], name: str) -> int:
    value = int(config[name])
    if value < 1:
        raise ValueError(f"{name} is below 1")
    return value
