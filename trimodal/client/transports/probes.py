"""Asks a model for a sign of life: the smallest request that it answers or refuses without computing.

Triton 2.51 calls a model ready whose process was killed; a request to it fails after a second. The llm's
engine is a process of its own, so its model is asked for that too.
"""

from __future__ import annotations

import numpy as np

from trimodal.client.transports.base import Parameter, Request
from trimodal.client.transports.tensors import strings
from trimodal.errors import RequestError, Unavailable

_NOTHING = strings([b""]).reshape(-1, 1)
# An option that no stream has is refused before one is opened.
_NO_STREAM: dict[str, Parameter] = {
    "sequence_id": 1,
    "sequence_start": True,
    "sequence_end": True,
    "policy": "none",
}
PROBES = {
    probe.model: probe
    for probe in (
        Request("assistant", {"history": strings([b"[]"])}),
        Request("embedding", {"text_input": _NOTHING}),
        Request("llm", {}, parameters={"probe": True}),
        Request("speech", {}, parameters=_NO_STREAM),
        Request("speech_recognize", {"window": np.zeros((1, 0), np.float32)}),
        Request("vision_classify", {"pixels": np.zeros((1, 3, 1, 1), np.uint8)}),
        Request("vision_preprocess", {"image": _NOTHING}),
        Request("vision_rank", {"logits": np.zeros((1, 1), np.float32)}),
    )
}
DECOUPLED = ("assistant", "llm")
NEEDS = {
    "assistant": ("llm",),
    "speech": ("speech_recognize",),
    "vision": ("vision_preprocess", "vision_classify", "vision_rank"),
}
"""What a model asks before it answers: without these it cannot. (The assistant hears and sees only where it
is given something.)"""


def alive(error: RequestError) -> bool:
    """Whether a model that refuses a probe like this works."""
    return not (isinstance(error, Unavailable) or is_dead(error))


def is_dead(error: RequestError) -> bool:
    """Whether this is what Triton says of a model whose process is gone; nothing has run."""
    return "is not healthy" in str(error)
