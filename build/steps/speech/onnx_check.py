"""Compares exported Whisper graphs with transformers' own forward pass, number by number, and on audio.

Several batch sizes and lengths, a prompt and some steps after it. It covers what the exporter
may get wrong: constants where sizes are free, masks, places, caches, heads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from steps.speech.check import Encode, Write, encode_with_torch
from steps.speech.checkpoint import Checkpoint

from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.speech.engines.onnxruntime import WhisperGraphs
from trimodal.speech.whisper.features import FRAMES_PER_S, Features
from trimodal.speech.whisper.graphs import Floats
from trimodal.speech.whisper.greedy import Greedy
from trimodal.speech.whisper.rows import Row, Rules

# Batches in every length, and the largest that a server forms in the shortest.
BATCHES, LARGEST = (1, 3), 8
STEPS = 5
# Largest error as a share of the spread of what is compared. Rounding alone gives FP32 1e-5, FP16 5e-3.
MAX_ERROR = {"fp32": 1e-3, "fp16": 1e-2}


def largest_errors(checkpoint: Checkpoint, directory: Path, contexts_s: list[float]) -> dict[str, float]:
    """Largest absolute errors of hidden states, logits and alignment over all cases, and spreads."""
    import torch

    graphs = WhisperGraphs(directory, device="cpu", threads=torch.get_num_threads())
    errors = {"hidden_error_max": 0.0, "logit_error_max": 0.0, "alignment_error_max": 0.0}
    spreads = {"hidden_std": 0.0, "logit_std": 0.0}
    random = np.random.default_rng(0)
    shortest, longest = (round(contexts_s[at] * FRAMES_PER_S) for at in (0, -1))
    lengths = sorted({shortest, longest, longest // 6 * 2})
    checkpoint.model.set_attn_implementation("eager")  # The only one that returns its weights.
    cases = [(batch, frames) for batch in BATCHES for frames in lengths] + [(LARGEST, lengths[0])]
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
                _raise(errors, "logit_error_max", found.numpy(), logits[:, done - 1])
            advance()
    return errors | spreads


def refuse_wrong(errors: dict[str, float], precision: str) -> None:
    """Raises: ArtefactError when an error is more than rounding in this precision explains."""
    allowed = {"hidden_error_max": errors["hidden_std"], "logit_error_max": errors["logit_std"]}
    for name, spread in (allowed | {"alignment_error_max": 1.0}).items():
        if not errors[name] <= MAX_ERROR[precision] * spread:
            raise ArtefactError(
                f"the {precision} graphs differ from torch ({name} {errors[name]:.2g}, more than "
                f"{MAX_ERROR[precision]:g} × {spread:.2g}): nothing was replaced"
            )


def runtime(directory: Path, checkpoint: Checkpoint) -> tuple[Encode, Write]:
    """The built graphs' encoder, and greedy decoding without the serving engine's own limits."""
    import torch

    graphs = WhisperGraphs(directory, device="cpu", threads=torch.get_num_threads())
    never, not_first = checkpoint.suppressed()
    places = checkpoint.config.max_target_positions
    end = checkpoint.token_id("<|endoftext|>")
    greedy = Greedy(Rules(end=end, never=never, not_first=not_first, positions=places))

    def encode(features: Features) -> Floats:
        hidden = graphs.encode(features, hidden=True)["hidden"].numpy()
        return np.asarray(hidden, np.float32)  # FP16 graphs give FP16.

    def write(features: Features, prompt: list[int]) -> list[list[int]]:
        rows = [Row(most_tokens=places) for _ in features]
        decoding = graphs.start(features)
        scores, attention = decoding.step(np.array([prompt] * len(rows), np.int64))
        greedy.decode(rows, decoding, scores, attention, 0.0)
        return [row.tokens for row in rows]

    return encode, write


def _forward(checkpoint: Checkpoint, tokens: NDArray[np.int64], hidden: Any) -> tuple[Any, Any]:
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


def _raise(errors: dict[str, float], name: str, found: NDArray[Any], expected: Any) -> None:
    difference = np.abs(np.asarray(found, np.float32) - expected.numpy())
    errors[name] = float(np.maximum(errors[name], difference.max()))  # NaN stays; max() would drop it.
