"""Says what fits on which GPU, and how many are needed: `trimodal plan …`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimodal.cli.common import with_settings
from trimodal.cli.operate.fleet import fleet, replica
from trimodal.plan.memory import KvPrecision, Precision, Runtime

if TYPE_CHECKING:
    from trimodal.plan.architecture import Architecture
    from trimodal.plan.memory import Deployment, Sizing

_engine = partial(typer.Option, rich_help_panel="Engine")
plan = typer.Typer(help="Say what fits on a GPU, and how many replicas a load needs.", no_args_is_help=True)
plan.command()(fleet)
plan.command()(replica)


@dataclass(frozen=True)
class EngineLimits:
    """Options of `trimodal plan llm`, named as in `Deployment`."""

    precision: Annotated[Precision, _engine(help="Of the weights.")] = "fp16"
    kv_precision: Annotated[KvPrecision, _engine(help="Of the KV cache; auto: 16 bits.")] = "auto"
    tp: Annotated[int, _engine(min=1, help="Tensor parallel GPUs.")] = 1
    pp: Annotated[int, _engine(min=1, help="Pipeline parallel stages.")] = 1
    max_seq_len: Annotated[int, _engine(min=0, help="Prompt and answer; 0: 8192, or the model's most.")] = 0
    max_batch_size: Annotated[int, _engine(min=1, help="Sequences in a step.")] = 256
    max_num_tokens: Annotated[int, _engine(min=1, help="Tokens in a step.")] = 8192
    runtime: Annotated[Runtime, _engine(help="Whose rules for the KV pool apply.")] = "tensorrt_llm"
    memory_fraction: Annotated[
        float, _engine(min=0.01, max=1, help="Of the free memory (tensorrt_llm) or of all memory (vllm).")
    ] = 0.9


@plan.command()
@with_settings(EngineLimits)
def llm(
    settings: EngineLimits,
    source: str = typer.Argument(..., help="config.json, checkpoint directory or hub id."),
    card: list[str] = typer.Option([], help="GPU, as H100, or cpu; repeatable. All known GPUs by default."),
    json_: bool = typer.Option(False, "--json", help="Machine-readable, bytes in full."),
) -> None:
    """Weights, KV cache and sequences of a language model on one GPU or on each known one."""
    import json

    from trimodal.build_support import operator_errors
    from trimodal.plan.architecture import find_config, read_architecture
    from trimodal.plan.cards import CARDS, find_card
    from trimodal.plan.memory import Deployment, size

    with operator_errors():
        model = read_architecture(find_config(source))
        length = settings.max_seq_len or min(8192, model.max_positions or 8192)
        limits = vars(replace(settings, max_seq_len=length))
        cards = [find_card(name) for name in card] or CARDS
        deployments = [Deployment(card=each, **limits) for each in cards]
        rows = [_row(model, each, size(model, each)) for each in deployments]
    if json_:
        head = {"architecture": model.name, "parameters": model.parameters, "sliding_window": model.window}
        typer.echo(json.dumps(head | {"cards": rows}, indent=2))
    else:
        _print(source, model, rows)
    if not any(row["fits"] for row in rows):
        raise typer.Exit(1)


def _row(model: Architecture, deployment: Deployment, sizing: Sizing) -> dict[str, Any]:
    from trimodal.plan.advice import advise
    from trimodal.plan.memory import longest

    return {
        "card": deployment.card.name,
        "gpus": deployment.gpus,
        "precision": deployment.precision,
        "kv_precision": deployment.kv_precision,
        "max_seq_len": deployment.max_seq_len,
        "memory_bytes": deployment.card.memory,
        "weight_bytes": sizing.weights,
        "reserve_bytes": sizing.reserve,
        "kv_pool_bytes": sizing.pool,
        "left_bytes": sizing.left,
        "kv_bytes_per_token": sizing.kv_token,
        "kv_blocks": sizing.blocks,
        "kv_tokens": sizing.tokens,
        "sequences": min(sizing.sequences, deployment.max_batch_size),
        "kv_sequences": sizing.sequences,
        "longest_sequence": longest(sizing, model),
        "stream_bound_tokens_per_second": round(sizing.stream_bound, 1),
        "fits": not sizing.problems,
        "problems": list(sizing.problems),
        "remedies": advise(model, deployment),
    }


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _print(source: str, model: Architecture, rows: list[dict[str, Any]]) -> None:
    from trimodal.build_support import report

    first = rows[0]
    shown: dict[str, Callable[[dict[str, Any]], object]] = {
        "GPU": lambda row: f"{row['gpus']} × {row['card']}",
        "weights": lambda row: _gib(row["weight_bytes"]),
        "KV pool": lambda row: _gib(row["kv_pool_bytes"]),
        "left": lambda row: _gib(row["left_bytes"]),
        "sequences": lambda row: row["sequences"],
        "longest": lambda row: row["longest_sequence"],
        "stream tok/s ≤": lambda row: f"{row['stream_bound_tokens_per_second']:.0f}",
        "fits": lambda row: row["fits"],
    }
    title = f"{source}: {model.parameters:,} parameters, {first['precision']}, KV {first['kv_precision']}"
    title += f" ({first['kv_bytes_per_token']:,} bytes a token), sequences of {first['max_seq_len']} tokens"
    report(title, [[of(row) for of in shown.values()] for row in rows], header=list(shown))
    for row in rows:
        for problem in row["problems"]:
            typer.echo(f"{row['card']}: {problem}")
        if row["remedies"]:
            typer.echo(f"{row['card']}: it fits with {' or with '.join(row['remedies'])}")
        if model.window and row["max_seq_len"] > model.window:
            typer.echo(
                f"Some layers attend to {model.window} tokens only: counted as if they attended to all."
            )
