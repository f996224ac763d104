"""A recogniser for sessions that is another model of the same Triton: one blocking call a window.

Calls come from many threads at once; Triton's dynamic batcher gathers the windows
that wait. `pb_utils` is handed over by the glue: only a stub process can import it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from trimodal.audio.values import Word
from trimodal.errors import InternalError, InvalidArgument, RequestError, Unavailable
from trimodal.speech.live.request import MAX_PROMPT
from trimodal.speech.values import Recognition, Window

OUTPUTS = (
    "words",
    "word_starts",
    "word_ends",
    "word_probabilities",
    "language",
    "no_speech_probability",
    "average_log_probability",
    "compression_ratio",
    "rejected",
)
# What a client chose; a window that does not fit (max_window_s above the model's context) is our fault.
_REFUSAL = re.compile(r"(prompt|language):")


class TritonRecognizer:
    """`recognize(window)` through the model named `model`."""

    def __init__(self, pb_utils: Any, model: str) -> None:
        self._pb_utils = pb_utils
        self._model = model

    def __call__(self, window: Window) -> Recognition:
        """What is heard in `window`.

        Raises:
            RequestError: with the recogniser's own code.
        """
        pb = self._pb_utils
        # Always the same three inputs: Triton only batches requests that have the same set.
        request = pb.InferenceRequest(
            model_name=self._model,
            requested_output_names=list(OUTPUTS),
            inputs=[
                pb.Tensor("window", window.samples[None]),
                pb.Tensor("prompt", np.array([[window.prompt[-MAX_PROMPT:].encode()]], dtype=object)),
                pb.Tensor("language", np.array([[window.language.encode()]], dtype=object)),
            ],
        )
        response = request.exec()
        if response.has_error():
            raise self._error(response.error())
        out = {name: pb.get_output_tensor_by_name(response, name).as_numpy().reshape(-1) for name in OUTPUTS}
        columns = (out["words"], out["word_starts"], out["word_ends"], out["word_probabilities"])
        words = (
            Word(text.decode(), float(start), float(end), float(probability))
            for text, start, end, probability in zip(*columns, strict=True)
        )
        return Recognition(
            tuple(words),
            language=out["language"][0].decode(),
            no_speech_probability=float(out["no_speech_probability"][0]),
            average_log_probability=float(out["average_log_probability"][0]),
            compression_ratio=float(out["compression_ratio"][0]),
            rejected=out["rejected"][0].decode(),
        )

    def _error(self, error: Any) -> RequestError:
        codes = self._pb_utils.TritonError
        kinds: dict[Any, type[RequestError]] = {
            codes.INVALID_ARG: InvalidArgument,
            codes.UNAVAILABLE: Unavailable,
        }
        told = error.message()
        # Triton 2.51 hands an error of a called model on without its code; a refusal begins with the input.
        kind: type[RequestError] = (
            InvalidArgument if _REFUSAL.match(told) else kinds.get(error.code(), InternalError)
        )
        return kind(f"{self._model}: {told}")
