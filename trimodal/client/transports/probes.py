"""Asks a model for a sign of life: the smallest request, with the parameter `probe`.

Triton 2.51 calls a model ready whose process was killed; a request to it fails after a second. Our models
answer a probe with nothing, before they look at its tensors; the llm's engine is a process of its own, and
its model is asked for that too. A model that refuses one, such as Triton's own TensorRT backend, lives.
"""

from __future__ import annotations

import numpy as np

from trimodal.client.transports.base import Array, Parameter, Request, named
from trimodal.client.transports.tensors import strings
from trimodal.errors import RequestError, Unavailable

_NOTHING = strings([b""]).reshape(-1, 1)
_STREAM: dict[str, Parameter] = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}


def _probe(model: str, inputs: dict[str, Array], **parameters: Parameter) -> Request:
    return Request(model, inputs, parameters={**parameters, "probe": True})


PROBES = {
    probe.model: probe
    for probe in (
        _probe("assistant", {"history": strings([b"[]"])}),
        _probe("embedding", {"text_input": _NOTHING}),
        _probe("llm", {}),
        _probe("speech", {}, **_STREAM),
        _probe("speech_recognize", {"window": np.zeros((1, 1), np.float32)}),
        _probe("turn", {"audio": np.zeros((1, 1), np.float32)}),
        _probe("vision", {"image": _NOTHING}),
        _probe("vision_classify", {"pixels": np.zeros((1, 3, 1, 1), np.uint8)}),
        _probe("vision_preprocess", {"image": _NOTHING}),
        _probe("vision_rank", {"logits": np.zeros((1, 1), np.float32)}),
    )
}
DECOUPLED = ("assistant", "llm")
PIPELINES = ("vision",)
"""What profile tensorrt runs as a pipeline, which fails when a step answers a probe with nothing."""
NEEDS = {
    "assistant": ("llm",),
    "speech": ("speech_recognize",),
    "vision": ("vision_preprocess", "vision_classify", "vision_rank"),
}
"""What a model asks before it answers: without these it cannot. (The assistant hears and sees only where it
is given something: `stages`.)"""


def stages(request: Request) -> dict[str, tuple[str, ...]]:
    """Stage → the models that it asks, of the request's stages before its answer.

    A response names its stage in `stage`. Triton 2.51 leaves a call between models unanswered where a signal
    stopped the called process just as the call came, and it was then killed (2 of 100 stops).
    """
    if named(request.model)[0] != "assistant":
        return {}
    heard = {"heard": ("speech",)} if {"audio", "audio_int16"} & request.inputs.keys() else {}
    return heard | ({"saw": ("vision", *NEEDS["vision"])} if "image" in request.inputs else {})


def alive(error: RequestError) -> bool:
    """Whether a model that refuses a probe like this works."""
    return not isinstance(error, Unavailable)
