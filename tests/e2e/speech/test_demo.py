"""The demo model on the real server makes up no words where there is no speech.

`trimodal bench speech` measures how well it recognises speech.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.e2e.speech.streams import MODELS, Stream, cut, over_grpc
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]

RNG = np.random.default_rng(5)
TIME = np.arange(8 * 16_000) / 16_000


def chord(*frequencies: float) -> NDArray[np.float32]:
    return np.asarray(0.15 * sum(np.sin(2 * np.pi * f * TIME) for f in frequencies), np.float32)


def music() -> NDArray[np.float32]:
    """Four chords of two seconds, plucked."""
    chords = [(262, 330, 392), (220, 262, 330), (175, 220, 262), (196, 247, 294)]
    parts = [chord(*one)[:32_000] * np.exp(-TIME[:32_000] * 1.5) for one in chords]
    return np.concatenate(parts).astype(np.float32)


SOUNDS = {
    "silence": np.zeros(len(TIME), np.float32),
    "faint noise": RNG.normal(0, 0.003, len(TIME)).astype(np.float32),
    "white noise": RNG.normal(0, 0.1, len(TIME)).astype(np.float32),
    "loud noise in bursts": (RNG.normal(0, 0.3, len(TIME)) * (TIME % 2 < 1)).astype(np.float32),
    "a tone": chord(440.0),
    "a chord": chord(262, 330, 392),
    "plucked chords": music(),
    "hum": chord(50, 100, 150),
    "a siren": (0.3 * np.sin(2 * np.pi * (600 * TIME - 40 * np.cos(2 * np.pi * TIME)))).astype(np.float32),
    "a constant": np.full(len(TIME), 0.7, np.float32),
    "a square wave": np.sign(np.sin(2 * np.pi * 220 * TIME)).astype(np.float32),
    "clicks": (np.arange(len(TIME)) % 8000 == 0).astype(np.float32),
}


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(MODELS, {"speech": {"step_s": "1.0", "max_step_s": "1.0"}})


@pytest.mark.parametrize("name", SOUNDS)
def test_where_nobody_speaks_no_words_are_made_up(server: TritonServer, name: str) -> None:
    with over_grpc(server) as line:
        for policy in ("live", "window"):
            updates = Stream(line, policy=policy).say(list(cut(SOUNDS[name], 1, 0.3, 0.7)))
            assert "".join(update.text for update in updates) == ""
