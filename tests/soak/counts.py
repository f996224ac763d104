"""Sends requests of one kind at a time, and looks what each process holds after so many of them.

The hour of mixed load says that something grows; this says what of, whose it is, and where it ends.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SHUT_RDWR
from typing import Any

import aiohttp
import soundfile

from tests.e2e.gateway.calls.starter import FACTS
from tests.soak import processes
from tests.soak.load import REFUSED, Bad, Kind, Leaving, assistant, recordings
from tests.soak.run import Server, load_again
from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.load.generator import Closed, Send, run
from trimodal.bench.load.records import OK, Record
from trimodal.bench.samples import jpegs
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.media import embedding, vision
from trimodal.bench.targets.questions import Question, Source, listed
from trimodal.bench.targets.taking import sender
from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.report.console import Table

CLIENTS = 8
SETTLE_S = 2.0
LEFT_S = 0.5  # of audio, before a live stream is left
KINDS = (
    *("chat", "streamed", "whole", "form", "response", "repeated", "stored", "tenant", "image", "embedding"),
    *("assistant", "assistant's text", "assistant's picture", "assistant's voice", "recording"),
    *("left live", "left socket", "left chat", "bad input", "bad request", "reload"),
)
FIELDS = ("memory", "private", "descriptors", "threads")
_LEAST_MIB = 1.0  # what grew by less has no row


@dataclass(frozen=True)
class Look:
    """What the server holds after so many requests.

    Attributes:
        held: process → figures, memory in MiB.
        shared: MiB of its regions in /dev/shm. regions, files: how many of those, and of temporary files.
        log: KiB of Triton's log.
    """

    sent: int
    held: Mapping[str, processes.Figures]
    shared: float
    regions: int
    files: int
    log: float


@dataclass
class Counted:
    """The looks at one server, which was sent one kind of requests; `wrong`: ends that were not expected."""

    kind: str
    looks: list[Look] = field(default_factory=list)
    wrong: dict[str, int] = field(default_factory=dict)

    def rows(self) -> list[list[str]]:
        """A row for each figure that changed since the first look."""
        found = []
        for name in self.looks[0].held:
            for figure in FIELDS:
                values = [look.held.get(name, {}).get(figure, 0.0) for look in self.looks]
                least = _LEAST_MIB if figure in ("memory", "private") else 1.0
                if max(values) - values[0] >= least:
                    found.append(self._row(name, figure, values))
        others = {
            "/dev/shm, MiB": [look.shared for look in self.looks],
            "/dev/shm, regions": [float(look.regions) for look in self.looks],
            "temporary files": [float(look.files) for look in self.looks],
            "Triton's log, KiB": [look.log for look in self.looks],
        }
        return found + [self._row("", name, values) for name, values in others.items() if len({*values}) > 1]

    def _row(self, process: str, figure: str, values: Sequence[float]) -> list[str]:
        """The last column is what one request of the last step adds, in KiB."""
        last, before = self.looks[-1], self.looks[-2]
        each = 1024 * (values[-1] - values[-2]) / max(1, last.sent - before.sent)
        shown = f"{each:+.1f}" if figure in ("memory", "private") else ""
        return [self.kind, process, figure, *(f"{value:,.0f}" for value in values), shown]


async def count(server: Server, gateway: str, kind: str, counts: Sequence[int], *, fake: bool) -> Counted:
    """Looks at the server before the first request of a kind and after so many."""
    counted, sent = Counted(kind), 0
    async with asking(server, gateway, fake=fake) as kinds:
        asked = kinds[kind]
        counted.looks.append(await _look(server, 0))
        for until in counts:
            begun = sent

            async def send(number: int, begun: int = begun) -> Record:
                return await asked.send(begun + number)

            done = await run(send, Closed(1 if kind == "reload" else CLIENTS), requests=until - sent)
            for record in done.records:
                if record.outcome not in asked.ends:
                    told = f"{record.outcome}: {record.error[:120]}"
                    counted.wrong[told] = counted.wrong.get(told, 0) + 1
            sent = until
            counted.looks.append(await _look(server, sent))
    return counted


@asynccontextmanager
async def asking(server: Server, gateway: str, *, fake: bool) -> AsyncIterator[dict[str, Kind]]:
    """The kinds by name, and what sends them."""
    async with Client(server.grpc) as client, aiohttp.ClientSession(f"{gateway}/") as http:
        pictures, spoken = jpegs(640, 480), recordings(4.0, fake)
        again = listed([Question(text, 8) for text in FACTS])
        fresh = _fresh("What is the {} of Japan?")
        web = Web(http, fake=fake)
        sends: dict[str, Send] = {
            "chat": GrpcLlm(client, fresh, options={"cache_control": "no-store"}).send,
            "streamed": web.chats(stream=True),
            "whole": web.chats(stream=False),
            "form": web.forms,
            "response": web.responses,
            "repeated": GrpcLlm(client, again).send,
            "stored": GrpcLlm(client, fresh).send,
            "tenant": _tenants(client),
            "image": vision(client, pictures),
            "embedding": embedding(client, fresh),
            "assistant": assistant(client, _fresh("Is it a {}?"), pictures, spoken),
            "assistant's text": assistant(client, _fresh("Is it a {}?")),
            "assistant's picture": assistant(client, _fresh("Is it a {}?"), pictures),
            "assistant's voice": assistant(client, _fresh("Is it a {}?"), spoken=spoken),
            "recording": web.recordings,
            "left live": sender(lambda record, number: _leave(client, spoken[number % len(spoken)])),
            "left socket": web.sockets,
            "reload": sender(lambda record, number: asyncio.to_thread(load_again, server, "embedding")),
        }
        kinds = {name: Kind(name, 0.0, send) for name, send in sends.items()}
        kinds["left chat"] = Kind("left chat", 0.0, Leaving(client).send, frozenset({OK, "left"}))
        kinds["bad input"] = Kind("bad input", 0.0, Bad(client).send, REFUSED)
        kinds["bad request"] = Kind("bad request", 0.0, web.bad)
        yield kinds


class Web:
    """Requests to the gateway. What it answers with another status than expected is an error."""

    def __init__(self, http: aiohttp.ClientSession, *, fake: bool) -> None:
        self._http = http
        spoken = recordings(2.0, fake)[0]
        file = io.BytesIO()
        soundfile.write(file, spoken, SAMPLE_RATE, format="WAV")
        self._file = file.getvalue()
        self._pcm = (spoken[: int(LEFT_S * SAMPLE_RATE)] * 32_767).astype("<i2").tobytes()

    def chats(self, *, stream: bool) -> Send:
        return self._sending(
            lambda number: ("v1/chat/completions", {**_chat(f"Say {number} in words."), "stream": stream})
        )

    @property
    def forms(self) -> Send:
        """Each with a schema that no other has."""
        return self._sending(lambda number: ("v1/chat/completions", {**_chat("Count."), **_form(number)}))

    @property
    def responses(self) -> Send:
        """Each is kept."""
        more = {"model": "llm", "max_output_tokens": 16}
        return self._sending(lambda number: ("v1/responses", {"input": f"Say {number} in words.", **more}))

    @property
    def bad(self) -> Send:
        """A model, a path and a field that there are not, each with a name of its own."""
        return self._sending(
            lambda number: (
                ("v1/chat/completions", {**_chat("Hello"), "model": f"model-{number}"}),
                (f"v1/nothing-{number}", {}),
                ("v1/chat/completions", {**_chat("Hello"), f"field_{number}": 1, "n": -1}),
            )[number % 3],
            expected=(400, 404, 422),
        )

    @property
    def recordings(self) -> Send:
        async def ask(record: Record, number: int) -> None:
            form = aiohttp.FormData({"model": "speech", "language": "en"})
            form.add_field("file", self._file, filename="a.wav")
            async with self._http.post("v1/audio/transcriptions", data=form) as answer:
                await _checked(answer, (200,))

        return sender(ask)

    @property
    def sockets(self) -> Send:
        """Sessions whose connection is cut off while they are spoken to."""

        async def ask(record: Record, number: int) -> None:
            async with self._http.ws_connect("v1/realtime?model=speech") as socket:
                await socket.receive()
                audio = base64.b64encode(self._pcm).decode()
                await socket.send_str(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
                socket.get_extra_info("socket").shutdown(SHUT_RDWR)

        return sender(ask)

    def _sending(
        self, ask: Callable[[int], tuple[str, dict[str, Any]]], expected: Sequence[int] = (200,)
    ) -> Send:
        async def send(record: Record, number: int) -> None:
            path, body = ask(number)
            async with self._http.post(path, json=body) as answer:
                await _checked(answer, expected)

        return sender(send)


async def _checked(answer: aiohttp.ClientResponse, expected: Sequence[int]) -> None:
    text = await answer.text()
    if answer.status not in expected:
        raise ServerError(f"{answer.status}: {text[:100]}")


def _chat(text: str) -> dict[str, Any]:
    return {"model": "llm", "messages": [{"role": "user", "content": text}], "max_tokens": 8}


def _form(number: int) -> dict[str, Any]:
    names = {f"name_{number}": {"type": "string"}, f"count_{number}": {"type": "integer"}}
    schema = {"type": "object", "properties": names, "required": [*names], "additionalProperties": False}
    wanted = {"name": f"form_{number}", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


def _fresh(text: str) -> Source:
    """Questions that are each asked once."""
    return lambda number: Question(text.format(f"town number {number}"), 8)


def _tenants(client: Client) -> Send:
    """Each is another tenant's, of another salt."""

    async def ask(record: Record, number: int) -> None:
        await client.complete("Hello", max_tokens=2, tenant=f"tenant-{number}", cache_salt=f"salt-{number}")

    return sender(ask)


async def _leave(client: Client, samples: Any) -> None:
    async with client.listen() as stream:
        await stream.send(samples[: int(LEFT_S * SAMPLE_RATE)])


async def _look(server: Server, sent: int) -> Look:
    await asyncio.sleep(SETTLE_S)
    return await asyncio.to_thread(_now, server, sent)


def _now(server: Server, sent: int) -> Look:
    found = list(processes.tree(server.launcher))
    shared, regions = processes.shared_memory([pid for pid, _ in found])
    files = sum(path.is_file() for path in server.temporary.rglob("*"))
    held = {name: processes.figures(pid) for pid, name in found}
    return Look(sent, held, shared, regions, files, server.log.stat().st_size / 1024)


def table(counted: Sequence[Counted]) -> Table:
    """A row for each figure of a process that grew."""
    sent = [f"{look.sent:,}" for look in counted[0].looks]
    rows = [row for one in counted for row in one.rows()]
    note = "Memory in MiB. A request: what one of the last step adds, in KiB. What did not grow has no row."
    return Table("Held after so many requests", ("kind", "process", "", *sent, "a request"), rows, note, 3)
