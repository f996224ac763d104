"""Calls the other models: speech and vision inside the same Triton (BLS), the llm over its gRPC.

Calls block; `check` raises to give up. `pb_utils` comes from the glue: only a stub process can import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from trimodal import trace
from trimodal.assistant.llm_connection import LlmConnection
from trimodal.assistant.settings import AssistantSettings
from trimodal.assistant.values import HEARD, ImageLabels
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import RequestError
from trimodal.trace import Span
from trimodal.triton.calls import Gate, infer

Check = Callable[[], None]
_CLIENTS_FIELDS = ("image", "audio", "audio_int16", "policy", "language")


class Models:
    """The models named in `settings`. Every call raises RequestError as the called model would."""

    def __init__(self, pb_utils: Any, settings: AssistantSettings) -> None:
        self._pb_utils = pb_utils
        self._infer = partial(infer, pb_utils, fields=_CLIENTS_FIELDS)
        self._settings = settings
        self._gate = Gate()
        self.answer = LlmConnection(settings.grpc_address, settings.llm).answer

    def hear(self, samples: Samples, stream: int, check: Check, spans: list[Span] | None = None) -> str:
        """Recognises float32[n], 16 kHz mono, n > 0, as the stream of a random id, 1 to 2^63 - 1.

        `spans` gets what took the speech model how long; None: it is not asked.
        """
        pb = self._pb_utils
        size = round(self._settings.chunk_s * SAMPLE_RATE)
        pieces = [samples[at : at + size] for at in range(0, len(samples), size)]
        # At least 20 ms are in a piece that is not the last: a short rest stays with the one before it.
        if len(pieces) > 1 and len(pieces[-1]) < SAMPLE_RATE:
            pieces[-2:] = [np.concatenate(pieces[-2:])]
        words, ended = [], False
        # An answer that waits until its piece is heard, and an END that brings no audio: so that there is
        # never more than a window under way when the stream is to stop.
        options: dict[str, Any] = {"policy": "file", "max_pending_s": 0}
        if spans is not None:
            options[trace.NAME] = True
        try:
            for number, piece in enumerate(pieces):
                check()
                # Of one piece START and END are one request: any length is taken then.
                flags = pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START if number == 0 else 0
                ended = len(pieces) == 1
                flags |= pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END if ended else 0
                with self._gate.waiting(check):
                    words.append(self._chunk(stream, piece, flags, {} if number else options, spans))
            if not ended:
                check()
                ended = True
                with self._gate.waiting(check):
                    end = pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
                    words.append(self._chunk(stream, None, end, spans=spans))
        finally:
            if not ended:
                self.stop_hearing(stream)
        return "".join(words).strip()

    def stop_hearing(self, stream: int) -> None:
        """Frees the stream at once: a call that waits for its words ends as cancelled."""
        pb = self._pb_utils
        # Its START drops the open stream of that number, its END what it has just opened. Speech that was
        # to be heard at its END is not dropped: the number is free by then.
        flags = pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START | pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
        with suppress(RequestError):
            self._chunk(stream, None, flags)

    def see(self, image: bytes, check: Check) -> ImageLabels:
        """What the image file shows."""
        with self._gate.waiting(check):
            inputs = {"image": np.array([[image]], dtype=object)}
            outputs = self._infer(self._settings.vision, inputs, ("labels", "scores"))
        return ImageLabels(
            tuple(bytes(label).decode(errors="replace") for label in outputs["labels"]),
            tuple(float(score) for score in outputs["scores"]),
        )

    def _chunk(
        self,
        stream: int,
        samples: Samples | None,
        flags: int,
        parameters: Mapping[str, Any] | None = None,
        spans: list[Span] | None = None,
    ) -> str:
        inputs = {} if samples is None else {"audio": samples[None]}
        more: dict[str, Any] = {"correlation_id": stream, "flags": flags, "parameters": parameters or {}}
        wanted = ["committed"]
        # It comes with the stream's last answer; a call fails whose outputs are not all there.
        if spans is not None and flags & self._pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            wanted.append(trace.NAME)
        outputs = self._infer(self._settings.speech, inputs, wanted, **more)
        if trace.NAME in outputs and spans is not None:
            spans += [{**one, "of": HEARD} for one in trace.read(outputs)]
        return bytes(outputs["committed"][0]).decode()
