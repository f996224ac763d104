"""Runs the sides of the speech bench: the served recogniser, its engine alone, and faster-whisper.

All get the same windows with the same settings, and all give words with times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.common.closed_loop import LoopRound, Works, run_clients, some
from trimodal.client.transports.base import Request, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.client.transports.tensors import strings
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

_LIMIT_S = 300.0
# Length in seconds → windows of that length.
Windows = Mapping[float, Sequence[Samples]]
Work = Callable[[int, int], object]


class Recogniser(AbstractAsyncContextManager["Recogniser"]):
    """Client of `speech_recognize`: one window a request, as the speech model asks."""

    def __init__(self, grpc_url: str) -> None:
        self._transport = GrpcTransport(grpc_url, Timeouts())

    async def recognize(self, window: Samples) -> tuple[str, int]:
        """The window's text, and how many windows the run had that it was in.

        Raises:
            RequestError, TransportError: as the client does.
        """
        inputs = {"window": window[None], "prompt": strings([b""])[None], "language": strings([b""])[None]}
        out = await self._transport.infer(Request("speech_recognize", inputs), Timeouts(total=_LIMIT_S))
        return out["text"].item().decode(), int(out["batch_size"].item())

    async def loop(
        self, windows: Sequence[Samples], *, clients: int, seconds: float, before: LoopRound | None
    ) -> tuple[LoopRound, list[int]]:
        """`clients` closed loops over the windows in a ring; also the batch that each request was in.

        Args:
            before: the round before of the same.
        """
        seconds = long_enough(seconds, before)
        batches: list[int] = []

        async def ask(number: int) -> None:
            batches.append((await self.recognize(windows[number % len(windows)]))[1])

        return await run_clients(ask, clients=clients, items=1, seconds=seconds), batches

    async def texts(self, windows: Sequence[Samples], at_once: int = 8) -> list[str]:
        """Recognises each window; at most `at_once` are under way."""
        room = asyncio.Semaphore(at_once)

        async def one(window: Samples) -> str:
            async with room:
                return (await self.recognize(window))[0]

        return list(await asyncio.gather(*map(one, windows)))

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()


def long_enough(seconds: float, before: LoopRound | None) -> float:
    """Returns `seconds`, or three requests of the round before of the same where they took longer.

    A shorter round would show the first requests of all clients, who do not wait in turn.
    """
    return max(seconds, 3 * before.p50 if before else 0.0)


def cut_windows(streams: Sequence[Samples], seconds: float, count: int) -> list[Samples]:
    """`count` windows of `seconds`, one after the other out of all the audio, and round again."""
    joined = np.concatenate(streams)
    size = round(seconds * SAMPLE_RATE)
    starts = np.arange(count) * size
    return [np.take(joined, range(start, start + size), mode="wrap") for start in starts]


def open_bare(directory: Path, settings: RecogniseSettings, audio: Windows) -> Works:
    """Opens the engine alone, with a work for each length of `audio`; called in the bare side's process."""
    from trimodal.speech.engines.protocol import open_engine

    engine = open_engine(directory, settings)

    def work(windows: Sequence[Samples], batch: int, number: int) -> object:
        return engine.recognise([Window(one) for one in some(windows, number, batch)])

    return {name(seconds): partial(work, windows) for seconds, windows in audio.items()}


def open_faster_whisper(
    directory: Path, settings: RecogniseSettings, audio: Windows, contexts: Mapping[float, float]
) -> Works:
    """faster-whisper on the same model: for each length of `audio` two works, `… public` and `… forward`.

    `public` is BatchedInferencePipeline.transcribe with clips: it pads every window to
    30 s. `forward` enters the same pipeline behind that padding, with features as long as
    the context that our engine takes: the same work. Neither looks for speech or falls back
    to other temperatures; both end at as many tokens as our engine and never make those it never makes.

    Args:
        contexts: length of windows → seconds of the encoder.
    """
    from faster_whisper import BatchedInferencePipeline
    from faster_whisper.audio import pad_or_trim

    from trimodal.bench.common.whisper import open_whisper
    from trimodal.speech.engines.ctranslate2_model import threads

    model, tokenizer, never, most_new = open_whisper(directory, settings.device, threads(directory, settings))
    pipeline = BatchedInferencePipeline(model)
    transcribe = partial(
        pipeline.transcribe,
        language="en",
        temperature=0.0,
        vad_filter=False,
        beam_size=settings.beam_size,
        word_timestamps=True,
        suppress_tokens=never,
    )

    def public(seconds: float, windows: Sequence[Samples]) -> Work:
        def work(batch: int, number: int) -> object:
            clips = [{"start": index * seconds, "end": (index + 1) * seconds} for index in range(batch)]
            audio, most = np.concatenate(some(windows, number, batch)), most_new(seconds)
            segments, _ = transcribe(audio, clip_timestamps=clips, batch_size=batch, max_new_tokens=most)
            return list(segments)

        return work

    def forward(seconds: float, windows: Sequence[Samples]) -> Work:
        # The options that the public call makes of the same arguments.
        clip = {"start": 0.0, "end": seconds}
        _, info = transcribe(windows[0], clip_timestamps=[clip], max_new_tokens=most_new(seconds))
        frames = round(contexts[seconds] * model.frames_per_second)

        def work(batch: int, number: int) -> object:
            features = [
                pad_or_trim(model.feature_extractor(one)[..., :-1], frames)
                for one in some(windows, number, batch)
            ]
            chunks = [{"offset": index * seconds, "duration": seconds} for index in range(batch)]
            return pipeline.forward(np.stack(features), tokenizer, chunks, info.transcription_options)

        return work

    return {
        f"{name(seconds)} {kind}": make(seconds, windows)
        for seconds, windows in audio.items()
        for kind, make in (("public", public), ("forward", forward))
    }


def name(seconds: float) -> str:
    """Of the work on windows of this length."""
    return f"{seconds:g} s"
