"""Tests images, vectors and live speech."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trimodal.audio.files import package
from trimodal.audio.values import SAMPLE_RATE, PolicyName
from trimodal.audio.word_errors import word_error_rate
from trimodal.bench.bare.batches import BareBatches, Work, open_vision
from trimodal.bench.load.generator import LoadRun, Send
from trimodal.bench.load.lengths import Lengths
from trimodal.bench.load.plan import Case
from trimodal.bench.load.records import OK
from trimodal.bench.load.rounds import Result, Side, run_cases, sending
from trimodal.bench.report import AUDIO, IMAGES, TEXTS, Unit
from trimodal.bench.samples import Recording, jpegs, spoken_streams
from trimodal.bench.scenarios.server import (
    LoadTest,
    Measurement,
    ServerUnderTest,
    client_of,
    facts,
    server_under_test,
)
from trimodal.bench.targets import media
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.bench.targets.taking import check
from trimodal.client import Client
from trimodal.errors import OperatorError, SettingsError
from trimodal.vision.settings import VisionSettings

SPEECH = ("speech", "speech_recognize")

CHECK = "check"  # seed of the one request before the load

# Makes what sends the requests of one round; a seed that no other round has says what it asks. The last are
# arguments of every kind: timeout, model.
Make = Callable[[Client, str, dict[str, Any]], Send]
# Makes what opens the bare engine of a server's own repository.
OpenBare = Callable[[ServerUnderTest], Callable[[], Work]]


async def _run(
    test: LoadTest,
    models: Sequence[str],
    title: str,
    unit: Unit,
    workload: str,
    make: Make,
    bare: OpenBare | None = None,
    batch: int = 1,
) -> Measurement:
    """Runs the load on these models, beside the bare engine where one is given.

    A bare engine runs batches as large as those of all clients together may become in the model.

    Args:
        batch: items of a request.
    """
    if bare and (test.url or test.plan.load != "closed"):
        raise SettingsError("--bare: this machine's own model in closed loops: no --rate, no --url")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_under_test(test, *models))
        client = await stack.enter_async_context(client_of(test, server))
        options: dict[str, Any] = {"timeout": test.plan.timeout, "model": test.model or models[0]}
        await check(make(client, CHECK, options))

        def sender(case: Case, number: int) -> Send:
            return make(client, f"{test.plan.seed} {case.name} {number}", options)

        sides: dict[str, Side] = {"served": sending(test.plan, sender, test.stop)}
        if bare:
            engine = BareBatches(bare(server))

            most = server.models[models[0]].config.max_batch_size

            async def alone(case: Case, number: int) -> LoadRun:
                size = max(1, min(batch * int(case.size), most))
                batches = math.ceil(batch * test.plan.requests / size)
                return await engine.run(
                    batch=size, seconds=test.plan.duration, batches=batches, stop=test.stop
                )

            sides["bare"] = alone
        results = await run_cases(test.plan, sides, test.tell)
    more = [("model", options["model"]), ("requests", workload)]
    return Measurement(title, unit, results, facts(test, server, more))


async def run_vision(test: LoadTest, width: int, height: int, batch: int, *, bare: bool) -> Measurement:
    """`batch` JPEGs of this size in each request. Raises: OperatorError."""

    def engine(server: ServerUnderTest) -> Callable[[], Work]:
        vision = server.models["vision"]
        if vision.steps:
            raise OperatorError("--bare: Triton itself runs the classifier of this profile")
        settings = vision.settings(VisionSettings)
        return partial(open_vision, vision.version_directory, settings, files)

    files = await asyncio.to_thread(jpegs, width, height)

    def make(client: Client, seed: str, options: dict[str, Any]) -> Send:
        return media.vision(client, files, batch=batch, **options)

    workload = f"JPEG {width}x{height}, {batch} in a request"
    return await _run(test, ("vision",), "Images", IMAGES, workload, make, engine if bare else None, batch)


async def run_embedding(test: LoadTest, words: Lengths, batch: int) -> Measurement:
    """`batch` texts in each request, of so many words. Raises: OperatorError."""

    def make(client: Client, seed: str, options: dict[str, Any]) -> Send:
        questions = Questions(Mix(words, words), seed, tokens_per_word=1.0)
        questions.prepare(batch * test.plan.expected)
        return media.embedding(client, questions, batch=batch, **options)

    workload = f"texts of {words.text} words, {batch} in a request"
    return await _run(test, ("embedding",), "Embeddings", TEXTS, workload, make)


async def run_speech(
    test: LoadTest, samples: Path, seconds: float, policy: PolicyName | None, chunk_s: float, pace: float
) -> Measurement:
    """A live stream of so many seconds is a request; also how many of its words are wrong.

    Args:
        pace: times real time; 0: as fast as they are taken.

    Raises: OperatorError, AudioError: the package that counts word errors is not installed.
    """
    package("jiwer")  # it is needed after minutes
    spoken = await asyncio.to_thread(spoken_streams, samples, seconds)
    recordings = [one.samples for one in spoken]
    if pace:
        test = replace(test, plan=replace(test.plan, lasts=seconds / pace))

    def make(client: Client, seed: str, options: dict[str, Any]) -> Send:
        first = seed == CHECK
        return media.speech(
            client,
            [recordings[0][:SAMPLE_RATE]] if first else recordings,
            policy=policy,
            chunk_s=chunk_s,
            pace=0.0 if first else pace,
            **options,
        )

    how = "as fast as it is taken" if not pace else f"at {pace:g} times real time"
    workload = f"streams of {seconds:g} s, chunks of {1e3 * chunk_s:g} ms, {how}"
    found = await _run(test, SPEECH, "Live speech", AUDIO, workload, make)
    return replace(found, results=[with_word_errors(result, spoken) for result in found.results])


def with_word_errors(result: Result, spoken: Sequence[Recording]) -> Result:
    """Adds the word error rate of answered streams, against what was said in them."""
    heard = [
        (spoken[record.number % len(spoken)].text, record.text)
        for run in result.runs
        for record in run.counted
        if record.outcome == OK
    ]
    if not heard:
        return result
    rate = word_error_rate([said for said, _ in heard], [text for _, text in heard])
    return replace(result, summary=replace(result.summary, word_error_rate=rate))
