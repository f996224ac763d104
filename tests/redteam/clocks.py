"""Tries to tell by a stopwatch alone whether another tenant has sent something before.

The cells are those of `tenants`, on an engine whose prompts take time. In half of the tries bert learns the
split of his seconds that tells best; with it he guesses the other half. The same is tried by a second key of
anna's tenant, who may know: where he cannot tell, the stopwatch is no good, and the wall is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.redteam.stack import Stack, stack
from tests.redteam.tenants import CELLS, FRESH, SHARED, Cell, Trial, Verdict, asking, chat, coalescing, tried

_NAMES = ("exact cache", "semantic cache", "prefix cache", "findings in files", "embeddings")
CLOCKED = {cell.name: cell for cell in (*CELLS, coalescing(24)) if cell.name in (*_NAMES, "coalescing")}
ARTEFACT = Path(__file__).parents[2] / "model_repository" / "llm" / "1" / "openvino-int8"
# As long for a prompt's tokens and a picture as real ones take at least: nothing is told apart within 1 ms.
SLOW: Mapping[str, object] = {"fake_prefill_us": 200.0, "max_num_batched_tokens": 2048}
LOOK_S = 0.01
_long = asking("/v1/chat/completions", lambda text: chat(f"{text}{'and so on ' * 60}", max_tokens=1), **FRESH)
REAL_PREFIX = Cell("prefix cache", _long, _long)
REAL: Mapping[str, object] = {
    "engine": "openvino",
    "artefact": str(ARTEFACT),
    "max_prompt_tokens": 2048,
    "max_output_tokens": 64,
}


def guess(trials: list[Trial]) -> Verdict:
    """How many of the second half are guessed by the split of seconds that is best in the first."""
    half = len(trials) // 2
    learned = sorted((trial.seconds, trial.coin) for trial in trials[:half])
    sent = sum(coin for _, coin in learned)
    best, split, sooner = max(sent, half - sent), learned[0][0], sent < half - sent
    right = half - sent  # where those below the split are guessed to be sent, and none is yet
    for (seconds, coin), (later, _) in zip(learned, learned[1:], strict=False):
        right += 1 if coin else -1
        for correct, way in ((right, True), (half - right, False)):
            if correct > best:
                best, split, sooner = correct, (seconds + later) / 2, way
    guesses = trials[half:]
    return Verdict(sum(((trial.seconds < split) == sooner) == trial.coin for trial in guesses), len(guesses))


def compare(served: Stack, cell: Cell, tries: int, seed: int = 0) -> tuple[Verdict, Verdict | None]:
    """Another tenant's verdict, and that of the same tenant where a cell is shared within one."""
    apart = guess(tried(served, cell, tries, seed=seed))
    if cell.name not in SHARED:
        return apart, None
    return apart, guess(tried(served, cell, min(tries, max(40, tries // 4)), ("anna", "anna too"), seed + 1))


def table(folder: Path, tries: int) -> Iterator[tuple[str, bool]]:
    """A line for each cell, and whether it held."""
    (folder / "fake").mkdir()
    with stack(folder / "fake", SLOW, LOOK_S) as served:
        for cell in CLOCKED.values():
            yield _line(cell.name, *compare(served, cell, tries))
    name = "prefix cache, OpenVINO"
    if not ARTEFACT.is_dir():
        yield f"{name:40} not tried: {ARTEFACT.name} is not built", True
        return
    (folder / "real").mkdir()
    with stack(folder / "real", REAL) as served:
        yield _line(name, *compare(served, REAL_PREFIX, tries))


def _line(name: str, apart: Verdict, control: Verdict | None) -> tuple[str, bool]:
    told = f"{apart.right} of {apart.guesses} guesses were right, at most {apart.bound} by chance"
    if control:
        told += f"; by the same tenant {control.right} of {control.guesses}, {control.bound} by chance"
    blind = control is not None and control.holds
    failed = "" if apart.holds else "  LEAKS"
    return f"{name:40} {told}{failed}{'  THE CLOCK CANNOT TELL' if blind else ''}", apart.holds and not blind
