"""Reads which batches a classifier's plan is built for, as optimisation profiles."""

from __future__ import annotations

import argparse
import re

from trimodal.errors import ArtefactError
from trimodal.manifest import InputRange
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
