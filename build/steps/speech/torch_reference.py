"""Runs transformers' Whisper, which builds are compared with.

It takes any context up to 30 s, where transformers' own encoder takes 30 s alone, and decodes greedily
without the rules that its `generate` adds.
"""

from __future__ import annotations

from typing import Any

from steps.speech.checkpoint import Checkpoint

# Half of the decoder's places, as CTranslate2 and openai-whisper allow beside a prompt.
MOST_TOKENS_SHARE = 2


def encode(checkpoint: Checkpoint, features: Any) -> Any:
    """Encoder output [batch, frames / 2, width] of features [batch, mel, frames], at most 30 s long.

    transformers insists on 30 s: here, a shorter context uses the first positions.
    """
    import torch
    from torch.nn.functional import gelu

    encoder = checkpoint.model.model.encoder
    hidden = gelu(encoder.conv2(gelu(encoder.conv1(torch.as_tensor(features))))).permute(0, 2, 1)
    hidden = hidden + encoder.embed_positions.weight[: hidden.shape[1]]
    for layer in encoder.layers:
        hidden = layer(hidden, None)
    return encoder.layer_norm(hidden)


def greedy(checkpoint: Checkpoint, hidden: Any, language: str = "") -> list[list[int]]:
    """The ids that torch writes for each row of encoder output, the end token included where it came."""
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    never, not_first = checkpoint.suppressed()
    end = checkpoint.token_id("<|endoftext|>")
    ids = torch.tensor([checkpoint.prompt(language)] * len(hidden))
    cache = EncoderDecoderCache(
        DynamicCache(config=checkpoint.config), DynamicCache(config=checkpoint.config)
    )
    written: list[list[int]] = [[] for _ in hidden]
    for step in range(checkpoint.config.max_target_positions // MOST_TOKENS_SHARE):
        out = checkpoint.model.model.decoder(
            input_ids=ids, encoder_hidden_states=hidden, past_key_values=cache, use_cache=True
        )
        logits = checkpoint.model.proj_out(out.last_hidden_state[:, -1])
        logits[:, never + (not_first if step == 0 else [])] = -torch.inf
        ids = logits.argmax(-1, keepdim=True)
        for row, token in zip(written, ids[:, 0].tolist(), strict=True):
            if not row or row[-1] != end:
                row.append(token)
        if all(row[-1] == end for row in written):
            break
    return written
