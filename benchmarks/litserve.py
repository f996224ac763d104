"""Makes the table "Images: beside LitServe": the same work behind its dynamic batching and behind ours.

    pip install --target litserve-packages litserve==0.2.19
    python -m benchmarks.litserve litserve-packages

LitServe gets what ours has: the artefact, `VisionStep` (decode, classify, rank) on as many threads, the
largest batch of `config.pbtxt`. Its requests have the image in base64, as its documents do, ours
are gRPC. Sides take turns; the load comes from this process.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import httpx
import typer
from rich.console import Console

from benchmarks.common import Process, free_port, post, run_command, running, serving, until
from trimodal.bench.load.generator import Send
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result, run_cases, sending
from trimodal.bench.report import IMAGES, print_tables
from trimodal.bench.samples import batch_of, jpegs
from trimodal.bench.targets.media import vision
from trimodal.bench.targets.taking import sender
from trimodal.build_support import operator_errors
from trimodal.server.options import ServerOptions
from trimodal.vision.settings import VisionSettings

MOST = 16  # of a batch, as in config.pbtxt
SERVER = """
import base64, sys
from pathlib import Path
import litserve
from trimodal.metrics import MemoryMetrics
from trimodal.vision.artefact import read_classifier
from trimodal.vision.engines.protocol import open_engine, runtime_of
from trimodal.vision.settings import VisionSettings
from trimodal.vision.steps import VisionStep

class Vision(litserve.LitAPI):
    def setup(self, device):
        settings = VisionSettings.model_validate_json(sys.argv[2])
        artefact = read_classifier(Path(sys.argv[1]), runtime=runtime_of(settings.engine))
        self.step = VisionStep(open_engine(artefact, settings), artefact, settings, MemoryMetrics())
    def decode_request(self, request):
        return base64.b64decode(request["image"])
    def batch(self, inputs):
        return inputs
    def predict(self, images):
        (answer,) = self.step.classify([images])
        return answer
    def unbatch(self, answer):
        return list(zip(*(part.tolist() for part in answer)))
    def encode_response(self, output):
        return {"labels": [str(label) for label in output[0]], "scores": output[1]}

if __name__ == "__main__":
    api = Vision(max_batch_size=int(sys.argv[3]), batch_timeout=float(sys.argv[4]))
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(host="127.0.0.1", port=int(sys.argv[5]), generate_client_file=False)
"""


@asynccontextmanager
async def litserve(packages: Path, *given: object) -> AsyncIterator[tuple[httpx.AsyncClient, int]]:
    """LitServe on a free port, given artefact, settings, largest batch and delay: its client, its process id.

    Raises: ServerError: it does not start.
    """
    port = free_port()
    environment = os.environ | {"PYTHONPATH": str(packages.resolve())}
    async with AsyncExitStack() as stack:
        # A file: LitServe's worker is another process, which imports it.
        program = Path(stack.enter_context(TemporaryDirectory(prefix="trimodal-bench-"))) / "server.py"
        program.write_text(SERVER)
        command = [sys.executable, str(program), *map(str, (*given, port))]
        peer = running(command, port, end, env=environment, start_new_session=True)
        process = await stack.enter_async_context(peer)
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        yield await stack.enter_async_context(client), process.pid


def over_http(client: httpx.AsyncClient, files: Sequence[bytes]) -> Send:
    """Images to LitServe, each a request of its own."""

    async def ask(record: Record, number: int) -> None:
        (image,) = batch_of(files, number, 1)
        await post(client, "/predict", json={"image": base64.b64encode(image).decode()})
        record.piece()

    return sender(ask)


def main(
    packages: Annotated[Path, typer.Argument(help="the folder with LitServe and what it needs")],
    concurrency: Annotated[list[int], typer.Option(min=1, help="clients; repeatable")] = [1, 4, 16, 48],  # noqa: B006
    image_size: Annotated[int, typer.Option(help="pixels of a side")] = 256,
    artefact: Annotated[str, typer.Option(help="absolute; else as shipped")] = "",
    delay_ms: Annotated[float, typer.Option(min=0, help="LitServe's batch_timeout")] = 1.0,
    seconds: Annotated[float, typer.Option(min=1, help="of each round")] = 8.0,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Sends images to both servers in turn."""
    plan = LoadPlan(sizes=tuple(concurrency), seconds=seconds, warmup=1.0, rounds=rounds)
    changes = {"vision": {"artefact": artefact}} if artefact else {}
    options = ServerOptions.on_free_ports("vision", changes=changes)

    async def run_all() -> list[Result]:
        async with AsyncExitStack() as stack:
            server, client = await stack.enter_async_context(serving(options, connections=4))
            model = server.models["vision"]
            settings = model.settings(VisionSettings)
            given = [(model.version_directory / settings.artefact).resolve(), settings.model_dump_json()]
            http, _ = await stack.enter_async_context(litserve(packages, *given, MOST, delay_ms / 1e3))
            files = await asyncio.to_thread(jpegs, image_size, image_size)
            ours, other = vision(client, files), over_http(http, files)
            await answering(other)
            sides = {"ours": sending(plan, lambda *_: ours), "LitServe": sending(plan, lambda *_: other)}
            return await run_cases(plan, sides)

    with operator_errors():
        results = asyncio.run(run_all())
    print_tables("Images", IMAGES, results, plan.slo, Console(highlight=False, width=120))


def end(process: Process) -> None:
    """Ends LitServe, whose servers and workers are processes that outlive their parent (0.2.19)."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def answering(peer: Send) -> None:
    """Waits for the first answer: LitServe listens before its worker is ready. Raises: ServerError."""

    async def answers() -> bool:
        return not (await peer(0)).error

    await until(answers, "an answer of LitServe")


if __name__ == "__main__":
    run_command(main)
