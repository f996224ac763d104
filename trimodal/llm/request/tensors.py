"""Converts deltas to the llm model's output tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.llm.request.outputs import Delta


def columns(delta: Delta) -> dict[str, NDArray[Any]]:
    """Tensor name → array [1]; the names and types of model_repository/llm/config.pbtxt.

    `predicted_ttft_ms` is -1 when it was not predicted.
    """
    rows: dict[str, tuple[Any, type]] = {
        "text_output": (delta.text.encode(), np.object_),
        "finish_reason": (delta.finish_reason.encode(), np.object_),
        "prompt_tokens": (delta.prompt_tokens, np.int32),
        "cached_tokens": (delta.cached_tokens, np.int32),
        "completion_tokens": (delta.completion_tokens, np.int32),
    }
    if note := delta.note:
        # JSON has no nan, and Triton's HTTP endpoint would write one all the same.
        predicted = note.predicted_ttft_s * 1e3 if math.isfinite(note.predicted_ttft_s) else -1.0
        rows |= {
            "cache": (note.cache.encode(), np.object_),
            "similarity": (note.similarity, np.float32),
            "trimmed": (note.trimmed.encode(), np.object_),
            "queue_ms": (note.queue_s * 1e3, np.float32),
            "predicted_ttft_ms": (predicted, np.float32),
        }
    return {name: np.array([value], kind) for name, (value, kind) in rows.items()}
