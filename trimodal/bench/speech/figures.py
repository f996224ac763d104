"""Defines the plan of a speech bench; measures and shows rows: streams that were played together.

Definitions. The lag of a word is the audio spoken when the client holds it as committed,
less the word's end: it contains the chunk that must fill, the policy's waiting, the
recogniser and the way. Growth is the median lag in the last third of the streams less
that in the first; a row keeps up when no stream was refused or failed, lag did not grow
by more than a second, and what was left at END was answered within two.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console

from trimodal.audio.values import PolicyName
from trimodal.audio.word_errors import word_error_rate
from trimodal.bench.common.serving import metrics_page
from trimodal.bench.peers.process import PeerName
from trimodal.bench.speech.streams import HeldWord, StreamRun, run_streams
from trimodal.bench.speech.utterances import Spoken
from trimodal.client import Client
from trimodal.client.timing import percentile
from trimodal.report.console import NARROW, make_table
from trimodal.server.options import Profile
from trimodal.server.process import TritonServer

GROWTH_S = 1.0
FLUSH_S = 2.0
_LINE = re.compile(r"^(trimodal_speech_\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_LE = re.compile(r'\ble="([^"]*)"')
# Name, and for a histogram's bucket its upper bound → sum over all other labels.
Page = Mapping[tuple[str, float | None], float]
SEEN = "policy|streams|WER %|offline|to it|lag p50|p95|p99|first|kept"
COST = "policy|streams|compute|batch|most|win/s|lag p95|growth|flush|out"
MODELS = ("speech", "speech_recognize")
SETTLE_S = 0.3  # metrics are carried to the page every 50 ms


@dataclass(frozen=True)
class LiveFigures:
    """A row. Times in seconds, rates as fractions; None where there was nothing to measure.

    Attributes:
        wer: of committed text against what was said.
        offline_wer: the same for the offline text of the same audio.
        wer_to_offline: of committed text with the offline text taken as the truth.
        first_s: from the begin of a stream's first word to the first text, tentative or committed.
        server_lag_p95: the server's own lag, of answers with committed words.
        late_p99: how late chunks were sent.
        compute: seconds of the recogniser for each second of audio.
        batch_mean, batch_most: windows of a run; `most` is the bound of the metric's bucket.
        windows_per_s: recognised, over all streams.
        why: the first refusal or failure.
    """

    streams: int
    refused: int
    failed: int
    words: int
    wer: float | None
    offline_wer: float | None
    wer_to_offline: float | None
    lag_p50: float | None
    lag_p95: float | None
    lag_p99: float | None
    server_lag_p95: float | None
    growth: float
    flush: float
    first_s: float | None
    late_p99: float | None
    compute: float
    batch_mean: float
    batch_most: float
    windows_per_s: float
    keeps_up: bool
    why: str = ""


def summarise_live(
    runs: Sequence[StreamRun],
    spoken: Sequence[Spoken],
    offline: Sequence[str] | None,
    work: Work,
    seconds: float,
) -> LiveFigures:
    """Summarises streams that ran together for `seconds`.

    Args:
        spoken: what each said.
        offline: the text of each stream's audio when recognised offline; None: no word error rates
            (the model's weights are random, say).
        work: of the recogniser meanwhile.
    """
    taken = [(run, told) for run, told in zip(runs, spoken, strict=True) if not run.refused]
    heard, said = [run.text for run, _ in taken], [told.text for _, told in taken]
    plain = [text for run, text in zip(runs, offline or (), strict=False) if not run.refused]
    held = [word for run in runs for word in run.words]
    lags = [word.lag for word in held]
    firsts = [run.first - told.words[0].start for run, told in taken if run.first is not None and told.words]
    growth = lag_growth(held, max((one.seconds for one in spoken), default=0.0))
    flush = max((run.flush for run in runs), default=0.0)
    refused = len(runs) - len(taken)
    failed = sum(bool(run.failed) for run in runs)
    sent = sum(run.sent for run in runs)
    return LiveFigures(
        streams=len(runs),
        refused=refused,
        failed=failed,
        words=len(held),
        wer=word_error_rate(said, heard) if plain and taken else None,
        offline_wer=word_error_rate(said, plain) if plain and taken else None,
        wer_to_offline=word_error_rate(plain, heard) if plain and any(plain) else None,
        lag_p50=percentile(lags, 50),
        lag_p95=percentile(lags, 95),
        lag_p99=percentile(lags, 99),
        server_lag_p95=percentile([lag for run in runs for lag in run.server_lags], 95),
        growth=growth,
        flush=flush,
        first_s=median(firsts) if firsts else None,
        late_p99=percentile([late for run in runs for late in run.late], 99),
        compute=work.seconds / sent if sent else 0.0,
        batch_mean=work.batch_mean,
        batch_most=work.batch_most,
        windows_per_s=work.windows / seconds,
        keeps_up=not refused and not failed and growth <= GROWTH_S and flush <= FLUSH_S,
        why=next((why for run in runs if (why := run.refused or run.failed)), ""),
    )


def lag_growth(held: Sequence[HeldWord], seconds: float) -> float:
    """Median lag of words that end in the last third of `seconds`, less that in the first third."""
    first = [word.lag for word in held if word.word.end <= seconds / 3]
    last = [word.lag for word in held if word.word.end >= seconds * 2 / 3]
    return median(last) - median(first) if first and last else 0.0


@dataclass(frozen=True)
class Work:
    """Of the recogniser between two readings; `batch_most` is the bound of the highest bucket used."""

    windows: float
    seconds: float
    batch_mean: float
    batch_most: float


def parse_page(text: str) -> Page:
    """Parses the speech metrics of a page in Prometheus' text format."""
    page: dict[tuple[str, float | None], float] = defaultdict(float)
    for name, labels, value in _LINE.findall(text):
        bound = _LE.search(labels)
        page[name, float(bound[1]) if bound else None] += float(value)
    return page


def work_between(before: Page, after: Page) -> Work:
    """What was done between two readings of one server."""

    def grown(name: str, bound: float | None = None) -> float:
        key = (f"trimodal_speech_{name}", bound)
        return after.get(key, 0.0) - before.get(key, 0.0)

    batches = grown("batch_size_count")
    bounds = {bound for _, bound in after if bound is not None}
    # Buckets are cumulative: the first that holds all batches of this while bounds the largest.
    holding = (bound for bound in bounds if grown("batch_size_bucket", bound) >= batches)
    return Work(
        windows=grown("batch_size_sum"),
        seconds=grown("recognize_seconds_sum"),
        batch_mean=grown("batch_size_sum") / batches if batches else 0.0,
        batch_most=min(holding, default=math.inf) if batches else 0.0,
    )


def print_live(title: str, rows: Sequence[tuple[str, LiveFigures]], console: Console) -> None:
    """Both tables, a row for each policy with a number of streams, and what their columns mean."""
    seen = make_table(title, SEEN, **NARROW)
    cost = make_table("the same, seen from the server", COST, **NARROW)
    for policy, row in rows:
        rates = (_number(rate, 100, 1) for rate in (row.wer, row.offline_wer, row.wer_to_offline))
        lags = (_number(lag, 1, 2) for lag in (row.lag_p50, row.lag_p95, row.lag_p99, row.first_s))
        seen.add_row(policy, str(row.streams), *rates, *lags, "yes" if row.keeps_up else "no")
        work = (
            f"{row.compute:.4f}",
            f"{row.batch_mean:.2f}",
            f"{row.batch_most:g}",
            f"{row.windows_per_s:.1f}",
        )
        waits = _number(row.server_lag_p95, 1, 2), f"{row.growth:+.2f}", f"{row.flush:.2f}"
        cost.add_row(policy, str(row.streams), *work, *waits, str(row.refused + row.failed))
    console.print(seen)
    console.print(
        "WER: committed text against what was said; offline: the same of whole utterances; "
        "to it: WER with the offline text as truth\n"
        "lag: seconds of audio spoken less a word's end, when the client holds it as committed; "
        "first: from a stream's first word to its first text"
    )
    console.print(cost)
    console.print(
        "compute: seconds of the recogniser a second of audio; batch, most: windows of a run\n"
        "lag: as the server tells it; growth: of the median lag, last third less first third\n"
        "flush: from END to the last words; out: streams refused or failed"
    )


def _number(value: float | None, scale: float, digits: int) -> str:
    return "" if value is None else f"{value * scale:.{digits}f}"


@dataclass(frozen=True)
class Plan:
    """What to measure: each policy with each number of streams, `seconds` long.

    If `capacity`, `direct`, `versus` (other built recognisers) or `peer` is set, only those parts run.
    `window_s`, `rounds` and `loop_s` (seconds a case) apply to them, `batch` to all but `capacity`.
    `peer_checkpoint`: a CTranslate2 model; None: the artefact.
    """

    streams: tuple[int, ...] = (1, 2, 4, 8)
    policies: tuple[PolicyName, ...] = ("live", "agreement", "vad", "window")
    seconds: float = 30.0
    chunk_s: float = 0.1
    samples: Path = Path("build/demo/speech/samples")
    capacity: bool = False
    direct: bool = False
    versus: tuple[Path, ...] = ()
    window_s: tuple[float, ...] = (5.0, 30.0)
    batch: int = 8
    rounds: int = 3
    loop_s: float = 4.0
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    profile: Profile = "cpu"
    peer: PeerName = ""
    peer_checkpoint: Path | None = None


async def run_row(
    plan: Plan,
    client: Client,
    server: TritonServer,
    policy: PolicyName | None,
    spoken: Sequence[Spoken],
    offline: Sequence[str] | None,
    delays: Sequence[float] | None = None,
) -> LiveFigures:
    """All of `spoken` as live streams, begun together or after `delays`; the figures."""
    before, began = parse_page(metrics_page(server.metrics_url)), time.monotonic()
    runs = await run_streams(client, spoken, policy=policy, chunk_s=plan.chunk_s, delays=delays)
    seconds = time.monotonic() - began
    await asyncio.sleep(SETTLE_S)
    work = work_between(before, parse_page(metrics_page(server.metrics_url)))
    return summarise_live(runs, spoken, offline, work, seconds)
