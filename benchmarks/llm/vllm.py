"""Makes the table "vLLM behind this server": the same build of vLLM in ours and in `vllm serve`, in turns.

    ./scripts/ci/vllm --env        # makes an environment on a CPU, and prints the two names below
    python -m benchmarks.llm.vllm .venv-vllm/bin/python model_repository/llm/1/checkpoint
    python -m benchmarks.llm.vllm … --shipped    # and "beside vLLM": ours as the repository has it

Both are asked over OpenAI's API, with random words and answers of one length, on a machine without
other work.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.common import running, running_gateway, serving
from benchmarks.gateway import Side, measure
from benchmarks.tables import NARROW, make_table
from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.load.statistics import Summary
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.questions import Mix, Question, Questions, listed
from trimodal.build_support import operator_errors
from trimodal.errors import ServerError
from trimodal.server import ports
from trimodal.server.options import ServerOptions

PERCENTS = ("p50", "p99")
COLUMNS = "streams × prompt|side|requests|tok/s|TTFT p50|p99|gap p50|p99"


@asynccontextmanager
async def vllm_serve(
    python: str, checkpoint: Path, settings: dict[str, str], variables: dict[str, str]
) -> AsyncIterator[int]:
    """vLLM's own server on a free port, with what ours gives its engine. Raises: ServerError."""
    port = ports.choose("127.0.0.1", {"vllm": 0})["vllm"]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(checkpoint), "--served-model-name", "llm"]
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        command += [flag] if value == "true" else [flag, value] if value != "false" else []
    async with running(command, port, env=os.environ | variables):
        yield port


def row(case: str, side: Side) -> list[str]:
    found = side.summary()
    times = [
        f"{series.percentiles[percent]:.1f}" if (series := found.metrics.get(name)) else ""
        for name in ("ttft_ms", "itl_ms")
        for percent in PERCENTS
    ]
    return [case, side.name, str(found.ok), f"{found.output_tokens_per_s:.1f}", *times]


def compared(ours: Summary, theirs: Summary) -> list[str]:
    """Tokens a second of ours for each of theirs, and what ours adds to the time to the first.

    Raises:
        ServerError: a side answered nothing.
    """
    first = [one.metrics["ttft_ms"] for one in (ours, theirs) if one.metrics.get("ttft_ms")]
    if len(first) < 2:
        raise ServerError("no answer was complete: give more --seconds")
    ratio = ours.output_tokens_per_s / theirs.output_tokens_per_s
    added = [first[0].percentiles[percent] - first[1].percentiles[percent] for percent in PERCENTS]
    return ["", "ours to theirs", "", f"{ratio:.2f}", *(f"{value:+.1f}" for value in added), "", ""]


def main(
    python: Annotated[str, typer.Argument(help="interpreter of the environment that has vLLM")],
    checkpoint: Annotated[Path, typer.Argument(help="as build/llm_place.py puts it in place")],
    device: Annotated[str, typer.Option(help="what vLLM was built for: cpu or cuda")] = "cpu",
    streams: Annotated[list[int], typer.Option(help="clients at once; repeatable")] = [1, 8, 16],  # noqa: B006
    prompt_tokens: Annotated[list[int], typer.Option(help="of a prompt; repeatable")] = [150, 480],  # noqa: B006
    max_tokens: Annotated[int, typer.Option(min=2, help="of an answer")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="turns of each side; one more warms up")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each turn")] = 20.0,
    threads: Annotated[int, typer.Option(min=0, help="of the model on a CPU; 0: one per CPU")] = 0,
    eager: Annotated[bool, typer.Option("--eager", help="compile nothing")] = False,
    shipped: Annotated[bool, typer.Option("--shipped", help="ours with the repository's own engine")] = False,
) -> None:
    """Measures what this server adds to vLLM, or with --shipped how far its own engine is ahead."""
    shared = {"max_num_seqs": "16", "max_model_len": "2048", "enforce_eager": str(eager).lower()}
    ours = {"engine": "vllm", "device": device, "python": python, "artefact": str(checkpoint.resolve())}
    behind = ours | shared | ({"threads": str(threads)} if device == "cpu" else {})
    options = ServerOptions.on_free_ports(
        "llm",
        changes={} if shipped else {"llm": behind},
        ready_timeout=1200.0,
    )
    variables = {}
    if device == "cpu":  # as trimodal/llm/engines/vllm.py has them
        count = str(threads or os.cpu_count())
        variables = {
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": count,
        }
        variables |= {"VLLM_CPU_KVCACHE_SPACE": "1"}
    title = "this server and vllm serve" if shipped else "vLLM behind this server and behind its own"
    table = make_table(f"{title} (ms)", COLUMNS, **NARROW)

    async def run_all() -> None:
        async with AsyncExitStack() as stack:
            server, _ = await stack.enter_async_context(serving(options))
            port, _ = await stack.enter_async_context(running_gateway(server.grpc_url))
            other = await stack.enter_async_context(vllm_serve(python, checkpoint, shared, variables))
            targets = {}
            for name, at in (("ours", port), ("vllm serve", other)):
                url, nothing = f"http://127.0.0.1:{at}/v1", listed([Question("", 1)])
                targets[name] = HttpLlm(url, nothing, timeout=600.0, ignore_eos=True)
                stack.push_async_callback(targets[name].aclose)
            for tokens in prompt_tokens:
                asked = Questions(Mix(parse_lengths(str(tokens), ""), parse_lengths(str(max_tokens), "")))
                for count in streams:
                    sides = [Side(name, target.send) for name, target in targets.items()]
                    for turn in range(rounds + 1):
                        for side in sides:
                            if turn < 2:  # the first warms up
                                side.runs = []
                            # Other questions in each turn: those before are in the prefix caches.
                            side.send = targets[side.name].asking(asked.reseeded(f"{count} {turn}")).send
                            await measure(side, count, seconds)
                    for side in sides:
                        table.add_row(*row(f"{count} × {tokens}", side))
                    table.add_row(*compared(sides[0].summary(), sides[1].summary()))

    with operator_errors():
        try:
            asyncio.run(run_all())
        finally:
            Console(highlight=False, width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
