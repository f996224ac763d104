"""Runs the steps before the ranking, each over a batch of requests with one outcome a request.

A refused request never harms its neighbours in the batch.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from trimodal.errors import InvalidArgument, RequestError
from trimodal.metrics import Metrics, counters
from trimodal.vision.artefact import InputSpec, read_classifier
from trimodal.vision.engines.protocol import ImageClassifier, Logits, Pixels, open_engine, runtime_of
from trimodal.vision.settings import ClassifySettings, Limits, PreprocessSettings

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class PreprocessStep:
    """Turns image bytes into pixels, the images of a batch side by side on a few threads."""

    def __init__(self, spec: InputSpec, settings: PreprocessSettings, metrics: Metrics) -> None:
        from trimodal.vision.preprocess import Preprocessor

        self._preprocessor = Preprocessor(spec, settings)
        self._threads = settings.threads
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="decode")
        self._seconds = metrics.histogram(
            "trimodal_vision_decode_seconds", "Bytes of one image to prepared pixels", {}, SECONDS
        )
        self._images = counters(
            "trimodal_vision_images_total", metrics, "Images by outcome", "outcome", ("prepared", "refused")
        )

    @classmethod
    def open(cls, version: Path, settings: PreprocessSettings, metrics: Metrics) -> PreprocessStep:
        """Opens the step for the classifier that `settings` names, relative to the version's directory."""
        service = cls(read_classifier((version / settings.classifier).resolve()).input, settings, metrics)
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
        answers = [np.empty((len(images), *self._preprocessor.shape), np.uint8) for images in requests]
        jobs = [
            (data, pixels[index], "image" if len(images) == 1 else f"image[{index}]")
            for images, pixels in zip(requests, answers, strict=True)
            for index, data in enumerate(images)
        ]
        # A single image stays on this thread: another thread would only cost time.
        run = self._pool.map if len(jobs) > 1 else map
        errors = iter(list(run(self._one, jobs)))
        outcomes: list[Pixels | RequestError] = []
        for images, pixels in zip(requests, answers, strict=True):
            found = [error for error in (next(errors) for _ in images) if error is not None]
            outcomes.append(found[0] if found else pixels)
        return outcomes

    def close(self) -> None:
        """Ends the decoding threads."""
        self._pool.shutdown()

    def _one(self, job: tuple[bytes, Pixels, str]) -> RequestError | None:
        data, out, name = job
        started = time.perf_counter()
        try:
            self._preprocessor.prepare(data, out, name=name)
        except RequestError as error:
            self._images["refused"].increment(1)
            return error
        self._images["prepared"].increment(1)
        self._seconds.observe(time.perf_counter() - started)
        return None


class ClassifyStep:
    """Turns pixels into logits, all requests of a batch in one run of the engine."""

    def __init__(self, engine: ImageClassifier, spec: InputSpec, metrics: Metrics) -> None:
        self._engine = engine
        self._shape = (3, spec.height, spec.width)
        self._refusal = InvalidArgument(f"pixels: shape {list(self._shape)} an image is needed")
        self._seconds = metrics.histogram(
            "trimodal_vision_classify_seconds", "One run of the classifier", {}, SECONDS
        )
        self._batches = metrics.histogram(
            "trimodal_vision_classify_batch_size", "Images in one run of the classifier", {}, BATCHES
        )

    @classmethod
    def open(cls, version: Path, settings: ClassifySettings, metrics: Metrics) -> ClassifyStep:
        """Opens the artefact that `settings` names and runs it once for each warm-up batch size."""
        artefact = read_classifier(
            (version / settings.artefact).resolve(), runtime=runtime_of(settings.engine)
        )
        engine = open_engine(artefact, settings)
        service = cls(engine, artefact.input, metrics)
        for size in settings.warm_up_batch_sizes:
            engine.classify(np.zeros((size, *service._shape), np.uint8))
        return service

    def classify(self, requests: Sequence[Pixels]) -> list[Logits | RequestError]:
        """Logits float32[B, C] for each request of pixels uint8[B, 3, H, W], or why it is refused."""
        batch = [pixels for pixels in requests if pixels.shape[1:] == self._shape]
        if not batch:
            return [self._refusal] * len(requests)
        pixels = batch[0] if len(batch) == 1 else np.concatenate(batch)
        started = time.perf_counter()
        logits = self._engine.classify(pixels)
        self._seconds.observe(time.perf_counter() - started)
        self._batches.observe(len(pixels))
        parts = iter(np.split(logits, np.cumsum([len(each) for each in batch])))
        return [next(parts) if each.shape[1:] == self._shape else self._refusal for each in requests]
