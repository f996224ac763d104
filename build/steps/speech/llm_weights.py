"""Whisper's weights as TensorRT-LLM's checkpoint: a config.json and rank0.safetensors for each half.

Names, fusions and configuration are those that TensorRT-LLM 1.2's converter of Whisper writes, which reads
OpenAI's own files alone; here they come from a Hugging Face checkpoint, so that any fine-tune will do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from steps.speech.checkpoint import Checkpoint
from torch import Tensor

Weights = dict[str, Tensor]
HALVES = ("encoder", "decoder")
# Each layer's parts: name in TensorRT-LLM → name in transformers.
ENCODER_LAYER = {
    "attention_layernorm": "self_attn_layer_norm",
    "attention.dense": "self_attn.out_proj",
    "mlp_layernorm": "final_layer_norm",
    "mlp.fc": "fc1",
    "mlp.proj": "fc2",
}
DECODER_LAYER = {
    "self_attention_layernorm": "self_attn_layer_norm",
    "self_attention.dense": "self_attn.out_proj",
    "cross_attention_layernorm": "encoder_attn_layer_norm",
    "cross_attention.dense": "encoder_attn.out_proj",
    "mlp_layernorm": "final_layer_norm",
    "mlp.fc": "fc1",
    "mlp.proj": "fc2",
}


def write_checkpoint(checkpoint: Checkpoint, directory: Path) -> None:
    """FP16, for one GPU, into `directory`/encoder and `directory`/decoder."""
    state = {name: value.half() for name, value in checkpoint.model.model.state_dict().items()}
    weights = {"encoder": encoder_weights(state), "decoder": decoder_weights(state)}
    for half, config in zip(HALVES, (encoder_config(checkpoint), decoder_config(checkpoint)), strict=True):
        (directory / half).mkdir(parents=True)
        (directory / half / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        whole = {name: value.contiguous() for name, value in weights[half].items()}
        save_file(whole, directory / half / "rank0.safetensors")


def encoder_weights(state: Mapping[str, Tensor]) -> Weights:
    """Of transformers' `model.state_dict()`; convolutions are two-dimensional there, one wide."""
    weights = {"transformer.position_embedding.weight": state["encoder.embed_positions.weight"]}
    for conv in ("conv1", "conv2"):
        weights[f"transformer.{conv}.weight"] = state[f"encoder.{conv}.weight"].unsqueeze(-1)
        weights[f"transformer.{conv}.bias"] = state[f"encoder.{conv}.bias"]
    for index in range(_layers(state, "encoder")):
        source, target = f"encoder.layers.{index}", f"transformer.layers.{index}"
        weights |= _parts(state, source, target, ENCODER_LAYER)
        weights |= _fused(state, f"{source}.self_attn", f"{target}.attention.qkv")
    return weights | _parts(state, "encoder", "transformer", {"ln_f": "layer_norm"})


def decoder_weights(state: Mapping[str, Tensor]) -> Weights:
    """Of transformers' `model.state_dict()`; the last product is that of the embeddings."""
    weights = {
        "transformer.vocab_embedding.weight": state["decoder.embed_tokens.weight"],
        "transformer.position_embedding.weight": state["decoder.embed_positions.weight"],
        "lm_head.weight": state["decoder.embed_tokens.weight"].clone(),  # safetensors shares nothing.
    }
    for index in range(_layers(state, "decoder")):
        source, target = f"decoder.layers.{index}", f"transformer.layers.{index}"
        weights |= _parts(state, source, target, DECODER_LAYER)
        weights |= _fused(state, f"{source}.self_attn", f"{target}.self_attention.qkv")
        weights |= _fused(state, f"{source}.encoder_attn", f"{target}.cross_attention.qkv")
    return weights | _parts(state, "decoder", "transformer", {"ln_f": "layer_norm"})


def encoder_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """`config.json` of the encoder."""
    config = checkpoint.config
    return {
        "architecture": "WhisperEncoder",
        "dtype": "float16",
        "num_hidden_layers": config.encoder_layers,
        "num_attention_heads": config.encoder_attention_heads,
        "hidden_size": config.d_model,
        "max_position_embeddings": config.max_source_positions,
        "has_position_embedding": True,
        "n_mels": config.num_mel_bins,
        "vocab_size": config.vocab_size,
        "hidden_act": "gelu",
        "num_languages": len(checkpoint.languages),
        "quantization": {"quant_algo": None},
    }


def decoder_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """`config.json` of the decoder. LayerNorm, and before each part, are 0 in TensorRT-LLM's numbering."""
    config = checkpoint.config
    heads = config.decoder_attention_heads
    return {
        "architecture": "DecoderModel",
        "dtype": "float16",
        "logits_dtype": "float32",
        "num_hidden_layers": config.decoder_layers,
        "num_attention_heads": heads,
        "hidden_size": config.d_model,
        "norm_epsilon": 1e-5,
        "vocab_size": config.vocab_size,
        "hidden_act": "gelu",
        "use_parallel_embedding": False,
        "embedding_sharding_dim": 0,
        "max_position_embeddings": config.max_target_positions,
        "use_prompt_tuning": False,
        "head_size": config.d_model // heads,
        "has_position_embedding": True,
        "layernorm_type": 0,
        "has_attention_qkvo_bias": True,
        "has_mlp_bias": True,
        "has_model_final_layernorm": True,
        "has_embedding_layernorm": False,
        "has_embedding_scale": False,
        "ffn_hidden_size": config.decoder_ffn_dim,
        "q_scaling": 1.0,
        "layernorm_position": 0,
        "relative_attention": False,
        "max_distance": 0,
        "num_buckets": 0,
        "model_type": "whisper",
        "rescale_before_lm_head": False,
        "encoder_hidden_size": config.d_model,
        "encoder_num_heads": config.encoder_attention_heads,
        "encoder_head_size": None,
        "skip_cross_kv": False,
        "quantization": {"quant_algo": None},
    }


def _layers(state: Mapping[str, Tensor], half: str) -> int:
    return sum(name.startswith(f"{half}.layers.") and name.endswith(".fc1.weight") for name in state)


def _parts(state: Mapping[str, Tensor], source: str, target: str, names: Mapping[str, str]) -> Weights:
    return {
        f"{target}.{ours}.{kind}": state[f"{source}.{theirs}.{kind}"]
        for ours, theirs in names.items()
        for kind in ("weight", "bias")
    }


def _fused(state: Mapping[str, Tensor], source: str, target: str) -> Weights:
    """Query, key and value in one; Whisper's keys have no bias."""
    query = state[f"{source}.q_proj.bias"]
    biases = query, torch.zeros_like(query), state[f"{source}.v_proj.bias"]
    return {
        f"{target}.weight": torch.cat([state[f"{source}.{part}_proj.weight"] for part in "qkv"]),
        f"{target}.bias": torch.cat(biases),
    }
