"""Compares exported Whisper graphs with transformers' own forward pass, number by number.

Several batch sizes and lengths, a prompt and some steps after it. It covers what the
exporter may get wrong: constants where sizes are free, masks, places, caches, heads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from speech_checkpoint import Checkpoint
from speech_torch import encode as encode_with_torch

from trimodal.build_support import progress
from trimodal.speech.features import FRAMES_PER_S
from trimodal.speech.onnx_graphs import WhisperGraphs

BATCHES = (1, 3)
STEPS = 5


def largest_errors(checkpoint: Checkpoint, directory: Path, contexts_s: list[float]) -> dict[str, float]:
    """Largest absolute errors of hidden states, logits and alignment over all cases, and spreads."""
    import torch

    graphs = WhisperGraphs(directory, device="cpu", threads=torch.get_num_threads())
    errors = {"hidden_error_max": 0.0, "logit_error_max": 0.0, "alignment_error_max": 0.0}
    spreads = {"hidden_std": 0.0, "logit_std": 0.0}
    random = np.random.default_rng(0)
    longest = round(contexts_s[-1] * FRAMES_PER_S)
    lengths = sorted({round(contexts_s[0] * FRAMES_PER_S), longest, longest // 6 * 2})
    checkpoint.model.set_attn_implementation("eager")  # The only one that returns its weights.
    cases = [(batch, frames) for batch in BATCHES for frames in lengths]
    with progress("Comparing the graphs with torch", total=len(cases)) as advance, torch.inference_mode():
        for batch, frames in cases:
            features = random.standard_normal((batch, checkpoint.config.num_mel_bins, frames), np.float32) / 2
            hidden = encode_with_torch(checkpoint, features)
            crossed = graphs.encode(features, hidden=True)
            _raise(errors, "hidden_error_max", crossed["hidden"].numpy(), hidden)
            decoding = graphs.begin(crossed)
            tokens = random.integers(0, checkpoint.config.vocab_size, (batch, 4 + STEPS))
            logits, alignment = _forward(checkpoint, tokens, hidden)
            for name, values in (("hidden_std", hidden), ("logit_std", logits)):
                spreads[name] = max(spreads[name], float(values.std()))
            done = 0
            for count in (2, 2, *[1] * STEPS):  # A prompt in two parts, then token by token.
                found, weights = decoding.step(tokens[:, done : done + count])
                _raise(errors, "alignment_error_max", weights, alignment[:, :, done : done + count])
                done += count
                _raise(errors, "logit_error_max", found, logits[:, done - 1])
            advance()
    return errors | spreads


def _forward(checkpoint: Checkpoint, tokens: np.ndarray, hidden: Any) -> tuple[Any, Any]:
    """transformers' logits [batch, n, vocabulary] and alignment [batch, heads, n, positions]; no caches."""
    import torch

    out = checkpoint.model.model.decoder(
        input_ids=torch.as_tensor(tokens),
        encoder_hidden_states=hidden,
        use_cache=False,
        output_attentions=True,
    )
    # In the order of the graph: by layer, then as the checkpoint names the heads.
    pairs = sorted(checkpoint.alignment_heads, key=lambda pair: pair[0])
    alignment = torch.stack([out.cross_attentions[layer][:, head] for layer, head in pairs], 1)
    return checkpoint.model.proj_out(out.last_hidden_state), alignment


def _raise(errors: dict[str, float], name: str, found: np.ndarray, expected: Any) -> None:
    errors[name] = max(errors[name], float(np.abs(found - expected.numpy()).max()))
