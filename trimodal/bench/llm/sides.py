"""Runs the two sides of the llm bench, the served model over gRPC and its engine alone, and sums up rounds.

Both run the engine in a process of its own with the same settings; the bare side's
tokens arrive over the same pipe that the service reads. TTFT is send to first text (the bare
engine: first token), ITL each gap after it, tok/s all completion tokens over the round's wall time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from trimodal.bench.load.arrivals import Closed
from trimodal.bench.load.generator import Send, run
from trimodal.bench.load.records import OK, Record
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.questions import Listed, Question
from trimodal.client import Client
from trimodal.client.timing import percentile
from trimodal.errors import ServerError, SettingsError
from trimodal.llm.engine_core.client import start_process
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
    """The engine's process, driven directly; for one event loop at a time."""

    def __init__(self, settings: LlmSettings) -> None:
        self._client = start_process(settings)
        self._numbers = itertools.count()
        self._asked: dict[int, _Asked] = {}
        self._died = False
        self.stats = EngineStats()
        threading.Thread(target=self._receive, name="bench-engine", daemon=True).start()

    def close(self) -> None:
        self._client.close()

    async def ask(self, prompt: list[int], max_tokens: int) -> Record:
        """One answer, greedily. Raises: ServerError: the engine failed on it, or died."""
        loop = asyncio.get_running_loop()
        asked = _Asked(loop, loop.create_future())
        id = next(self._numbers)
        self._asked[id] = asked
        sent = loop.time()
        self._client.add(EngineRequest(id, prompt, Sampling(max_tokens)))
        try:
            if self._died:
                raise ServerError("the bare engine's process died")
            await asyncio.wait_for(asked.done, _LIMIT_S)
        except asyncio.TimeoutError:
            raise ServerError(f"the bare engine did not answer within {_LIMIT_S:g} s") from None
        finally:
            self._asked.pop(id, None)
        return Record(
            number=0,
            due=sent,
            sent=sent,
            pieces=tuple(asked.pieces),
            ended=asked.pieces[-1] if asked.pieces else loop.time(),
            input_tokens=len(prompt),
            output_tokens=asked.tokens,
        )

    def _receive(self) -> None:
        while stepped := self._client.receive():
            # The event loop's clock on Linux, read where the step came in.
            at = time.monotonic()
            self.stats = stepped.stats
            for output in stepped.outputs:
                asked = self._asked.get(output.id)
                if asked is None:
                    continue
                if output.token_ids:
                    asked.pieces.append(at)
                    asked.tokens += len(output.token_ids)
                if output.finish_reason:
                    asked.end(output.error if output.finish_reason == "error" else "")
        self._died = True
        for asked in list(self._asked.values()):
            asked.end("the bare engine's process died")


@dataclass
class _Asked:
    """A request of the bare engine: filled in by the receiving thread, awaited in `loop`."""

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    pieces: list[float] = field(default_factory=list)
    tokens: int = 0

    def end(self, error: str) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: str) -> None:
        if self.done.done():
            return
        if error:
            self.done.set_exception(ServerError(error))
        else:
            self.done.set_result(None)


async def run_wave(send: Send, count: int) -> Round:
    """Sends `count` requests at once; samples in their order. Raises: ServerError: one was not answered."""
    done = await run(send, Closed(count), requests=count)
    answers = sorted(done.records, key=lambda record: record.number)
    for record in answers:
        if record.outcome != OK:
            raise ServerError(f"a request was not answered: {record.error or record.outcome}")
    samples = (Sample(one.ttft or done.seconds, one.itl, one.output_tokens) for one in answers)
    return Round(tuple(samples), done.seconds)


async def run_served(client: Client, prompts: Sequence[str], max_tokens: int) -> Round:
    """All prompts at once through the server, greedily."""
    questions = Listed([Question(prompt, max_tokens) for prompt in prompts])
    return await run_wave(GrpcLlm(client, questions, timeout=_LIMIT_S).send, len(prompts))


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
        self._lines = itertools.cycle(read_lines(file)) if file else None

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


def read_lines(file: Path) -> list[str]:
    """Returns the lines with text of a file of prompts. Raises: SettingsError: there are none."""
    try:
        lines = [line for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--prompts {file}: cannot be read: {error}") from None
    if not lines:
        raise SettingsError(f"--prompts {file}: no line with text in it")
    return lines
