"""Makes the table "Live captions": when words are final, by policy and delay: errors, lag and compute.

    python -m benchmarks.starter.captions
    python -m benchmarks.starter.captions --tiny --way edge --way "edge step_s=0.3"

`edge` is what is shipped, `vad` commits once, in a pause. A way may change settings of the model `speech`.
The recordings of each speaker are one stream, with pauses between them, and again `--moved` times, begun a
little later: what a step hears is chance. The clock does not run while the recogniser does: *lag* is what the
policy costs. *At once* are the words as they were committed, *corrected* as they are when all is heard.
*Revised* are tentative words that were shown and changed. On a busy machine all but CPU holds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.parity.contexts import ARTEFACTS, CHUNK, SAMPLES, Recording, errors, read
from benchmarks.tables import make_table
from trimodal.audio.live_words import LiveWords
from trimodal.audio.values import SAMPLE_RATE, Delay
from trimodal.audio.word_errors import normalise
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import detectors
from trimodal.speech.settings import RecogniseSettings, SpeechSettings

WAYS = (*(f"edge delay={delay}" for delay in get_args(Delay)), "vad", "edge condition_on_previous_text=true")
PAUSE_S = 0.9
MOVED_S = 0.13  # no part of a step


@dataclass
class Captions:
    """What a way made of all streams; lags are seconds from the end of a word to its commitment."""

    texts: list[str] = field(default_factory=list)
    corrected: list[str] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    seconds: float = 0.0
    revised: int = 0


def streams(directory: Path, moved: int) -> list[Recording]:
    """The recordings of each speaker, whose name the file's begins with, one after the other.

    The streams come once more for each number up to `moved`, each time with a longer silence first.
    """
    entries = json.loads((directory / "samples.json").read_text())
    speakers: dict[str, list[Recording]] = {}
    for entry, one in zip(entries, read(directory), strict=True):
        speakers.setdefault(entry["file"].split("-")[0], []).append(one)
    pause = np.zeros(round(PAUSE_S * SAMPLE_RATE), np.float32)
    made = []
    for times in range(moved + 1):
        silence = np.zeros(round(times * MOVED_S * SAMPLE_RATE), np.float32)
        for spoken in speakers.values():
            samples = [part for one in spoken for part in (one.samples, pause)]
            text = " ".join(one.text for one in spoken)
            made.append(Recording(np.concatenate([silence, *samples]), text, "en"))
    return made


def caption(service: RecogniseService, recordings: Sequence[Recording], settings: SpeechSettings) -> Captions:
    """Each recording in chunks of 100 ms; its end is not told, as a microphone's is not."""
    made, detector = Captions(), detectors(settings.vad)
    for one in recordings:
        session = LiveSession(
            settings, policy=settings.policy, language=one.language, detector=detector(settings)
        )
        texts: list[str] = []
        words = LiveWords()
        shown: list[str] = []
        quiet = np.zeros(2 * SAMPLE_RATE, np.float32)
        samples = np.concatenate((one.samples, quiet))
        for at in range(0, len(samples), CHUNK):
            session.feed(samples[at : at + CHUNK])
            started = time.process_time()
            while planned := session.next_window():
                session.accept(planned, service.recognise_one(planned.window))
            made.seconds += time.process_time() - started
            update = session.take()
            texts += [word.text for word in update.committed]
            words.add(update.committed, update.corrections)
            now = [normalise(word) for word in (*texts, *(word.text for word in update.tentative))]
            same = [one == other for one, other in zip(shown, now, strict=False)]
            made.revised += len(shown) - (same.index(False) if False in same else len(same))
            shown = now
            made.lags += [update.received_s - word.end for word in update.committed]
        made.texts.append("".join(texts))
        made.corrected.append(words.text)
    return made


def changed(way: str) -> SpeechSettings:
    """Settings of "POLICY name=value …"."""
    policy, *changes = way.split()
    given = dict(change.split("=", 1) for change in changes)
    return SpeechSettings.model_validate({"policy": policy, **given})


def main(
    way: Annotated[list[str] | None, typer.Option(help="'POLICY name=value …'; repeatable")] = None,
    tiny: Annotated[bool, typer.Option(help="on tiny.en, not on base")] = False,
    audio: Annotated[Path, typer.Option(help="with samples.json")] = SAMPLES,
    moved: Annotated[int, typer.Option(min=0, help="more times that each stream is heard")] = 3,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Measure each way of committing words."""
    recordings, artefact = streams(audio, moved), artefact_root("speech_recognize") / ARTEFACTS[tiny]
    settings = RecogniseSettings(artefact=str(artefact.resolve()), intra_op_threads=threads)
    service = RecogniseService.open(Path("/"), settings, MemoryMetrics())
    seconds = sum(len(one.samples) for one in recordings) / SAMPLE_RATE
    said = sum(len(normalise(one.text).split()) for one in recordings)
    title = f"{artefact.name}: {said} words in {len(recordings)} streams, {seconds:.0f} s"
    table = make_table(title, "way|words wrong at once|corrected|revised|lag p50, p95|CPU of 1 s")
    for one in way or WAYS:
        made = caption(service, recordings, changed(one))
        wrong, after = (errors(recordings, texts) for texts in (made.texts, made.corrected))
        table.add_row(
            one.replace("edge delay=", "edge, "),
            f"{round(wrong * said / 100)}, {wrong:.1f} %",
            f"{round(after * said / 100)}, {after:.1f} %",
            str(made.revised),
            f"{np.quantile(made.lags, 0.5):.2f}, {np.quantile(made.lags, 0.95):.2f} s",
            f"{made.seconds / seconds:.2f} s",
        )
    service.close()
    Console().print(table)


if __name__ == "__main__":
    run_command(main)
