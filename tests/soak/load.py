"""Says what the soak sends: kinds of requests with their rates, what each may end with, and live streams."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.e2e.gateway.calls.starter import FACTS, HANDBOOK, SAMPLES
from tests.vision.pictures import encode, noise, png_claiming
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.load.generator import Send
from trimodal.bench.load.records import OK, Record
from trimodal.bench.samples import jpegs, spoken_streams
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.llm import GrpcLlm, follow
from trimodal.bench.targets.media import embedding, speech, vision
from trimodal.bench.targets.questions import Question, Source, listed
from trimodal.bench.targets.taking import sender, taken
from trimodal.client import Client, Delta
from trimodal.speech.engines.fake import VOCABULARY, speak

STREAMS, STREAM_S = 8, 15.0
ANSWERED, REFUSED = frozenset({OK}), frozenset({"invalid_arg", "not_found"})
LEFT = "left"


@dataclass(frozen=True)
class Kind:
    """Requests of one kind.

    Attributes:
        rate: requests a second; live streams begin when the one before ends.
        ends: outcomes that are right.
        metrics: of bench.load.records: their percentiles are to be flat.
    """

    name: str
    rate: float
    send: Send
    ends: frozenset[str] = ANSWERED
    metrics: tuple[str, ...] = ("latency",)


class Prefixed:
    """Questions that begin with one of four long texts, each asked once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, number: int) -> Question:
        rng = random.Random(f"{self._name} {number}")
        begin = f"Volume {rng.randrange(4)}. {HANDBOOK * 2}"
        text = f"{begin}Question {self._name}{number}: {rng.choice([*FACTS])}"
        return Question(text, rng.randint(16, 64))


class Leaving:
    """Asks for text, and leaves after 1 to 8 pieces of it, if the answer has not ended before."""

    def __init__(self, client: Client) -> None:
        self._client, self._questions = client, Prefixed("b")

    async def send(self, number: int) -> Record:
        question = self._questions(number)
        left = False

        async def ask(record: Record) -> None:
            nonlocal left
            stream = self._client.stream(question.text, max_tokens=question.max_tokens)
            async for item in stream:
                if isinstance(item, Delta) and item.text:
                    record.piece()
                if len(record.pieces) > number % 8:
                    left = not stream.finish_reason
                    stream.cancel()
                    return

        record = await taken(ask)
        return replace(record, outcome=LEFT) if left and record.outcome == OK else record


def kinds(client: Client, gateway: HttpLlm, *, fake: bool) -> list[Kind]:
    """All kinds but live speech."""
    pictures = jpegs(640, 480)
    again = listed([Question(text, 48) for text in FACTS])
    asking = assistant(client, again, pictures, recordings(4.0, fake))
    asked = gateway.asking(Prefixed("d"))
    return [
        Kind("text", 0.6, GrpcLlm(client, Prefixed("a")).send, metrics=("ttft", "latency")),
        Kind("repeated text", 0.6, GrpcLlm(client, again).send),
        Kind("cancelled text", 0.3, Leaving(client).send, frozenset({OK, LEFT}), ("ttft",)),
        Kind("image", 1.5, vision(client, pictures)),
        Kind("embedding", 1.0, embedding(client, Prefixed("c"))),
        Kind("assistant", 0.15, asking, metrics=("ttft",)),
        Kind("bad input", 0.8, Bad(client).send, REFUSED),
        Kind("gateway", 0.3, asked.send, metrics=("ttft", "latency")),
    ]


def assistant(
    client: Client, questions: Source, images: Sequence[bytes] = (), spoken: Sequence[Samples] = ()
) -> Send:
    """Questions, with an image and a recording if any; TTFT is to the first text of the answer."""

    async def ask(record: Record, number: int) -> None:
        question = questions(number)
        image = images[number % len(images)] if images else None
        audio = spoken[number % len(spoken)] if spoken else None
        record.audio_s = len(audio) / SAMPLE_RATE if audio is not None else 0.0
        stream = client.ask(question.text, image=image, audio=audio, max_tokens=question.max_tokens)
        await follow(stream, record)

    return sender(ask)


def live_streams(client: Client, *, fake: bool) -> Kind:
    """Streams in real time: every fourth in chunks of 20 ms, the others of 100 ms."""
    spoken = recordings(STREAM_S, fake)
    fine, usual = (speech(client, spoken, chunk_s=seconds) for seconds in (0.02, 0.1))

    async def send(number: int) -> Record:
        return await (usual if number % 4 else fine)(number)

    return Kind("live speech", 0.0, send, metrics=("lag",))


def recordings(seconds: float, fake: bool) -> list[Samples]:
    """Different recordings, each at most `seconds` long: of people, or tones for the fake recogniser."""
    if not fake:
        return [one.samples for one in spoken_streams(SAMPLES / "speech", seconds)]
    rng = random.Random(0)
    return [speak([*rng.choices(VOCABULARY, k=int(seconds / 0.6)), 0.5])[0] for _ in range(8)]


class Bad:
    """Bad input of each modality in turn; each is to be refused, and to harm nothing else."""

    def __init__(self, client: Client) -> None:
        self._client = client
        cut = encode(noise(64, 64), "JPEG")[:900]
        good, spoilt = speak(["one", "two"])[0], np.full(3200, np.nan, np.float32)
        self._rows: Sequence[Callable[[], Awaitable[object]]] = (
            lambda: client.complete("x", max_tokens=-1),
            lambda: client.complete(""),
            lambda: client.complete("x" * 300_000),
            lambda: client.complete("x", temperature=float("nan")),
            lambda: client.complete("x", response_format={"type": "json_schema", "json_schema": 7}),
            lambda: client.complete("x", model="lim"),
            lambda: client.classify([b"no picture"]),
            lambda: client.classify([cut]),
            lambda: client.classify([png_claiming(60_000, 60_000)]),
            lambda: client.embed(["fine", " "]),
            lambda: client.embed(["x" * 40_000]),
            lambda: client.ask("what is it?", image=cut).answer(),
            lambda: client.ask("what is it?", audio=spoilt).answer(),
            lambda: self._spoken(good, spoilt),
            lambda: client.transcribe(good, policy="nonsense"),  # type: ignore[arg-type]
        )

    async def send(self, number: int) -> Record:
        async def ask(record: Record) -> None:
            await self._rows[number % len(self._rows)]()

        return await taken(ask)

    async def _spoken(self, good: Samples, spoilt: Samples) -> None:
        """A bad chunk within a stream, which goes on without it."""
        async with self._client.listen() as stream:
            await stream.send(good)
            await stream.send(spoilt)
