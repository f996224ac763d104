"""Runs the vision models over a batch of requests, with one outcome a request.

`VisionStep` is all of vision in one model, where ONNX Runtime classifies; `PreprocessStep` is its first
part, and a model of its own where Triton's TensorRT backend classifies. A refused request never harms its
neighbours in the batch.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from trimodal.errors import RequestError
from trimodal.metrics import Metrics, counters
from trimodal.paths import artefact_directory
from trimodal.trace import note
from trimodal.vision.artefact import ClassifierArtefact, InputSpec, read_classifier
from trimodal.vision.engines.protocol import ImageClassifier, Pixels, open_engine, runtime_of
from trimodal.vision.rank import Ranked, RankStep
from trimodal.vision.settings import Decoding, Limits, PreprocessSettings, VisionSettings

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class PreprocessStep:
    """Turns image bytes into pixels, the images of a batch side by side on a few threads."""

    def __init__(self, spec: InputSpec, settings: Decoding, metrics: Metrics) -> None:
        from trimodal.vision.preprocess import Preprocessor

        self._preprocessor = Preprocessor(spec, settings, shrink_on_load=settings.shrink_on_load)
        self._threads = settings.decode_threads
        self._pool = ThreadPoolExecutor(settings.decode_threads, thread_name_prefix="decode")
        self._seconds = metrics.histogram(
            "trimodal_vision_decode_seconds", "Bytes of one image to prepared pixels", {}, SECONDS
        )
        self._images = counters(
            "trimodal_vision_images_total", metrics, "Images by outcome", "outcome", ("prepared", "refused")
        )

    @classmethod
    def open(cls, version: Path, settings: PreprocessSettings, metrics: Metrics) -> PreprocessStep:
        """Opens the step for the classifier that `settings` names, relative to the version's directory."""
        service = cls(
            read_classifier(artefact_directory(version, settings.classifier)).input, settings, metrics
        )
        service.warm_up()
        return service

    def warm_up(self) -> None:
        """Prepares a blank picture on each thread: the first request finds all loaded. Not counted."""
        from PIL import Image

        from trimodal.vision.image import decode

        _, height, width = self._preprocessor.shape
        file = io.BytesIO()
        Image.new("RGB", (width + 1, height + 1)).save(file, "JPEG")  # another size: resizing is part of it

        def one(out: Pixels) -> None:
            # Default limits: those of the settings may be for other pictures.
            self._preprocessor.lay_out(self._preprocessor.fit(decode(file.getvalue(), Limits())), out)

        list(self._pool.map(one, np.empty((self._threads, *self._preprocessor.shape), np.uint8)))

    def prepare(self, requests: Sequence[Sequence[bytes]]) -> list[Pixels | RequestError]:
        """Pixels uint8[B, 3, H, W] for each request of B images, or the error of its first bad image."""
        pixels, refusals = self.prepare_batch(requests)
        parts = np.split(pixels, np.cumsum([len(images) for images in requests])[:-1])
        return [refusal or part for refusal, part in zip(refusals, parts, strict=True)]

    def prepare_batch(self, requests: Sequence[Sequence[bytes]]) -> tuple[Pixels, list[RequestError | None]]:
        """Pixels uint8[N, 3, H, W] of all images, and for each request the error of its first bad image.

        The rows of a bad image are not written.
        """
        named = [
            (data, "image" if len(images) == 1 else f"image[{index}]")
            for images in requests
            for index, data in enumerate(images)
        ]
        pixels = np.empty((len(named), *self._preprocessor.shape), np.uint8)
        # A single image stays on this thread: another thread would only cost time.
        run = self._pool.map if len(named) > 1 else map
        errors = iter(list(run(self._one, named, pixels)))
        refusals = []
        for images in requests:
            bad = [error for error in (next(errors) for _ in images) if error is not None]
            refusals.append(bad[0] if bad else None)
        return pixels, refusals

    def close(self) -> None:
        """Ends the decoding threads."""
        self._pool.shutdown()

    def _one(self, named: tuple[bytes, str], out: Pixels) -> RequestError | None:
        data, name = named
        started = time.perf_counter()
        try:
            self._preprocessor.prepare(data, out, name=name)
        except RequestError as error:
            self._images["refused"].increment(1)
            return error
        self._images["prepared"].increment(1)
        self._seconds.observe(time.perf_counter() - started)
        return None


class VisionStep:
    """Turns image bytes into labels and scores, all good requests of a batch in one run of the engine.

    Made on an open engine, it warms all up: each batch size of the settings runs once.
    """

    def __init__(
        self,
        engine: ImageClassifier,
        artefact: ClassifierArtefact,
        settings: VisionSettings,
        metrics: Metrics,
    ) -> None:
        self._engine = engine
        self.preprocess = PreprocessStep(artefact.input, settings, metrics)
        self._rank = RankStep(artefact.labels, settings.top_k)
        self._seconds = metrics.histogram(
            "trimodal_vision_classify_seconds", "One run of the classifier", {}, SECONDS
        )
        self._batches = metrics.histogram(
            "trimodal_vision_classify_batch_size", "Images in one run of the classifier", {}, BATCHES
        )
        self.preprocess.warm_up()
        for size in settings.warm_up_batch_sizes:
            pixels = np.zeros((size, 3, artefact.input.height, artefact.input.width), np.uint8)
            self._rank.rank([engine.classify(pixels)])

    @classmethod
    def open(cls, version: Path, settings: VisionSettings, metrics: Metrics) -> VisionStep:
        """Opens the artefact that `settings` names, relative to the version's directory."""
        artefact = read_classifier(
            artefact_directory(version, settings.artefact), runtime=runtime_of(settings.engine)
        )
        return cls(open_engine(artefact, settings), artefact, settings, metrics)

    def classify(self, requests: Sequence[Sequence[bytes]]) -> list[Ranked | RequestError]:
        """Labels bytes[B, k] and scores float32[B, k] for each request of B images, or why it is refused."""
        began = time.perf_counter()
        pixels, refusals = self.preprocess.prepare_batch(requests)
        note("decode", began, time.perf_counter())
        sizes = [len(images) for images in requests]
        if any(refusals):
            pixels = pixels[np.repeat([refusal is None for refusal in refusals], sizes)]
            sizes = [size for size, refusal in zip(sizes, refusals, strict=True) if refusal is None]
        if not sizes:
            return [refusal for refusal in refusals if refusal]
        started = time.perf_counter()
        logits = self._engine.classify(pixels)
        ended = time.perf_counter()
        self._seconds.observe(ended - started)
        self._batches.observe(len(pixels))
        ranked = iter(self._rank.rank(np.split(logits, np.cumsum(sizes)[:-1])))
        note("classify", started, ended)
        note("rank", ended, time.perf_counter())
        return [refusal or next(ranked) for refusal in refusals]

    def close(self) -> None:
        """Ends the decoding threads."""
        self.preprocess.close()
