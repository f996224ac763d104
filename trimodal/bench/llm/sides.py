"""Runs the two sides of the llm bench, the served model over gRPC and its engine alone, and sums up rounds.

Both run the engine in a process of its own with the same settings; the bare side's
tokens arrive over the same pipe that the service reads. TTFT is send to first text (the bare
engine: first token), ITL each gap after it, tok/s all completion tokens over the round's wall time.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from trimodal.client import Client
from trimodal.client.timing import percentile
from trimodal.errors import SettingsError
from trimodal.llm.engine_core.client import start_process
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engines.protocol import EngineRequest, EngineStats, Sampling
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer

_LIMIT_S = 600.0


@dataclass(frozen=True)
class Sample:
    """One answer; times in seconds."""

    ttft: float
    itl: tuple[float, ...]
    tokens: int


@dataclass(frozen=True)
class Round:
    """Answers that ran together, and the wall time from the first send to the last end."""

    samples: tuple[Sample, ...]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return sum(sample.tokens for sample in self.samples) / self.seconds


@dataclass(frozen=True)
class Summary:
    """Several rounds of one side; milliseconds except for the rate."""

    tokens_per_second: float
    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p99: float


def summarise(rounds: Sequence[Round]) -> Summary:
    """Summarises: the median round's rate, and percentiles over all answers of all rounds."""
    samples = [sample for one in rounds for sample in one.samples]
    ttfts = [sample.ttft for sample in samples]
    gaps = [gap for sample in samples for gap in sample.itl]
    wanted = ((ttfts, 50), (ttfts, 95), (gaps, 50), (gaps, 99))
    # nan: answers of one token have no gaps.
    times = (1e3 * (percentile(values, percent) or math.nan) for values, percent in wanted)
    return Summary(median(one.tokens_per_second for one in rounds), *times)


class BareEngine:
    """The engine's process, driven directly."""

    def __init__(self, settings: LlmSettings) -> None:
        self._client = start_process(settings)
        self._steps: queue.SimpleQueue[tuple[float, Stepped] | None] = queue.SimpleQueue()
        threading.Thread(target=self._receive, name="bench-engine", daemon=True).start()
        self._numbers = itertools.count()
        self.stats = EngineStats()

    def close(self) -> None:
        self._client.close()

    def run(self, prompts: Sequence[list[int]], max_tokens: int) -> Round:
        """All prompts at once, greedily."""
        times: dict[int, list[float]] = {}
        tokens: dict[int, int] = {}
        began = time.perf_counter()
        for prompt, id in zip(prompts, self._numbers, strict=False):
            times[id], tokens[id] = [], 0
            self._client.add(EngineRequest(id, prompt, Sampling(max_tokens)))
        open_ids = set(times)
        while open_ids:
            item = self._steps.get(timeout=_LIMIT_S)
            if item is None:
                raise RuntimeError("the bare engine's process died")
            at, stepped = item
            self.stats = stepped.stats
            for output in stepped.outputs:
                if output.id not in open_ids:
                    continue
                if output.finish_reason == "error":
                    raise RuntimeError(output.error)
                tokens[output.id] += len(output.token_ids)
                if output.token_ids:
                    times[output.id].append(at)
                if output.finish_reason:
                    open_ids.discard(output.id)
        seconds = time.perf_counter() - began
        gaps = {id: tuple(later - at for at, later in itertools.pairwise(times[id])) for id in times}
        return Round(tuple(Sample(times[id][0] - began, gaps[id], tokens[id]) for id in times), seconds)

    def _receive(self) -> None:
        while stepped := self._client.receive():
            self._steps.put((time.perf_counter(), stepped))
        self._steps.put(None)


async def run_served(client: Client, prompts: Sequence[str], max_tokens: int) -> Round:
    """All prompts at once through the server, greedily."""
    began = time.perf_counter()
    answers = await asyncio.gather(
        *(client.complete(prompt, max_tokens=max_tokens, timeout=_LIMIT_S) for prompt in prompts)
    )
    seconds = time.perf_counter() - began
    return Round(
        tuple(Sample(one.timing.ttft or seconds, one.timing.itl, one.usage.completion) for one in answers),
        seconds,
    )


class Prompts:
    """A source of prompts for one model.

    Args:
        settings: whose tokenizer and chat template count.
        file: one prompt a line, asked in turn; None makes random ones that share no prefix.
        tokens: about how long a random prompt is.
    """

    def __init__(self, settings: LlmSettings, file: Path | None, tokens: int, seed: int = 0) -> None:
        self._settings = settings
        self._tokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        self._tokens = tokens
        self._rng = random.Random(seed)
        self._words = sorted({"".join(self._rng.choices("abcdefghij", k=4)) for _ in range(3000)})
        self._lines = itertools.cycle(_lines(file)) if file else None

    def next(self) -> str:
        """Returns the next prompt."""
        return next(self._lines) if self._lines else self.random(self._tokens)

    def random(self, tokens: int) -> str:
        """Made-up words that encode to at most `tokens` tokens, or one word."""
        text = self._rng.choice(self._words)
        while True:
            longer = " ".join([text, *self._rng.choices(self._words, k=4)])
            if len(self._tokenizer.encode_prompt(longer)) > tokens:
                return text
            text = longer

    def token_ids(self, text: str) -> list[int]:
        """Returns the ids that the served model makes of `text`."""
        request = GenerationRequest(text, None, Sampling(max_tokens=1))
        return request.token_ids(self._tokenizer, self._settings.apply_chat_template)


def _lines(file: Path) -> list[str]:
    try:
        lines = [line for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--prompts {file}: cannot be read: {error}") from None
    if not lines:
        raise SettingsError(f"--prompts {file}: no line with text in it")
    return lines
