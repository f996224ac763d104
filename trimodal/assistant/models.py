"""Calls the other models: speech and vision inside the same Triton (BLS), the llm over its gRPC.

Calls block; `check` raises to give up. `pb_utils` comes from the glue: only a stub process can import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal import trace
from trimodal.assistant.llm_connection import LlmConnection, OnCancel
from trimodal.assistant.settings import AssistantSettings
from trimodal.assistant.values import HEARD, NO_VERSIONS, Label, Labels, Piece, Versions
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import RequestError
from trimodal.trace import Span
from trimodal.triton.calls import Gate, infer

Check = Callable[[], None]
_CLIENTS_FIELDS = ("image", "audio", "audio_int16", "policy", "language")


class Models:
    """The models named in `settings`. Every call raises RequestError as the called model would.

    `versions`: model → the version to ask; of one that is not among them the highest.
    """

    def __init__(self, pb_utils: Any, settings: AssistantSettings) -> None:
        self._pb_utils = pb_utils
        self._settings = settings
        self._gate = Gate()
        self._llm = LlmConnection(settings.grpc_address, settings.llm)

    def answer(
        self,
        inputs: Mapping[str, NDArray[Any]],
        on_cancel: OnCancel,
        versions: Versions = NO_VERSIONS,
        **more: Any,
    ) -> Iterator[Piece]:
        """Streams the llm's answer: `LlmConnection.answer`, which has what `more` may be."""
        return self._llm.answer(inputs, on_cancel, version=versions.get(self._settings.llm, ""), **more)

    def hear(
        self,
        samples: Samples,
        stream: int,
        check: Check,
        spans: list[Span] | None = None,
        versions: Versions = NO_VERSIONS,
    ) -> str:
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
        model = _named(self._settings.speech, versions)
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
                    words.append(self._chunk(model, stream, piece, flags, {} if number else options, spans))
            if not ended:
                check()
                ended = True
                with self._gate.waiting(check):
                    end = pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
                    words.append(self._chunk(model, stream, None, end, spans=spans))
        finally:
            if not ended:
                self.stop_hearing(stream, versions)
        return "".join(words).strip()

    def stop_hearing(self, stream: int, versions: Versions = NO_VERSIONS) -> None:
        """Frees the stream at once: a call that waits for its words ends as cancelled."""
        pb = self._pb_utils
        # Its START drops the open stream of that number, its END what it has just opened. Speech that was
        # to be heard at its END is not dropped: the number is free by then.
        flags = pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START | pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
        with suppress(RequestError):
            self._chunk(_named(self._settings.speech, versions), stream, None, flags)

    def see(self, image: bytes, check: Check, versions: Versions = NO_VERSIONS) -> Labels:
        """What the image file shows."""
        with self._gate.waiting(check):
            inputs = {"image": np.array([[image]], dtype=object)}
            model = _named(self._settings.vision, versions)
            outputs = self._call(model, inputs, ("labels", "scores"))
        return tuple(
            Label(label=bytes(label).decode(errors="replace"), score=float(score))
            for label, score in zip(outputs["labels"], outputs["scores"], strict=True)
        )

    def _chunk(
        self,
        model: str,
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
        outputs = self._call(model, inputs, wanted, **more)
        if trace.NAME in outputs and spans is not None:
            spans += [{**one, "of": HEARD} for one in trace.read(outputs)]
        return bytes(outputs["committed"][0]).decode()

    def _call(
        self, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str], **more: Any
    ) -> dict[str, NDArray[Any]]:
        try:
            return infer(self._pb_utils, model, inputs, outputs, _CLIENTS_FIELDS, **more)
        except RequestError as error:
            name, _, version = model.partition("@")
            raise self._llm.of_version(error, name, version) from None


def _named(model: str, versions: Versions) -> str:
    version = versions.get(model)
    return f"{model}@{version}" if version else model
