"""Makes LoRA adapters for SmolLM2, without a library: random weights of one projection in every layer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

NAMES = ("first", "second")
RANK = 8
_HIDDEN, _LAYERS = 576, 30
_CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none"}


def write_adapters(directory: Path) -> None:
    """A directory for each of NAMES, as PEFT writes them."""
    for seed, name in enumerate(NAMES):
        random = np.random.default_rng(seed)
        header, blocks, at = {}, [], 0
        for layer in range(_LAYERS):
            for side, shape, scale in (("A", (RANK, _HIDDEN), 0.05), ("B", (_HIDDEN, RANK), 0.3)):
                block = random.normal(0, scale, shape).astype("<f4").tobytes()
                key = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{side}.weight"
                header[key] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(block)]}
                blocks.append(block)
                at += len(block)
        told = json.dumps(header).encode()
        place = directory / name
        place.mkdir(parents=True)
        file = len(told).to_bytes(8, "little") + told + b"".join(blocks)
        (place / "adapter_model.safetensors").write_bytes(file)
        (place / "adapter_config.json").write_text(json.dumps(_CONFIG))
