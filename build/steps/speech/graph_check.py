"""Compares Whisper's exported graphs, and the plans that are built of them, with transformers' forward pass.

Both are run by the decode loop that serves, over batches and contexts: an opening in two parts, then token
by token. That covers what exporter and compiler may get wrong: free sizes, masks, places, caches, heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from steps.artefact import MAX_ERROR, reason, refuse_errors
from steps.limits import hold_error
from steps.speech.check import encode_with_torch
from steps.speech.checkpoint import Checkpoint
from steps.speech.export import DECODER, ENCODER
from torch import Tensor

from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.runtimes.onnx_session import open_session
from trimodal.speech.engines.graphs.rows import Floats, Rules
from trimodal.speech.engines.tensorrt.forward import Sizes
from trimodal.speech.engines.tensorrt.loop import DeviceGraphs
from trimodal.speech.whisper.artefact import SpeechShapes
from trimodal.speech.whisper.features import FRAMES_PER_S, Features

# All profiles of the decoder.
OPENING, STEPS = (4, 3), 6


class OnnxForward:
    """Forward by ONNX Runtime on the processor, of the graphs in a directory."""

    def __init__(self, directory: Path) -> None:
        self._encoder, self._decoder = (
            open_session(directory / name, device="cpu", threads=torch.get_num_threads())
            for name in (ENCODER, DECODER)
        )
        values = [*self._decoder.get_inputs(), *self._decoder.get_outputs()]
        shapes = {value.name: value.shape for value in values}
        _, heads, places, head = shapes["past_key_0"]
        half = next(value.type == "tensor(float16)" for value in values if value.name == "past_key_0")
        self.sizes = Sizes(
            layers=sum(name.startswith("past_key_") for name in shapes),
            heads=heads,
            head=head,
            aligned=shapes["alignment"][1],
            vocabulary=shapes["logits"][2],
            places=places,
            mel_bins=self._encoder.get_inputs()[0].shape[1],
            cache=torch.float16 if half else torch.float32,
        )

    def encode(self, features: Tensor, outputs: Mapping[str, Tensor]) -> None:
        """As in Forward."""
        self._run(self._encoder, {"features": features}, outputs)

    def decode(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """As in Forward."""
        self._run(self._decoder, inputs, outputs)

    def close(self) -> None:
        """As in Forward."""
        del self._encoder, self._decoder

    @staticmethod
    def _run(session: Any, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        computed = session.run(list(outputs), {name: tensor.numpy() for name, tensor in inputs.items()})
        for tensor, array in zip(outputs.values(), computed, strict=True):
            tensor.copy_(torch.from_numpy(array))


def check_graphs(checkpoint: Checkpoint, directory: Path, precision: str, shapes: SpeechShapes) -> None:
    """Runs the exported graphs in ONNX Runtime. Raises: ArtefactError where they compute something else."""
    rules = Rules(end=0, never=(), not_first=(), positions=shapes.positions)
    frames = _frames(shapes)
    graphs = DeviceGraphs(OnnxForward(directory), rules, buckets=(1, 3), frames=frames, device="cpu")
    title = "Comparing the graphs with torch"
    try:
        errors = largest_errors(checkpoint, graphs, shapes, (1, 3), title)
    finally:
        graphs.close()
    refuse_errors(f"{precision} graphs", precision, errors, errors)


def check_plans(
    checkpoint: Checkpoint, graphs: DeviceGraphs, precision: str, shapes: SpeechShapes, batches: Sequence[int]
) -> dict[str, Any]:
    """Figures of opened plans. Raises: ArtefactError: 10 times what rounding explains, or they do not run."""
    try:
        title = "Comparing the plans with torch"
        figures: dict[str, Any] = dict(largest_errors(checkpoint, graphs, shapes, batches, title))
    except RuntimeError as error:  # TensorRT's refusals, torch's out of memory, CUDA's own.
        raise ArtefactError(
            f"the plans were built and do not run ({reason(error)}): nothing was replaced"
        ) from None
    for key in list(figures):
        who = f"nothing was replaced: the plans' {key.partition('_')[0]}"
        hold_error(figures, key, MAX_ERROR[precision], None, who=who, whose="torch's")
    return figures | {"batches": list(batches)}


def largest_errors(
    checkpoint: Checkpoint, graphs: DeviceGraphs, shapes: SpeechShapes, batches: Sequence[int], title: str
) -> dict[str, float]:
    """Largest relative errors of logits and attention over contexts and batch sizes."""
    random = np.random.default_rng(0)
    errors = {"logits_relative_error": 0.0, "alignment_relative_error": 0.0}
    checkpoint.model.set_attn_implementation("eager")  # The only one that returns its weights.
    cases = [(rows, length) for rows in batches for length in _frames(shapes)]
    with progress(title, total=len(cases)) as advance:
        for rows, length in cases:
            features = random.standard_normal((rows, shapes.mel_bins, length), np.float32) / 2
            tokens = random.integers(0, graphs.vocabulary, (rows, sum(OPENING) + STEPS))
            both = zip(
                errors,
                _decode(graphs, features, tokens),
                _forward(checkpoint, features, tokens),
                strict=True,
            )
            for name, found, expected in both:
                error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
                errors[name] = float(np.maximum(errors[name], error))  # NaN stays, max() drops it
            advance()
    return errors


def _decode(graphs: DeviceGraphs, features: Features, tokens: Any) -> tuple[Floats, Floats]:
    """Logits within the opening and after every token after it; attention of those tokens."""
    decoding = graphs.start(features)
    first, second = OPENING
    logits, attention = [decoding.open(tokens[:, :first], 0)], []
    decoding.open(tokens[:, first : first + second], 0)
    for at in range(first + second, tokens.shape[1]):
        scores, weights = decoding.step(tokens[:, at : at + 1])
        logits.append(scores)
        attention.append(weights)
    return np.stack(logits, 1), np.stack(attention, 2)


def _forward(checkpoint: Checkpoint, features: Features, tokens: Any) -> tuple[Floats, Floats]:
    """The same of transformers, without caches."""
    with torch.inference_mode():
        out = checkpoint.model.model.decoder(
            input_ids=torch.as_tensor(tokens),
            encoder_hidden_states=encode_with_torch(checkpoint, features),
            use_cache=False,
            output_attentions=True,
        )
        logits = checkpoint.model.proj_out(out.last_hidden_state).numpy()
        # In the order of the graph: by layer, then as the checkpoint names the heads.
        pairs = sorted(checkpoint.alignment_heads, key=lambda pair: pair[0])
        alignment = torch.stack([out.cross_attentions[layer][:, head] for layer, head in pairs], 1).numpy()
    steps = sum(OPENING)
    return np.concatenate([logits[:, :1], logits[:, steps:]], 1), alignment[:, :, steps:]


def _frames(shapes: SpeechShapes) -> list[int]:
    return [round(context_s * FRAMES_PER_S) for context_s in shapes.contexts_s]
