"""Says what fits on which GPU, and how many are needed: `trimodal plan …`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

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
) -> None:
    """Weights, KV cache and sequences of a language model on one GPU or on each known one."""
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
        sizings = [size(model, each) for each in deployments]
    _print(source, model, deployments, sizings)
    if all(sizing.problems for sizing in sizings):
        raise typer.Exit(1)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _print(
    source: str, model: Architecture, deployments: Sequence[Deployment], sizings: Sequence[Sizing]
) -> None:
    from trimodal.build_support import report
    from trimodal.plan.advice import advise
    from trimodal.plan.memory import longest

    first, length = deployments[0], deployments[0].max_seq_len
    header = ("GPU", "weights", "KV pool", "left", "sequences", "longest", "stream tok/s ≤", "fits")
    rows = [
        [
            f"{one.gpus} × {one.card.name}",
            *map(_gib, (sizing.weights, sizing.pool, sizing.left)),
            min(sizing.sequences, one.max_batch_size),
            longest(sizing, model),
            f"{sizing.stream_bound:.0f}",
            not sizing.problems,
        ]
        for one, sizing in zip(deployments, sizings, strict=True)
    ]
    title = f"{source}: {model.parameters:,} parameters, {first.precision}, KV {first.kv_precision}"
    title += f" ({sizings[0].kv_token:,} bytes a token), sequences of {length} tokens"
    report(title, rows, header=header)
    for one, sizing in zip(deployments, sizings, strict=True):
        for problem in sizing.problems:
            typer.echo(f"{one.card.name}: {problem}")
        if remedies := advise(model, one):
            typer.echo(f"{one.card.name}: it fits with {' or with '.join(remedies)}")
    if model.window and length > model.window:
        typer.echo(f"Some layers attend to {model.window} tokens only: counted as if they attended to all.")
