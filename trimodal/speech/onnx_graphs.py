"""Whisper's two ONNX graphs in ONNX Runtime sessions: encoding, and decoding with caches on the device.

Names and shapes are those of build/speech_onnx_export.py. It knows tensors alone: which
tokens are taken, and what they mean, is the engine's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.speech.features import Features

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

Floats = NDArray[np.float32]


def layer_names(*patterns: str, layers: int) -> list[str]:
    """The patterns with the number of each layer in turn."""
    return [pattern.format(layer) for layer in range(layers) for pattern in patterns]


class WhisperGraphs:
    """The two sessions of one model."""

    def __init__(self, directory: Path, *, device: str, threads: int) -> None:
        """Opens both graphs.

        Raises:
            Exception: ONNX Runtime cannot load one, or has no provider for the device.
        """
        import onnxruntime

        if PROVIDERS[device] not in onnxruntime.get_available_providers():
            raise ValueError(f"this ONNX Runtime has no {PROVIDERS[device]}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Other models and the server share these cores: a thread that spins takes them away.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self.device = device
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(directory / name), options, providers=[PROVIDERS[device]])
            for name in (ENCODER, DECODER)
        )
        past = [each for each in self.decoder.get_inputs() if each.name.startswith("past_key_")]
        self.layers = len(past)
        self.heads, self.head_size = int(past[0].shape[1]), int(past[0].shape[3])

    def encode(self, features: Features, *, hidden: bool = False) -> dict[str, Any]:
        """OrtValues by name: cross_key_i, cross_value_i and, if wanted, hidden."""
        names = layer_names("cross_key_{}", "cross_value_{}", layers=self.layers)
        binding = self.encoder.io_binding()
        binding.bind_cpu_input("features", np.ascontiguousarray(features, np.float32))
        return self._run(self.encoder, binding, [*names, *(["hidden"] if hidden else [])], on_host=())

    def close(self) -> None:
        """Frees the weights."""
        del self.encoder, self.decoder

    def begin(self, crossed: dict[str, Any]) -> Decoding:
        """A decoding of all rows of an encoded batch."""
        return Decoding(self, crossed)

    def _run(
        self, session: Any, binding: Any, outputs: Sequence[str], on_host: Sequence[str]
    ) -> dict[str, Any]:
        for name in outputs:
            binding.bind_output(name, "cpu" if name in on_host else self.device)
        session.run_with_iobinding(binding)
        return dict(zip(outputs, binding.get_outputs(), strict=True))


class Decoding:
    """The caches of a batch of rows that are decoded together; all have had the same number of tokens."""

    def __init__(self, graphs: WhisperGraphs, crossed: dict[str, Any]) -> None:
        self._graphs = graphs
        self._crossed = {name: value for name, value in crossed.items() if name.startswith("cross_")}
        self._present: dict[str, Any] = {}
        self.rows = int(crossed["cross_key_0"].shape()[0])
        self.length = 0  # tokens so far

    def step(self, tokens: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Appends tokens int64[rows, n].

        Returns:
            Logits float32[rows, vocabulary] after the last, alignment float32[rows, heads, n, positions].
        """
        graphs = self._graphs
        binding = graphs.decoder.io_binding()
        binding.bind_cpu_input("tokens", np.ascontiguousarray(tokens, np.int64))
        for name, value in self._crossed.items():
            binding.bind_ortvalue_input(name, value)
        names = layer_names("key_{}", "value_{}", layers=graphs.layers)
        for name in names:
            binding.bind_ortvalue_input(f"past_{name}", self._present.get(name) or self._nothing())
        on_host = ("logits", "alignment")
        outputs = graphs._run(graphs.decoder, binding, [*on_host, *names], on_host)
        self._present = {name: outputs[name] for name in names}
        self.length += tokens.shape[1]
        return outputs["logits"].numpy(), outputs["alignment"].numpy()

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows but these, whose numbers become 0, 1, …; copies the caches."""
        for caches in (self._crossed, self._present):
            for name, value in caches.items():
                caches[name] = self._value(value.numpy()[list(rows)])
        self.rows = len(rows)

    def _nothing(self) -> Any:
        return self._value(np.zeros((self.rows, self._graphs.heads, 0, self._graphs.head_size), np.float32))

    def _value(self, array: Floats) -> Any:
        import onnxruntime

        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self._graphs.device)
