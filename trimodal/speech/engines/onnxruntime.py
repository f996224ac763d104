"""Runs Whisper's two ONNX graphs in ONNX Runtime; the caches stay on the device.

Names and shapes are those of build/steps/speech/onnx_export.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.runtimes.onnx_session import Device, open_session
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import open_artefact, read_spec, read_tokens
from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.graphs import Floats, HostScores, Tokens, layer_names
from trimodal.speech.whisper.greedy import HostGraphs
from trimodal.speech.whisper.model import GraphWhisper
from trimodal.speech.whisper.rows import Rules

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
# Takes rows out of all caches at once; artefacts of before it take theirs on the host.
KEEP = "keep.onnx"
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class WhisperGraphs:
    """The sessions of one model."""

    def __init__(self, directory: Path, *, device: Device, threads: int, command: str = "") -> None:
        """Opens the graphs; `command` builds them again, for the message.

        Raises ArtefactError: ONNX Runtime cannot load one; ServerError: it has no provider for the device.
        """

        def opened(name: str) -> Any:
            return open_session(directory / name, device=device, threads=threads, command=command)

        self.device = device
        self.encoder, self.decoder = opened(ENCODER), opened(DECODER)
        self.keep = opened(KEEP) if (directory / KEEP).is_file() else None
        past = [each for each in self.decoder.get_inputs() if each.name.startswith("past_key_")]
        self.layers = len(past)
        self.heads, self.head_size = int(past[0].shape[1]), int(past[0].shape[3])
        self.cache_type = TYPES[past[0].type]

    def start(self, features: Features) -> OnnxDecoding:
        """Encodes; a decoding of all rows. Several may go on at the same time."""
        return self.begin(self.encode(features))

    def encode(self, features: Features, *, hidden: bool = False) -> dict[str, Any]:
        """OrtValues by name: cross_key_i, cross_value_i and, if wanted, hidden."""
        names = layer_names("cross_key_{}", "cross_value_{}", layers=self.layers)
        binding = self.encoder.io_binding()
        binding.bind_cpu_input("features", np.ascontiguousarray(features, np.float32))
        return self.run(self.encoder, binding, [*names, *(["hidden"] if hidden else [])], on_host=())

    def close(self) -> None:
        """Frees the weights."""
        del self.encoder, self.decoder, self.keep

    def begin(self, crossed: dict[str, Any]) -> OnnxDecoding:
        """A decoding of all rows of an encoded batch."""
        return OnnxDecoding(self, crossed)

    def run(
        self, session: Any, binding: Any, outputs: Sequence[str], on_host: Sequence[str]
    ) -> dict[str, Any]:
        """OrtValues of the outputs by name; those that are not `on_host` stay on the device."""
        for name in outputs:
            binding.bind_output(name, "cpu" if name in on_host else self.device)
        session.run_with_iobinding(binding)
        return dict(zip(outputs, binding.get_outputs(), strict=True))


class OnnxDecoding:
    """The caches of a batch of rows that are decoded together; all have had the same number of tokens."""

    def __init__(self, graphs: WhisperGraphs, crossed: dict[str, Any]) -> None:
        self._graphs = graphs
        self._crossed = {name: value for name, value in crossed.items() if name.startswith("cross_")}
        self._present: dict[str, Any] = {}
        self.rows = int(crossed["cross_key_0"].shape()[0])
        self.length = 0  # tokens so far

    def step(self, tokens: Tokens) -> tuple[HostScores, Floats]:
        """As in graphs.Steps."""
        graphs = self._graphs
        binding = graphs.decoder.io_binding()
        binding.bind_cpu_input("tokens", np.ascontiguousarray(tokens, np.int64))
        for name, value in self._crossed.items():
            binding.bind_ortvalue_input(name, value)
        names = layer_names("key_{}", "value_{}", layers=graphs.layers)
        for name in names:
            binding.bind_ortvalue_input(f"past_{name}", self._present.get(name) or self._nothing())
        # Logits cross over once somebody asks: who only follows a text needs its attention alone.
        outputs = graphs.run(graphs.decoder, binding, ["logits", "alignment", *names], ("alignment",))
        self._present = {name: outputs[name] for name in names}
        self.length += tokens.shape[1]
        return HostScores(outputs["logits"].numpy), outputs["alignment"].numpy()

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows but these, whose numbers become 0, 1, …; copies the caches."""
        before = self._crossed | self._present
        if self._graphs.keep is not None and self._present:
            binding = self._graphs.keep.io_binding()
            binding.bind_cpu_input("rows", np.array(rows, np.int64))
            for name, value in before.items():
                binding.bind_ortvalue_input(name, value)
            names = [f"kept_{name}" for name in before]
            kept = self._graphs.run(self._graphs.keep, binding, names, on_host=())
            kept = dict(zip(before, kept.values(), strict=True))
        else:
            kept = {name: self._value(value.numpy()[list(rows)]) for name, value in before.items()}
        self._crossed = {name: kept[name] for name in self._crossed}
        self._present = {name: kept[name] for name in self._present}
        self.rows = len(rows)

    def _nothing(self) -> Any:
        graphs = self._graphs
        return self._value(np.zeros((self.rows, graphs.heads, 0, graphs.head_size), graphs.cache_type))

    def _value(self, array: NDArray[Any]) -> Any:
        import onnxruntime

        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self._graphs.device)


def open_engine(directory: Path, settings: RecogniseSettings) -> GraphWhisper:
    """The graphs in `directory` with the `tokenizer.json` beside them.

    Raises what `open_artefact` and `WhisperGraphs` do.
    """
    manifest, shapes = open_artefact(directory, settings, runtime="onnxruntime")
    spec = read_spec(directory, manifest)
    tokens = read_tokens(directory, manifest, shapes, multilingual=spec.multilingual)
    graphs = WhisperGraphs(
        directory, device=settings.device, threads=settings.threads, command=manifest.command
    )
    rules = Rules.of(tokens, spec, shapes.positions)
    return GraphWhisper(HostGraphs(graphs, rules), tokens, shapes, max_batch=settings.max_batch_windows)
