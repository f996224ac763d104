"""Summarises one row of the speech bench: streams that were played together.

Definitions. The lag of a word is the audio spoken when the client holds it as committed,
less the word's end: it contains the chunk that must fill, the policy's waiting, the
recogniser and the way. Growth is the median lag in the last third of the streams less
that in the first; a row keeps up when no stream was refused or failed, lag did not grow
by more than a second, and what was left at END was answered within two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from trimodal.audio.word_errors import word_error_rate
from trimodal.bench.speech.counters import Work
from trimodal.bench.speech.streams import HeldWord, StreamRun
from trimodal.bench.speech.utterances import Spoken
from trimodal.client.timing import percentile

GROWTH_S = 1.0
FLUSH_S = 2.0


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
    taken = [index for index, run in enumerate(runs) if not run.refused]
    heard = [runs[index].text for index in taken]
    said = [spoken[index].text for index in taken]
    plain = [offline[index] for index in taken] if offline else None
    held = [word for run in runs for word in run.words]
    lags = [word.lag for word in held]
    firsts = [
        runs[index].first - spoken[index].words[0].start  # type: ignore[operator]
        for index in taken
        if runs[index].first is not None and spoken[index].words
    ]
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
