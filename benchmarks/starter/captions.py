"""Makes the table "Live captions": when words are committed, by policy: errors, lag and compute.

    python -m benchmarks.starter.captions
    python -m benchmarks.starter.captions --way live --way "live condition_on_previous_text=true" --tiny

`agreement` is LocalAgreement-2, `live` is what is shipped, `vad` commits once, in a pause. A way may change
settings of the model `speech`. The recordings of each speaker are one stream, with pauses between them. Its
clock does not run while the recogniser does: lag is what the policy costs, to which a window's time comes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.parity.contexts import ARTEFACTS, CHUNK, SAMPLES, Recording, errors, read, recognise
from trimodal.audio.values import SAMPLE_RATE
from trimodal.audio.word_errors import normalise
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root
from trimodal.report.console import make_table
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import detectors
from trimodal.speech.settings import RecogniseSettings, SpeechSettings

WAYS = (
    "agreement",
    "live",
    "vad",
    "live condition_on_previous_text=true",
    "vad condition_on_previous_text=true",
)
PAUSE_S = 0.9


@dataclass
class Captions:
    """What a way made of all streams; lags are seconds from the end of a word to its commitment."""

    texts: list[str] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    windows: int = 0
    seconds: float = 0.0


def streams(directory: Path) -> list[Recording]:
    """The recordings of each speaker, whose name the file's begins with, one after the other."""
    entries = json.loads((directory / "samples.json").read_text())
    speakers: dict[str, list[Recording]] = {}
    for entry, one in zip(entries, read(directory), strict=True):
        speakers.setdefault(entry["file"].split("-")[0], []).append(one)
    pause = np.zeros(round(PAUSE_S * SAMPLE_RATE), np.float32)
    return [
        Recording(
            np.concatenate([part for one in spoken for part in (one.samples, pause)]),
            " ".join(one.text for one in spoken),
            "en",
        )
        for spoken in speakers.values()
    ]


def caption(service: RecogniseService, recordings: Sequence[Recording], settings: SpeechSettings) -> Captions:
    """Each recording in chunks of 100 ms; its end is not told, as a microphone's is not."""
    made, detector = Captions(), detectors(settings.vad)
    for one in recordings:
        session = LiveSession(
            settings, policy=settings.policy, language=one.language, detector=detector(settings)
        )
        texts: list[str] = []
        quiet = np.zeros(2 * SAMPLE_RATE, np.float32)
        samples = np.concatenate((one.samples, quiet))
        for at in range(0, len(samples), CHUNK):
            session.feed(samples[at : at + CHUNK])
            started = time.process_time()
            while planned := session.next_window():
                session.accept(planned, recognise(service, planned.window))
                made.windows += 1
            made.seconds += time.process_time() - started
            update = session.take()
            texts += [word.text for word in update.committed]
            made.lags += [update.received_s - word.end for word in update.committed]
        made.texts.append("".join(texts))
    return made


def lower_case_starts(texts: Sequence[str]) -> int:
    """Sentences that begin with a small letter."""
    words = " . ".join(texts).split()
    return sum(
        word[:1].islower() for before, word in zip(words, words[1:], strict=False) if before[-1] in ".?!"
    )


def changed(way: str) -> SpeechSettings:
    """Settings of "POLICY name=value …"."""
    policy, *changes = way.split()
    given = dict(change.split("=", 1) for change in changes)
    return SpeechSettings.model_validate({"policy": policy, **given})


def main(
    way: Annotated[list[str] | None, typer.Option(help="'POLICY name=value …'; repeatable")] = None,
    tiny: Annotated[bool, typer.Option(help="on tiny.en, not on base")] = False,
    audio: Annotated[Path, typer.Option(help="with samples.json")] = SAMPLES,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    show: Annotated[bool, typer.Option(help="print the texts")] = False,
) -> None:
    """Measure each way of committing words."""
    recordings, artefact = streams(audio), artefact_root("speech_recognize") / ARTEFACTS[tiny]
    settings = RecogniseSettings(artefact=str(artefact.resolve()), intra_op_threads=threads)
    service = RecogniseService.open(Path("/"), settings, MemoryMetrics())
    seconds = sum(len(one.samples) for one in recordings) / SAMPLE_RATE
    said = sum(len(normalise(one.text).split()) for one in recordings)
    title = f"{artefact.name}: {said} words in {len(recordings)} streams, {seconds:.0f} s"
    table = make_table(title, "way|words wrong|small starts|lag p50|lag p95|windows/s|CPU of 1 s")
    for one in way or WAYS:
        made = caption(service, recordings, changed(one))
        wrong = errors(recordings, made.texts)
        table.add_row(
            one,
            f"{round(wrong * said / 100)}, {wrong:.1f} %",
            str(lower_case_starts(made.texts)),
            *(f"{np.quantile(made.lags, part):.2f} s" for part in (0.5, 0.95)),
            f"{made.windows / seconds:.2f}",
            f"{made.seconds / seconds:.2f} s",
        )
        if show:
            print(one, *made.texts, sep="\n  ")
    service.close()
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
