"""Defines the plan of a vision bench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimodal.server.options import Profile

if TYPE_CHECKING:
    pass


# Clients that send batches: while one batch is classified the next is decoded and a third is on its way.
BATCH_CLIENTS = 3


@dataclass(frozen=True)
class Plan:
    """What to measure. Every round takes `seconds` for each case of each side.

    `pixels`: the same cases also against vision_classify alone, without decoding. `torch`: the
    network in torch as well. `max_batch`: served in batches of up to so many images; 0: as configured.
    """

    concurrency: tuple[int, ...]
    batches: tuple[int, ...]
    rounds: int
    seconds: float
    bare: bool
    width: int
    height: int
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    profile: Profile = "cpu"
    torch: bool = False
    pixels: bool = False
    max_batch: int = 0

    @property
    def cases(self) -> list[tuple[int, int]]:
        """Clients and images a request: single images first, then batches of the clients' making."""
        return [(count, 1) for count in self.concurrency] + [(BATCH_CLIENTS, size) for size in self.batches]

    @property
    def sizes(self) -> list[int]:
        """Batches of the bare side: all that a case could at best become."""
        return sorted({1, *self.concurrency, *self.batches})
