"""Makes the table "vLLM behind this server": the same build of vLLM in ours and in `vllm serve`, in turns.

    ./scripts/ci/vllm --env        # makes an environment on a CPU, and prints the two names below
    python -m benchmarks.llm.vllm .venv-vllm/bin/python model_repository/llm/1/checkpoint
    python -m benchmarks.llm.vllm … --shipped    # and "beside vLLM": ours as the repository has it

Both are asked over OpenAI's API by `trimodal bench llm`, with random words and answers as long as the other
side's, on a machine without other work.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import bench_llm, free_port, run_command, running, running_gateway, serving
from trimodal.build_support import operator_errors
from trimodal.server.options import ServerOptions

Python = Annotated[str, typer.Argument(help="interpreter of the environment that has vLLM")]
Checkpoint = Annotated[Path, typer.Argument(help="as build/llm_place.py puts it in place")]
Device = Annotated[str, typer.Option(help="what vLLM was built for: cpu or cuda")]
Threads = Annotated[int, typer.Option(min=0, help="of the model on a CPU; 0: one per CPU")]
Eager = Annotated[bool, typer.Option("--eager", help="compile nothing")]


def shared(eager: bool) -> dict[str, str]:
    """Settings of both sides."""
    return {"max_num_seqs": "16", "max_model_len": "4096", "enforce_eager": str(eager).lower()}


def options(python: str, checkpoint: Path, device: str, threads: int, eager: bool) -> ServerOptions:
    """Our server on vLLM."""
    llm = {"engine": "vllm", "device": device, "python": python, "artefact": str(checkpoint.resolve())}
    llm |= shared(eager) | ({"threads": str(threads)} if device == "cpu" else {})
    return ServerOptions.on_free_ports("llm", changes={"llm": llm}, ready_timeout=1200.0)


@asynccontextmanager
async def vllm_serve(
    python: str, checkpoint: Path, settings: dict[str, str], variables: dict[str, str]
) -> AsyncIterator[int]:
    """vLLM's own server on a free port, with what ours gives its engine. Raises: ServerError."""
    port = free_port()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(checkpoint), "--served-model-name", "llm"]
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        command += [flag] if value == "true" else [flag, value] if value != "false" else []
    async with running(command, port, env=os.environ | variables):
        yield port


def main(
    python: Python,
    checkpoint: Checkpoint,
    device: Device = "cpu",
    streams: Annotated[list[int], typer.Option(help="clients at once; repeatable")] = [1, 8, 16],  # noqa: B006
    prompt_tokens: Annotated[list[int], typer.Option(help="of a prompt; repeatable")] = [150, 480],  # noqa: B006
    max_tokens: Annotated[int, typer.Option(min=2, help="of an answer")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="turns of each side")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each turn")] = 20.0,
    threads: Threads = 0,
    eager: Eager = False,
    shipped: Annotated[bool, typer.Option("--shipped", help="ours with the repository's own engine")] = False,
) -> None:
    """Measures what this server adds to vLLM, or with --shipped how far its own engine is ahead."""
    own = options(python, checkpoint, device, threads, eager)
    if shipped:
        own = ServerOptions.on_free_ports("llm")
    variables = {}
    if device == "cpu":  # as trimodal/llm/engines/vllm.py has them
        variables = {
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(threads or os.cpu_count()),
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }
    load = [f"--max-tokens={max_tokens}", f"--seconds={seconds}", f"--rounds={rounds}", "--timeout=600"]
    load += [f"--streams={count}" for count in streams]

    async def run_all(prompts: Sequence[int]) -> int:
        async with (
            serving(own) as (server, _),
            running_gateway(server.grpc_url) as (ours, _),
            vllm_serve(python, checkpoint, shared(eager), variables) as theirs,
        ):
            sides = [f"--url=http://127.0.0.1:{ours}/v1", f"--beside=http://127.0.0.1:{theirs}/v1"]
            codes = [await bench_llm(*load, f"--prompt-tokens={tokens}", *sides) for tokens in prompts]
            return max(codes)

    with operator_errors():
        raise typer.Exit(asyncio.run(run_all(prompt_tokens)))


if __name__ == "__main__":
    run_command(main)
