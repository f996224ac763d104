"""Runs the sides of the vision bench: the ensemble and its classifier over gRPC, and the steps alone.

The bare side has two kinds of work: `engine`, the classifier alone on uint8 pixels that lie ready
(its graph normalises them, as it does when served), and `pipeline`, which also decodes and ranks.
Both sides read the same settings. The baseline in torch is in torch_baseline.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trimodal.bench.common.bare_process import Works
from trimodal.bench.common.closed_loop import LoopRound, run_clients
from trimodal.client import Client
from trimodal.client.transports.base import Request, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import RequestError
from trimodal.metrics import MemoryMetrics
from trimodal.repository import Model
from trimodal.settings import Settings, parse_parameters
from trimodal.vision.settings import ClassifySettings, PreprocessSettings, RankSettings

if TYPE_CHECKING:
    from trimodal.vision.engines.protocol import Pixels

STEPS: dict[str, type[Settings]] = {
    "vision_preprocess": PreprocessSettings,
    "vision_classify": ClassifySettings,
    "vision_rank": RankSettings,
}
T = TypeVar("T")
PICTURES = 32  # different ones: no cache of the processor holds all their pixels


def jpegs(width: int, height: int, count: int = PICTURES) -> list[bytes]:
    """JPEG files of random smooth shapes with some grain: about as many bytes as photographs of that size."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        shapes = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        grain = rng.normal(0, 8, (height, width, 1))
        pixels = np.clip(np.asarray(shapes) + grain, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def some(files: Sequence[bytes], number: int, batch: int) -> list[bytes]:
    """Returns the files of request `number`: each request other ones, in a ring."""
    return [files[(number * batch + index) % len(files)] for index in range(batch)]


def step_settings(models: Mapping[str, Model]) -> dict[str, Settings]:
    """Step → the settings that it has on the server; a step that Triton runs by itself has none.

    Raises:
        SettingsError: names the file and the key that is malformed.
    """
    settings = {}
    for name, cls in STEPS.items():
        model = models[name]
        if model.config.backend == "python":
            source = str(model.config_file.relative_to(model.directory.parent))
            settings[name] = parse_parameters(cls, model.parameters, source=source)
    return settings


def sizes_up_to(most: int) -> list[int]:
    """1, 2, 4, … and `most`."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def larger_batches(most: int, model: str, config: Any) -> None:
    """Edits the ModelConfig of a vision model in place for batches of up to `most` images."""
    if model not in ("vision", *STEPS):
        return
    config.max_batch_size = most
    if config.backend == "python" and "warm_up_batch_sizes" in config.parameters:
        sizes = sizes_up_to(most)
        config.parameters["warm_up_batch_sizes"].string_value = ",".join(map(str, sizes))
        if config.dynamic_batching.preferred_batch_size:
            config.dynamic_batching.preferred_batch_size[:] = sizes[1:]


def random_pixels(directory: Path) -> Pixels:
    """Different pictures uint8[N, 3, H, W], of the size that the classifier in this directory wants."""
    import numpy as np

    from trimodal.vision.artefact import read_classifier

    spec = read_classifier(directory).input
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (PICTURES, 3, spec.height, spec.width), dtype=np.uint8)


def open_bare(repository: Path, settings: Mapping[str, Settings], files: Sequence[bytes]) -> Works:
    """`engine` and `pipeline`, each on a batch; opened in the bare side's process."""
    import numpy as np

    from trimodal.vision.artefact import read_classifier
    from trimodal.vision.engines.protocol import open_engine, runtime_of
    from trimodal.vision.rank import RankStep
    from trimodal.vision.steps import ClassifyStep, PreprocessStep

    metrics = MemoryMetrics()
    preprocess, classify, rank = (settings[name] for name in STEPS)
    assert isinstance(preprocess, PreprocessSettings)
    assert isinstance(classify, ClassifySettings)
    assert isinstance(rank, RankSettings)
    places = {name: repository / name / "1" for name in STEPS}
    artefact = read_classifier(
        (places["vision_classify"] / classify.artefact).resolve(), runtime=runtime_of(classify.engine)
    )
    engine = open_engine(artefact, classify)
    preparing = PreprocessStep.open(places["vision_preprocess"], preprocess, metrics)
    classifying = ClassifyStep(engine, artefact.input, metrics)
    ranking = RankStep.open(places["vision_rank"], rank)
    (ready,) = _good(preparing.prepare([files]))
    ready = np.concatenate([ready, ready])

    def run_engine(batch: int, number: int) -> None:
        at = number * batch % len(files) if batch <= len(files) else 0
        engine.classify(ready[at : at + batch])

    def run_pipeline(batch: int, number: int) -> None:
        pixels = _good(preparing.prepare([some(files, number, batch)]))
        _good(ranking.rank(_good(classifying.classify(pixels))))

    return {"engine": run_engine, "pipeline": run_pipeline}


def _good(outcomes: Sequence[T | RequestError]) -> list[T]:
    good: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            raise outcome
        good.append(outcome)
    return good


async def run_served(
    client: Client, files: Sequence[bytes], *, clients: int, batch: int, seconds: float
) -> LoopRound:
    """`clients` closed loops that send `batch` images a request."""
    return await run_clients(
        lambda number: client.classify(some(files, number, batch), timeout=60.0),
        clients=clients,
        items=batch,
        seconds=seconds,
    )


class Classifier:
    """Client of `vision_classify` alone: pixels that lie ready in, logits out; nothing is decoded."""

    def __init__(self, grpc_url: str) -> None:
        self._transport = GrpcTransport(grpc_url, Timeouts())

    async def loop(self, pixels: Pixels, *, clients: int, batch: int, seconds: float) -> LoopRound:
        """`clients` closed loops that send `batch` images a request."""

        async def ask(number: int) -> None:
            rows = [(number * batch + index) % len(pixels) for index in range(batch)]
            request = Request("vision_classify", {"pixels": pixels[rows]})
            await self._transport.infer(request, Timeouts(total=60.0))

        return await run_clients(ask, clients=clients, items=batch, seconds=seconds)

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._transport.aclose()
