"""Recognisers side by side, with the fake engine."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from trimodal.audio.values import Word
from trimodal.bench.speech.engines import compare, open_artefacts, show
from trimodal.errors import ArtefactError
from trimodal.speech.values import Recognition


class Slow:
    """Takes `work` loops a window and hears one word in each."""

    contexts_s, languages = (5.0,), ("en",)

    def __init__(self, name: str, calls: list[tuple[str, int]], seconds: float) -> None:
        self.name, self.calls, self.seconds = name, calls, seconds

    def recognise(self, windows, temperature=0.0):
        self.calls.append((self.name, len(windows)))
        assert {len(window.samples) for window in windows} == {8000}
        return [Recognition((Word(" one", 0, 0.1, 1.0),)) for _ in windows]

    def close(self):
        pass


def test_engines_hear_the_same_in_turn_and_the_first_is_the_measure(monkeypatch):
    calls: list[tuple[str, int]] = []
    engines = {"a": Slow("a", calls, 0.2), "b": Slow("b", calls, 0.05)}
    now = [0.0]

    def clock():
        """Each call of an engine takes its seconds: the clock is read before and after it."""
        if len(calls) > clock.seen:
            now[0] += engines[calls[-1][0]].seconds * calls[-1][1]
            clock.seen = len(calls)
        return now[0]

    clock.seen = 0
    monkeypatch.setattr("trimodal.bench.speech.engines.time.perf_counter", clock)
    monkeypatch.setattr("trimodal.bench.speech.engines.time.process_time", lambda: 2 * now[0])
    audio = [np.zeros(30_000, np.float32)]
    found = compare(engines, audio, windows_s=[0.5], batches=[1, 4], rounds=3)
    assert calls == [("a", 1), ("b", 1)] * 4 + [("a", 4), ("b", 4)] * 4, "one round warms up"
    assert [(one.engine, one.batch, one.words) for one in found] == [
        ("a", 1, 3), ("b", 1, 3), ("a", 4, 12), ("b", 4, 12),
    ]  # fmt: skip
    assert [one.seconds for one in found] == pytest.approx([0.2, 0.05, 0.2, 0.05])
    assert [one.ratio for one in found] == pytest.approx([1, 4, 1, 4])
    out = io.StringIO()
    show(found, Console(file=out, width=100))
    assert "200.0" in out.getvalue()
    assert "4.00" in out.getvalue()


def test_a_directory_without_manifest_is_refused(tmp_path):
    with pytest.raises(ArtefactError, match="no built speech engine in .*: build one first"):
        open_artefacts([tmp_path], threads=1, batch=1)
