"""Checks that the optimisation profiles of a classifier's plan cover what the model's config asks for.

A profile that is too small makes Triton refuse the model, or run without its CUDA graphs, at the
next start: here it is told before the build.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from trimodal.errors import ArtefactError
from trimodal.manifest import InputRange, Shape
from trimodal.vision.artefact import InputSpec

INPUT = "pixels"
Profiles = list[dict[str, InputRange]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--max-batch and --opt-batch for one profile, --profile for several."""
    parser.add_argument("--max-batch", type=int, default=16, help="largest batch of the plan; 16")
    parser.add_argument(
        "--opt-batch", type=int, help="batch that kernels are chosen for; half of the largest"
    )
    parser.add_argument(
        "--profile",
        action="append",
        metavar="MIN:OPT:MAX",
        help="batches, instead of these two; repeatable: of those in instance_group Triton takes the one "
        "with the nearest OPT",
    )
    parser.add_argument(
        "--config",
        type=Path,
        help="config.pbtxt to be served with (model_repository/vision_classify/config.pbtxt)",
    )


def read_profiles(options: argparse.Namespace, spec: InputSpec) -> Profiles:
    """The profiles that the arguments ask for. Raises: ArtefactError: batches that are not in order."""
    opt = max(1, options.max_batch // 2) if options.opt_batch is None else options.opt_batch
    texts = options.profile or [f"1:{opt}:{options.max_batch}"]
    profiles: Profiles = []
    for text in texts:
        match = re.fullmatch(r"(\d+):(\d+):(\d+)", text)
        sizes = [int(size) for size in match.groups()] if match else []
        if not sizes or not 1 <= sizes[0] <= sizes[1] <= sizes[2]:
            raise ArtefactError(f"profile {text}: MIN:OPT:MAX wanted, from 1 on and in order, as 1:8:16")
        low, best, high = ((size, 3, spec.height, spec.width) for size in sizes)
        profiles.append({INPUT: InputRange(min=low, opt=best, max=high)})
    return profiles


def check_config(config: Path, profiles: Profiles, spec: InputSpec) -> None:
    """Compares the profiles with max_batch_size, preferred sizes, CUDA graphs and warm-ups of a config.pbtxt.

    Raises:
        ArtefactError: names the file, what it asks for, and what to change.
    """
    try:
        model = text_format.Parse(config.read_text(), model_config_pb2.ModelConfig())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise ArtefactError(f"{config} cannot be read as a model configuration: {error}") from None
    numbers = [int(number) for group in model.instance_group for number in group.profile] or [0]
    if max(numbers) >= len(profiles):
        raise ArtefactError(
            f"{config} names profile {max(numbers)} in instance_group, and the plan has {len(profiles)}: "
            "add a --profile, or change the file"
        )
    served = [profiles[number][INPUT] for number in sorted(set(numbers))]
    for why, shape in _wanted(model, (3, spec.height, spec.width)):
        if shape[1:] != (3, spec.height, spec.width):
            raise ArtefactError(
                f"{config}: {why} is for pixels {_text(shape[1:])}, and this classifier takes "
                f"{_text((3, spec.height, spec.width))}: change the file, or name another with --config"
            )
        if not any(one.min[0] <= shape[0] <= one.max[0] for one in served):
            raise ArtefactError(
                f"{config}: {why} is {shape[0]}, and no profile that it serves with takes it "
                f"({', '.join(f'{one.min[0]} to {one.max[0]}' for one in served)}): "
                f"--max-batch {shape[0]}, or change the file"
            )


def _wanted(model: Any, sides: Shape) -> Iterator[tuple[str, Shape]]:
    """(what asks for it, its whole shape) of every batch that Triton will run or prepare."""
    yield "the smallest batch", (1, *sides)
    yield "max_batch_size", (model.max_batch_size, *sides)
    for size in model.dynamic_batching.preferred_batch_size:
        yield "a preferred_batch_size", (size, *sides)
    for spec in model.optimization.cuda.graph_spec:
        dims = tuple(spec.input[INPUT].dim) if INPUT in spec.input else sides
        yield "the batch_size of a graph_spec", (spec.batch_size, *dims)
    for warmup in model.model_warmup:
        if INPUT in warmup.inputs:
            yield f"the model_warmup '{warmup.name}'", (warmup.batch_size, *warmup.inputs[INPUT].dims)


def _text(shape: Shape) -> str:
    return "×".join(map(str, shape))
