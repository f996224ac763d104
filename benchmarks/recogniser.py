"""Makes the tables "Beside faster-whisper" and "Speech capacity": windows of speech, served and alone.

    python -m benchmarks.recogniser --artefact artefacts/speech-whisper-base-int8-5s --window-s 5
    python -m benchmarks.recogniser --artefact … --window-s 5 --batch 8 --unbatched

All sides stay loaded, each in a process of its own, and take turns; windows, context, beam, threads and word
times are the same, and no window is decoded twice. Served, twice as many clients as windows in a batch send
single windows: while one batch is recognised the next gathers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.common import speech
from benchmarks.gpu_check.measure import timed
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.common.serving import settings_of
from trimodal.bench.load.arrivals import Closed
from trimodal.bench.load.generator import Send, run
from trimodal.bench.load.statistics import summarise
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client.transports.base import Request, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.client.transports.tensors import strings
from trimodal.paths import default_repository
from trimodal.report.console import NARROW, make_table
from trimodal.repository import select_models
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer
from trimodal.speech.settings import RecogniseSettings

WINDOWS = 32


def time_ours(directory: str, windows: list[Samples], batch: int, seconds: float) -> float:
    """Windows a second of our engine alone; called in a process of its own."""
    from trimodal.speech.engines.protocol import open_engine
    from trimodal.speech.values import Window

    engine = kept(lambda: open_engine(Path(directory), served_settings(directory)))
    heard = [Window(one) for one in windows[:batch]]
    return timed(partial(engine.recognise, heard), items=batch, seconds=seconds)["rate"]


def open_faster_whisper(directory: Path, threads: int) -> tuple[Any, Any]:
    """faster-whisper's model and its tokenizer, of an artefact of CTranslate2."""
    from faster_whisper import WhisperModel
    from faster_whisper.tokenizer import Tokenizer

    from trimodal.manifest import read_manifest
    from trimodal.speech.engines.ctranslate2 import compute_type

    kind = compute_type(directory, read_manifest(directory, task="speech", runtime="ctranslate2"), "cpu")
    model = WhisperModel(str(directory), device="cpu", compute_type=kind, cpu_threads=threads)
    multilingual = model.model.is_multilingual
    return model, Tokenizer(model.hf_tokenizer, multilingual, task="transcribe", language="en")


def time_theirs(kind: str, directory: str, windows: list[Samples], batch: int, seconds: float) -> float:
    """Windows a second of faster-whisper alone; called in a process of its own.

    `public` is BatchedInferencePipeline.transcribe with clips: it pads every window to 30 s. `forward` enters
    the same pipeline behind that padding, with features as long as the context that our engine takes. Both
    end at as many tokens as our engine, and never make those that it never makes.
    """
    from faster_whisper import BatchedInferencePipeline
    from faster_whisper.audio import pad_or_trim

    from trimodal.manifest import read_manifest
    from trimodal.speech.whisper.artefact import read_shapes
    from trimodal.speech.whisper.features import smallest_context
    from trimodal.speech.whisper.tokens import WhisperTokens
    from trimodal.speech.whisper.word_timestamps import most_tokens

    given, path = served_settings(directory), Path(directory)
    model, tokenizer = kept(lambda: open_faster_whisper(path, given.threads))
    shapes = read_shapes(path, read_manifest(path, task="speech", runtime="ctranslate2"))
    tokens = WhisperTokens(path, shapes.languages, multilingual=model.model.is_multilingual)
    pipeline, length = BatchedInferencePipeline(model), len(windows[0]) / SAMPLE_RATE
    # CTranslate2 makes at most half of max_length, which is the prompt and this.
    prompt = len(model.get_prompt(tokenizer, [], without_timestamps=True))
    transcribe = partial(
        pipeline.transcribe, np.concatenate(windows[:batch]), batch_size=batch, language="en",
        temperature=0.0, vad_filter=False, word_timestamps=True,
        beam_size=given.beam_size, suppress_tokens=tokens.never_made(),
        clip_timestamps=[{"start": index * length, "end": (index + 1) * length} for index in range(batch)],
        max_new_tokens=min(2 * most_tokens(length), int(model.max_length)) - prompt,
    )  # fmt: skip
    if kind == "public":
        return timed(lambda: list(transcribe()[0]), items=batch, seconds=seconds)["rate"]
    options = transcribe()[1].transcription_options
    frames = round(smallest_context(shapes.contexts_s, len(windows[0])) * model.frames_per_second)
    chunks = [{"offset": index * length, "duration": length} for index in range(batch)]

    def forward() -> None:
        features = [pad_or_trim(model.feature_extractor(one)[..., :-1], frames) for one in windows[:batch]]
        pipeline.forward(np.stack(features), tokenizer, chunks, options)

    return timed(forward, items=batch, seconds=seconds)["rate"]


OPENED: list[Any] = []


def kept(opener: Callable[[], Any]) -> Any:
    """What a process has opened once."""
    if not OPENED:
        OPENED.append(opener())
    return OPENED[0]


def served_settings(artefact: str) -> RecogniseSettings:
    """What the config says, with these parameters."""
    model = select_models(default_repository(), ("speech_recognize",), "cpu")["speech_recognize"]
    return settings_of(RecogniseSettings, model, settings(artefact))


def settings(artefact: str, batch: int = WINDOWS) -> dict[str, str]:
    """Parameters of speech_recognize: no window is decoded again."""
    return {"artefact": artefact, "max_batch_windows": str(batch), "temperatures": "0"}


def sending(grpc_url: str, windows: Sequence[Samples]) -> Send:
    """Asks speech_recognize for one window after the other, as the speech model does."""
    transport = GrpcTransport(grpc_url, Timeouts())

    async def ask(number: int, taking: Taking) -> None:
        window = windows[number % len(windows)][None]
        inputs = {"window": window, "prompt": strings([b""])[None], "language": strings([b""])[None]}
        await transport.infer(Request("speech_recognize", inputs), Timeouts(total=300.0))
        taking.piece()

    return lambda number: taken(lambda taking: ask(number, taking))


async def measure_served(send: Send, batch: int, seconds: float) -> float:
    """Windows a second of clients in closed loops."""
    clients = 1 if batch == 1 else 2 * batch
    found = summarise(await run(send, Closed(clients), seconds=seconds, warmup=seconds / 4))
    if found.errors:
        raise SystemExit(next(iter(found.errors)))
    return found.items_per_s


def main(
    artefact: Annotated[Path, typer.Option(help="of CTranslate2")],
    window_s: Annotated[float, typer.Option(min=1, max=30)] = 5.0,
    batch: Annotated[list[int], typer.Option(min=1, max=WINDOWS, help="windows; repeatable")] = [1, 8],  # noqa: B006
    unbatched: Annotated[bool, typer.Option(help="beside a server without batches instead")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="counted; one more warms up")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each side in each round")] = 4.0,
) -> None:
    """Compares the served recogniser with its engine alone and with faster-whisper."""
    spoken = speech(WINDOWS * window_s, seed=0)
    size, path = round(window_s * SAMPLE_RATE), str(artefact.resolve())
    windows = [spoken[at * size : (at + 1) * size] for at in range(WINDOWS)]
    works: dict[str, Callable[..., float]] = {"engine alone": time_ours}
    if not unbatched:
        works |= {f"faster-whisper {kind}": partial(time_theirs, kind) for kind in ("forward", "public")}
    table = make_table(f"windows of {window_s:g} s", "batch|side|windows/s|served over it", **NARROW)

    async def measure(stack: ExitStack) -> None:
        loop = asyncio.get_running_loop()
        senders = {}
        for name, most in {"served": max(batch), **({"unbatched": 1} if unbatched else {})}.items():
            changes = {"speech_recognize": settings(path, most)}
            options = ServerOptions.on_free_ports("speech_recognize", changes=changes)
            senders[name] = sending(stack.enter_context(TritonServer(options)).grpc_url, windows)
        pools = {name: stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))) for name in works}
        for count in batch:
            found: dict[str, list[float]] = {name: [] for name in (*senders, *works)}
            for _ in range(rounds + 1):
                for name, send in senders.items():
                    found[name].append(await measure_served(send, count, seconds))
                for name, work in works.items():
                    task = loop.run_in_executor(pools[name], work, path, windows, count, seconds)
                    found[name].append(await task)
            for name, (_, *rates) in found.items():
                ratio = median(ours / theirs for ours, theirs in zip(found["served"][1:], rates, strict=True))
                table.add_row(str(count), name, f"{median(rates):.2f}", f"{ratio:.3f}")

    with ExitStack() as stack:
        asyncio.run(measure(stack))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    typer.run(main)
