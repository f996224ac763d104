"""Counts what Whisper computes, whoever asks it: the same on a busy machine as on a quiet one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ctranslate2

# Of all models opened after `count`: seconds that were encoded, padding included; steps of the decoder, each
# for all rows of a run; tokens that were decoded, each beam and draw counted; tokens whose times were found.
DONE: Counter[str] = Counter()
FRAMES_PER_S = 100


class _Counted(ctranslate2.models.Whisper):  # type: ignore[misc]
    def encode(self, features: Any, **options: Any) -> Any:
        rows, _, frames = features.shape
        DONE["encoded"] += rows * frames // FRAMES_PER_S
        return super().encode(features, **options)

    def generate(self, features: Any, prompts: Any, **options: Any) -> Any:
        results = super().generate(features, prompts, **options)
        DONE["steps"] += max(max(map(len, one.sequences_ids)) + 1 for one in results)
        wide = max(options.get("beam_size", 5), options.get("num_hypotheses", 1))
        DONE["decoded"] += wide * sum(max(map(len, one.sequences_ids)) + 1 for one in results)
        return results

    def align(self, features: Any, start: Any, tokens: Any, frames: Any, **options: Any) -> Any:
        DONE["aligned"] += sum(map(len, tokens))
        return super().align(features, start, tokens, frames, **options)


def count() -> None:
    """Counts in `DONE` what models do that are opened from now on."""
    ctranslate2.models.Whisper = _Counted
