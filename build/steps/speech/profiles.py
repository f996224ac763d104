"""Computes the optimisation profiles of Whisper's two plans from the graphs' free dimensions.

The encoder has a profile for each context, since each is of one length. The decoder has one of single tokens
for each number of rows that is run, which is most of its work, and one of openings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from trimodal.errors import ArtefactError
from trimodal.manifest import InputRange
from trimodal.speech.engines.graphs.rows import START, bucket_sizes, longest_opening
from trimodal.speech.whisper.artefact import SpeechShapes
from trimodal.speech.whisper.features import FRAMES_PER_S

Size = tuple[int, int, int]  # smallest, tuned for, largest
Profile = dict[str, InputRange]
# Of the decoder's inputs, those that a manifest names: every layer has the same.
NAMED = ("tokens", "cross_key_0", "past_key_0")


def encoder_profiles(graph: Path, shapes: SpeechShapes, batch: Size) -> list[Profile]:
    """One for each context, ascending. Raises: ArtefactError when the graph has other free dimensions."""
    frames = [round(context_s * FRAMES_PER_S) for context_s in shapes.contexts_s]
    return [_profile(graph, {"batch": batch, "frames": (each, each, each)}) for each in frames]


def decoder_profiles(graph: Path, shapes: SpeechShapes, batch: Size) -> list[Profile]:
    """Of single tokens by rows, then of openings. Raises: ArtefactError: other free dimensions."""
    positions = [round(context_s * FRAMES_PER_S) // 2 for context_s in shapes.contexts_s]
    common: Mapping[str, Size] = {"positions": (positions[0], positions[0], positions[-1])}
    steps: list[Mapping[str, Size]] = [
        {"batch": (rows, rows, rows), "n": (1, 1, 1), "wanted": (1, 1, 1)} for rows in bucket_sizes(batch[2])
    ]
    opening: Mapping[str, Size] = {
        "batch": batch,
        "n": (1, START, longest_opening(shapes.positions)),
        "wanted": (2, 2, 2),
    }
    return [_profile(graph, {**common, **sizes}) for sizes in (*steps, opening)]


def manifest_profiles(encoder: list[Profile], decoder: list[Profile]) -> list[Profile]:
    """What may be run together: every profile of the encoder with every one of the decoder."""
    return [
        {"encoder:features": one["features"], **{f"decoder:{name}": other[name] for name in NAMED}}
        for one in encoder
        for other in decoder
    ]


def _profile(graph: Path, sizes: Mapping[str, Size]) -> Profile:
    """Each input's shape, its free dimensions filled in by name."""
    model = onnx.load(graph, load_external_data=False)
    profile = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        unknown = [dim.dim_param for dim in dims if dim.dim_param and dim.dim_param not in sizes]
        if unknown:
            raise ArtefactError(
                f"{graph}: {value.name} has a free dimension {unknown[0]!r}, which is not one of "
                f"build/speech_tensorrt.py's ({', '.join(sizes)})"
            )
        low, usual, high = (
            tuple(sizes[dim.dim_param][at] if dim.dim_param else dim.dim_value for dim in dims)
            for at in range(3)
        )
        profile[value.name] = InputRange(min=low, opt=usual, max=high)
    return profile
