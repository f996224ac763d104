"""Load on images, vectors, live speech and the assistant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench import embedding
from trimodal.bench.common.closed_loop import BareProcess
from trimodal.bench.common.serving import settings_of
from trimodal.bench.drive.place import Drive, Measured, Place, client_of, counted, facts, placed
from trimodal.bench.load.generator import Run, Send
from trimodal.bench.load.lengths import Lengths
from trimodal.bench.load.plan import SECONDS, Case
from trimodal.bench.load.rounds import Side, run_cases, sending
from trimodal.bench.report.tables import AUDIO, IMAGES, TEXTS, TOKENS, Unit
from trimodal.bench.speech.utterances import read_utterances, speak
from trimodal.bench.targets.assistant import Assistant
from trimodal.bench.targets.embedding import Embedding
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.bench.targets.speech import Speech
from trimodal.bench.targets.taking import Target, check
from trimodal.bench.targets.vision import Vision
from trimodal.bench.vision.sides import jpegs, open_bare, vision_settings
from trimodal.client import Client
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import OperatorError, SettingsError

if TYPE_CHECKING:
    from trimodal.audio.values import PolicyName

SPEECH = ("speech", "speech_recognize")
ASSISTANT = ("assistant", "llm", "vision", *SPEECH)

CHECK = "check"  # seed of the one request before the load

# Makes the target of one round; a seed that no other round has says what it asks.
Make = Callable[[Client, str], Target]


# Starts a process with the bare engine of a server's own repository; the kind of work to run in it.
Bare = Callable[[Place], tuple[BareProcess, str]]


async def _drive(
    drive: Drive,
    models: Sequence[str],
    title: str,
    unit: Unit,
    asked: str,
    make: Make,
    bare: Bare | None = None,
) -> Measured:
    """Runs the load on these models, beside the bare engine where one is given.

    A bare engine runs batches as large as there are clients: the best that they could become.
    """
    if bare and (drive.url or drive.plan.load != "closed"):
        raise SettingsError("--bare: this machine's own model in closed loops: --load closed, no --url")
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(placed(drive, *models))
        client = client_of(drive, place)
        stack.push_async_callback(client.aclose)
        await check(make(client, CHECK))

        def sender(case: Case, number: int) -> Send:
            return make(client, f"{drive.plan.seed} {case.name} {number}").send

        sides: dict[str, Side] = {"served": sending(drive.plan, sender, drive.stop)}
        if bare:
            process, kind = bare(place)
            sides["bare"] = _alone(drive, stack.enter_context(process), kind)
        results = await run_cases(drive.plan, sides, counted=counted(place), tell=drive.tell)
    more = [("model", drive.model or models[0]), ("requests", asked)]
    return Measured(title, unit, results, facts(drive, place, more))


def _alone(drive: Drive, process: BareProcess, kind: str) -> Side:
    async def side(case: Case, number: int) -> Run:
        seconds = drive.plan.length.get("seconds") or SECONDS
        done = (await process.run(kind, batch=int(case.size), seconds=seconds)).run
        assert done
        return done

    return side


async def drive_vision(
    drive: Drive, width: int, height: int, batch: int = 1, *, bare: bool = False
) -> Measured:
    """`batch` JPEGs of this size in each request. Raises: OperatorError."""

    def engine(place: Place) -> tuple[BareProcess, str]:
        settings = vision_settings(place.models)
        if settings is None:
            raise OperatorError("--bare: Triton itself runs the classifier of this profile")
        directory = place.models["vision"].version_directory
        return BareProcess(open_bare, directory, settings, files), "pipeline"

    files = await asyncio.to_thread(jpegs, width, height)

    def make(client: Client, seed: str) -> Target:
        options = {"batch": batch, "timeout": drive.plan.timeout}
        return Vision(client, files, model=drive.model or "vision", **options)  # type: ignore[arg-type]

    asked = f"JPEG {width}x{height}, {batch} in a request"
    return await _drive(drive, ("vision",), "Images", IMAGES, asked, make, engine if bare else None)


async def drive_embedding(drive: Drive, lengths: Lengths, *, bare: bool = False) -> Measured:
    """A text in each request, of so many words. Raises: OperatorError."""

    def engine(place: Place) -> tuple[BareProcess, str]:
        model = place.models["embedding"]
        settings = settings_of(EmbeddingSettings, model)
        questions = Questions(Mix(lengths, lengths), "bare", tokens_per_word=1.0)
        texts = [questions.at(number).text for number in range(256)]
        directory = (model.version_directory / settings.artefact).resolve()
        return BareProcess(embedding.open_bare, directory, settings, texts), "embed"

    def make(client: Client, seed: str) -> Target:
        questions = Questions(Mix(lengths, lengths), seed, tokens_per_word=1.0)
        questions.prepare(max(case.expected for case in drive.plan.cases))
        return Embedding(client, questions, timeout=drive.plan.timeout, model=drive.model or "embedding")

    asked = f"texts of {lengths.text} words, one in a request"
    return await _drive(drive, ("embedding",), "Embeddings", TEXTS, asked, make, engine if bare else None)


@dataclass(frozen=True)
class SpeechDrive:
    """What the speech bench is told besides: streams of `seconds`, in chunks, at `pace` times real time."""

    samples: Path
    seconds: float
    policy: PolicyName | None = None
    chunk_s: float = 0.1
    pace: float = 1.0


async def drive_speech(drive: Drive, speech: SpeechDrive) -> Measured:
    """A live stream is a request. Raises: OperatorError."""
    recordings = await asyncio.to_thread(recorded, speech.samples, speech.seconds)
    if speech.pace:
        drive = replace(drive, plan=replace(drive.plan, lasts=speech.seconds / speech.pace))

    def make(client: Client, seed: str) -> Target:
        first = seed == CHECK
        return Speech(
            client,
            [recordings[0][:SAMPLE_RATE]] if first else recordings,
            policy=speech.policy,
            chunk_s=speech.chunk_s,
            pace=0.0 if first else speech.pace,
            timeout=drive.plan.timeout,
            model=drive.model or "speech",
        )

    how = "as fast as it is taken" if not speech.pace else f"at {speech.pace:g} times real time"
    asked = f"streams of {speech.seconds:g} s, chunks of {1e3 * speech.chunk_s:g} ms, {how}"
    return await _drive(drive, SPEECH, "Live speech", AUDIO, asked, make)


async def drive_assistant(
    drive: Drive, mix: Mix, *, image: tuple[int, int] | None, samples: Path | None, seconds: float
) -> Measured:
    """Questions with an image of this size and a recording, where such are wanted. Raises: OperatorError."""
    images = await asyncio.to_thread(jpegs, *image) if image else []
    recordings = await asyncio.to_thread(recorded, samples, seconds) if samples else []

    def make(client: Client, seed: str) -> Target:
        questions = Questions(mix, seed)
        questions.prepare(max(case.expected for case in drive.plan.cases))
        return Assistant(
            client,
            questions,
            images=images,
            recordings=recordings,
            timeout=drive.plan.timeout,
            model=drive.model or "assistant",
        )

    parts = ["text", *(["an image"] if images else []), *(["speech"] if recordings else [])]
    asked = f"{' and '.join(parts)}; about {mix.prompt.text} tokens of text, {mix.answer.text} of answer"
    return await _drive(drive, ASSISTANT, "Assistant", TOKENS, asked, make)


def recorded(samples: Path, seconds: float, count: int = 16) -> list[Samples]:
    """Different streams of recorded utterances, each at most `seconds` long. Raises: OperatorError."""
    utterances = read_utterances(samples)
    return [speak(utterances, seconds, seed).samples for seed in range(count)]
