"""Detects voice activity: spans of speech on a stream's sample clock.

Samples must be finite. The policies decide which pause ends a segment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import ArtefactError
from trimodal.speech.settings import VoiceActivity

FRAME = 512  # samples of one judgement, 32 ms: Silero's
_CONTEXT = 64  # samples of the frame before that Silero sees again
_LEAST_SILENCE = 3 * FRAME  # shorter is within a word


@dataclass(slots=True)
class SpeechSpan:
    """Speech from `start` to `end` (None: it goes on), in samples.

    Attributes:
        known: the clock at which the detector was sure of the start; later than it.
        closed: the clock at which it was sure of the end, None while open. Who must decide the
            same whatever the chunks asks for what was known at a moment, not for what is known now.
    """

    start: int
    known: int
    end: int | None = None
    closed: int | None = None


class SpeechDetector(ABC):
    """Judges a stream's audio as it comes: cuts it into frames, and turns a probability a frame into spans.

    One instance a stream. Speech begins at a frame of at least `threshold` and is known after
    `min_speech_ms` in which no frame fell below `neg_threshold`; it ends where 96 ms of frames
    below that begin, none of them at `threshold` again (Silero's own rule, and its own default of
    `neg_threshold`: `threshold` − 0.15).

    Attributes:
        spans: speech that is not forgotten yet, in order; only the last may be open.
    """

    def __init__(
        self, threshold: float = 0.5, neg_threshold: float | None = None, min_speech_ms: float = 96
    ) -> None:
        self._threshold = threshold
        self._low = min(threshold, max(threshold - 0.15, 0.01) if neg_threshold is None else neg_threshold)
        self._least_speech = round(min_speech_ms * SAMPLE_RATE / 1000)
        self._rest: Samples = np.empty(0, np.float32)
        self._received = 0
        self._judged = 0
        self._onset: int | None = None  # of speech that is not known yet
        self._quiet: int | None = None  # where the open span may turn out to have ended
        self._closed_speech = 0
        self.spans: deque[SpeechSpan] = deque()

    @property
    def speech(self) -> int:
        """Samples of speech since the stream began, forgotten ones included."""
        still = self._judged - self.spans[-1].start if self._is_open else 0
        return self._closed_speech + still

    @property
    def _is_open(self) -> bool:
        return bool(self.spans) and self.spans[-1].end is None

    def feed(self, samples: Samples) -> None:
        """Judges float32[n], any n; what does not fill a frame waits for the next samples."""
        self._received += len(samples)
        samples = np.concatenate((self._rest, samples))
        whole = len(samples) // FRAME * FRAME
        self._rest = samples[whole:].copy()  # not a view: it would keep a long chunk alive
        if whole:
            for probability in self.judge(samples[:whole].reshape(-1, FRAME)).tolist():
                self._push(probability)

    def pause(self) -> None:
        """No more audio comes for now: closes an open span where the audio ends."""
        if self._is_open:
            end = min(self._judged, self._received) if self._quiet is None else self._quiet
            self._close(end, self._received)

    def finish(self) -> None:
        """No more audio comes: judges the rest and closes an open span."""
        missing = -len(self._rest) % FRAME
        received = self._received
        if missing:
            self.feed(np.zeros(missing, np.float32))
            self._received = received
        self.pause()
        if self.spans:  # the padding is no audio
            last = self.spans[-1]
            last.known = min(last.known, received)
            last.closed = min(last.closed or received, received)

    def forget(self, before: int) -> None:
        """Drops spans that ended before this sample."""
        while self.spans and (end := self.spans[0].end) is not None and end < before:
            self.spans.popleft()

    @abstractmethod
    def judge(self, frames: Samples) -> NDArray[np.float32]:
        """Probability of speech float32[n] for the next frames float32[n, 512] of this stream."""

    def _push(self, probability: float) -> None:
        begin, self._judged = self._judged, self._judged + FRAME
        if self._is_open:
            if probability >= self._threshold:
                self._quiet = None
            elif probability < self._low and self._quiet is None:
                self._quiet = begin
            if self._quiet is not None and self._judged - self._quiet >= _LEAST_SILENCE:
                self._close(self._quiet, self._judged)
            return
        if self._onset is None and probability >= self._threshold:
            self._onset = begin
        elif probability < self._low:
            self._onset = None
        if self._onset is not None and self._judged - self._onset >= self._least_speech:
            self.spans.append(SpeechSpan(self._onset, self._judged))
            self._onset = None

    def _close(self, end: int, closed: int) -> None:
        span = self.spans[-1]
        span.end, span.closed = end, closed
        self._closed_speech += end - span.start
        self._quiet = None


class EnergyDetector(SpeechDetector):
    """Loud is speech, for tests and load tests: `LEVEL` is the RMS without DC of probability 0.5."""

    LEVEL = 0.01

    def judge(self, frames: Samples) -> NDArray[np.float32]:
        """RMS / (RMS + level) of each frame."""
        rms = frames.std(axis=1)
        return np.asarray(rms / (rms + self.LEVEL), np.float32)


class StreamingSilero(SpeechDetector):
    """Silero VAD v6, as faster-whisper bundles it, with its state carried from chunk to chunk.

    The graph takes frames in sequence, so that a chunk is one call. All streams
    share one ONNX Runtime session; each keeps its own 1.3 kB of state. It takes 0.2 % of
    real time, 0.35 % in 20 ms chunks. Measured: speech turned down
    to a hundredth, clipped at eight times its level, or shifted by a DC of 0.3 is still found;
    at a thousandth it is silence. Steady noise and tones are none.
    """

    def __init__(
        self, threshold: float = 0.5, neg_threshold: float | None = None, min_speech_ms: float = 96
    ) -> None:
        super().__init__(threshold, neg_threshold, min_speech_ms)
        self._session = _silero()
        self._h = np.zeros((1, 1, 128), np.float32)
        self._c = np.zeros((1, 1, 128), np.float32)
        self._context = np.zeros(_CONTEXT, np.float32)

    def judge(self, frames: Samples) -> NDArray[np.float32]:
        """Silero's probabilities; the same as on the whole audio at once."""
        tails = frames[:, -_CONTEXT:]
        contexts = np.vstack((self._context, tails[:-1]))
        self._context = tails[-1].copy()
        seen = np.concatenate((contexts, frames), axis=1)
        probabilities, self._h, self._c = self._session.run(None, {"input": seen, "h": self._h, "c": self._c})
        return np.asarray(probabilities, np.float32)


@lru_cache(maxsize=1)
def _silero() -> Any:
    """The one session. Its single thread is the caller's: no pool, nothing spins.

    Raises ArtefactError: faster-whisper, which brings the graph, is not installed.
    """
    import onnxruntime

    # Found, not imported: faster_whisper itself would bring CTranslate2 and FFmpeg along.
    package = find_spec("faster_whisper")
    path = Path(package.origin or "").parent / "assets/silero_vad_v6.onnx" if package else Path()
    if not path.is_file():
        raise ArtefactError("Silero VAD comes with faster-whisper 1.2: install the extra 'cpu'")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # a 30 s chunk must not leave its memory behind for good
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def detectors(kind: str) -> Callable[[VoiceActivity], SpeechDetector]:
    """What makes the detector of a stream; Silero's network is opened here, once for all streams."""
    if kind == "silero":
        _silero()
    made = EnergyDetector if kind == "energy" else StreamingSilero
    return lambda own: made(own.threshold, own.neg_threshold, own.min_speech_duration_ms)
