"""Says before anything is rented what fits on which GPU, and how many are needed: `trimodal plan …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from trimodal.cli.operate.fleet import fleet, replica
from trimodal.plan.memory import KvPrecision, Precision, Runtime

if TYPE_CHECKING:
    from trimodal.plan.architecture import Architecture
    from trimodal.plan.memory import Deployment, Sizing

# Title, key and decimal places of what is shown where a price is given.
_COSTS = (("US$ an hour", "usd_per_hour", 2), ("US$ a million tokens", "usd_per_million_tokens", 3))
_ENGINE, _COST = "Engine", "Cost"
plan = typer.Typer(help="Say what fits on a GPU, and how many replicas a load needs.", no_args_is_help=True)
plan.command()(fleet)
plan.command()(replica)


@plan.callback()
def _group() -> None:
    """Say what fits on a GPU, and how many replicas a load needs."""


@plan.command()
def llm(
    source: str = typer.Argument(..., help="config.json, checkpoint directory or hub id."),
    card: list[str] = typer.Option([], help="GPU, as H100; repeatable. All known ones by default."),
    precision: Precision = typer.Option(Precision.fp16, help="Of the weights.", rich_help_panel=_ENGINE),
    kv_precision: KvPrecision = typer.Option(
        KvPrecision.auto, help="Of the KV cache; auto: 16 bits.", rich_help_panel=_ENGINE
    ),
    tp: int = typer.Option(1, min=1, help="Tensor parallel GPUs.", rich_help_panel=_ENGINE),
    pp: int = typer.Option(1, min=1, help="Pipeline parallel stages.", rich_help_panel=_ENGINE),
    max_seq_len: int = typer.Option(
        0, min=0, help="Prompt and answer; 0: 8192, or the model's most.", rich_help_panel=_ENGINE
    ),
    max_batch_size: int = typer.Option(256, min=1, help="Sequences in a step.", rich_help_panel=_ENGINE),
    max_num_tokens: int = typer.Option(8192, min=1, help="Tokens in a step.", rich_help_panel=_ENGINE),
    runtime: Runtime = typer.Option(
        Runtime.tensorrt_llm, help="Whose rules for the KV pool apply.", rich_help_panel=_ENGINE
    ),
    memory_fraction: float = typer.Option(
        0.9,
        min=0.01,
        max=1,
        help="Of the free memory (tensorrt_llm) or of all memory (vllm).",
        rich_help_panel=_ENGINE,
    ),
    tokens_per_second: float = typer.Option(
        0, min=0, max=1e9, help="Of all GPUs together, for the cost.", rich_help_panel=_COST
    ),
    price: float = typer.Option(
        0, min=0, max=1e6, help="US$ an hour of one GPU: adds the cost.", rich_help_panel=_COST
    ),
    json_: bool = typer.Option(False, "--json", help="Machine-readable, bytes in full."),
) -> None:
    """Weights, KV cache and sequences of a language model on one GPU or on each known one.

    With --price also what an hour costs, with --tokens-per-second a million tokens.
    """
    if tokens_per_second and not price:
        raise typer.BadParameter("--tokens-per-second needs --price")
    import json

    from trimodal.build_support import operator_errors
    from trimodal.plan.architecture import find_config, read_architecture
    from trimodal.plan.cards import CARDS, find_card
    from trimodal.plan.memory import Deployment, size

    with operator_errors():
        model = read_architecture(find_config(source))
        length = max_seq_len or min(8192, model.max_positions or 8192)
        deployments = [
            Deployment(
                card=each,
                precision=precision,
                kv_precision=kv_precision,
                tp=tp,
                pp=pp,
                max_seq_len=length,
                max_batch_size=max_batch_size,
                max_num_tokens=max_num_tokens,
                runtime=runtime,
                memory_fraction=memory_fraction,
            )
            for each in ([find_card(name) for name in card] or CARDS)
        ]
        rows = [_row(model, each, size(model, each), tokens_per_second, price) for each in deployments]
    if json_:
        head = {"architecture": model.name, "parameters": model.parameters, "sliding_window": model.window}
        typer.echo(json.dumps(head | {"cards": rows}, indent=2))
    elif len(rows) == 1:
        _print_one(source, model, rows[0])
    else:
        _print_cards(source, model, rows)
    if not any(row["fits"] for row in rows):
        raise typer.Exit(1)


def _row(
    model: Architecture, deployment: Deployment, sizing: Sizing, rate: float, price: float
) -> dict[str, Any]:
    from trimodal.plan.advice import advise, cost_per_million, longest

    return {
        "card": deployment.card.name,
        "gpus": deployment.gpus,
        "precision": deployment.precision.value,
        "kv_precision": deployment.kv_precision.value,
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
        "usd_per_hour": round(price * deployment.gpus, 3) if price else None,
        "usd_per_million_tokens": round(cost_per_million(deployment, price, rate), 4) if rate else None,
        "fits": not sizing.problems,
        "problems": list(sizing.problems),
        "remedies": advise(model, deployment),
    }


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _print_one(source: str, model: Architecture, row: dict[str, Any]) -> None:
    from trimodal.build_support import report

    shown = {
        "parameters": f"{model.parameters:,}",
        "weights on a GPU": _gib(row["weight_bytes"]),
        "activations and runtime (estimate)": _gib(row["reserve_bytes"]),
        "KV pool on a GPU": _gib(row["kv_pool_bytes"]),
        "left free on a GPU": _gib(row["left_bytes"]),
        "KV bytes a token, all GPUs": f"{row['kv_bytes_per_token']:,}",
        "KV blocks and tokens": f"{row['kv_blocks']:,} and {row['kv_tokens']:,}",
        f"sequences of {row['max_seq_len']} tokens": _sequences(row),
        "longest sequence": f"{row['longest_sequence']:,}",
        "one stream, at most (memory traffic)": f"{row['stream_bound_tokens_per_second']:.0f} tokens/s",
    }
    for title, key, places in _COSTS:
        if row[key] is not None:
            shown[title] = f"{row[key]:.{places}f}"
    title = f"{source} on {row['gpus']} × {row['card']}: {row['precision']}, KV {row['kv_precision']}"
    report(title, shown)
    _say(model, row)


def _sequences(row: dict[str, Any]) -> str:
    if row["kv_sequences"] > row["sequences"]:
        return f"{row['sequences']} (the batch limit; the pool holds {row['kv_sequences']})"
    return str(row["sequences"])


def _print_cards(source: str, model: Architecture, rows: list[dict[str, Any]]) -> None:
    from trimodal.build_support import report

    first = rows[0]
    costs = [cost for cost in _COSTS if first[cost[1]] is not None]
    header = ["GPU", "weights", "KV pool", "sequences", "longest", "stream tok/s ≤", "fits"]
    body = [
        [
            f"{row['gpus']} × {row['card']}",
            _gib(row["weight_bytes"]),
            _gib(row["kv_pool_bytes"]),
            row["sequences"],
            row["longest_sequence"],
            f"{row['stream_bound_tokens_per_second']:.0f}",
            row["fits"],
            *(f"{row[key]:.{places}f}" for _, key, places in costs),
        ]
        for row in rows
    ]
    title = f"{source}: {model.parameters:,} parameters, {first['precision']}, KV {first['kv_precision']}"
    title += f" ({first['kv_bytes_per_token']:,} bytes a token), sequences of {first['max_seq_len']} tokens"
    report(title, body, header=[*header, *(title for title, _, _ in costs)])
    for row in rows:
        _say(model, row)


def _say(model: Architecture, row: dict[str, Any]) -> None:
    for problem in row["problems"]:
        typer.echo(f"{row['card']}: {problem}")
    if row["remedies"]:
        typer.echo(f"{row['card']}: it fits with {' or with '.join(row['remedies'])}")
    if model.window and row["max_seq_len"] > model.window:
        typer.echo(f"Some layers attend to {model.window} tokens only: counted as if they attended to all.")
