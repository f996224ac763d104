"""Defines what the decode loop asks of a runtime, and answers it with torch's own modules.

Every tensor has a name, and an address that stays: those of build/steps/speech/static_export.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trimodal.speech.engines.torch.network import Whisper, each
from trimodal.speech.whisper.graphs import layer_names

CROSS = ("cross_key_{}", "cross_value_{}")
PAST = ("past_key_{}", "past_value_{}")
NEW = ("key_{}", "value_{}")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a decoder: layers, heads, head size, alignment heads, vocabulary, places, and its caches' type."""

    layers: int
    heads: int
    head: int
    aligned: int
    vocabulary: int
    places: int
    mel_bins: int
    cache: torch.dtype


class Forward(Protocol):
    """The two networks, run on tensors that are given: results are written where `outputs` say.

    All tensors are contiguous and on one device; runs are in order with torch's current stream.
    """

    @property
    def sizes(self) -> Sizes:
        """The decoder's."""

    def encode(self, features: Tensor, outputs: Mapping[str, Tensor]) -> None:
        """Features float32[batch, mel, frames] → cross_key_i, cross_value_i."""

    def decode(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """tokens, index, wanted and caches → logits, alignment, key_i, value_i: network.Decoder.forward."""

    def close(self) -> None:
        """Frees the weights."""


class TorchForward:
    """Forward by torch's modules."""

    def __init__(self, network: Whisper) -> None:
        self._network: Whisper | None = network
        weight, decoder = network.encoder.conv1.weight, network.decoder
        vocabulary, width = decoder.embed_tokens.weight.shape
        heads = next(iter(each(decoder.layers))).self_attn.heads
        self.sizes = Sizes(
            layers=len(decoder.layers),
            heads=heads,
            head=width // heads,
            aligned=sum(map(len, decoder.aligned)),
            vocabulary=vocabulary,
            places=decoder.embed_positions.weight.shape[0],
            mel_bins=weight.shape[1],
            cache=weight.dtype,
        )
        self._caches = layer_names(*CROSS, *PAST, layers=self.sizes.layers)
        self._crossed, self._made = (layer_names(*names, layers=self.sizes.layers) for names in (CROSS, NEW))

    def encode(self, features: Tensor, outputs: Mapping[str, Tensor]) -> None:
        """As in Forward."""
        assert self._network is not None, "closed"
        found = self._network.crossed(self._network.encoder(features))
        for name, value in zip(self._crossed, found, strict=True):
            outputs[name].copy_(value)

    def decode(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """As in Forward."""
        assert self._network is not None, "closed"
        given = [inputs[name] for name in ("tokens", "index", "wanted", *self._caches)]
        found = self._network.decoder(*given)
        for name, value in zip(("logits", "alignment", *self._made), found, strict=True):
            outputs[name].copy_(value)

    def close(self) -> None:
        """As in Forward."""
        self._network = None
