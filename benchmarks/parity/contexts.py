"""Makes the table "Speech: words beside faster-whisper": what contexts cost, and who runs Whisper.

    python -m benchmarks.parity.contexts --contexts 30 --contexts 15,30 --contexts 6,15,30
    python -m benchmarks.parity.contexts --by ctranslate2 --by openvino,ctranslate2 --by openvino --threads 1
    python -m benchmarks.parity.contexts --contexts 10 --contexts 15 --windows 24
    python -m benchmarks.parity.contexts --audio pytest_audioeval/samples/audio   # folders of languages

Recordings are recognised whole, as `trimodal transcribe` and the check of a build have them, and live: in
chunks of 100 ms through the session that serves streams, with its pauses, steps and guards. The stream's
clock does not run while the recogniser does, so a busy machine does not change the words; those of the stream
are counted as they are corrected in a pause. Times are the processor's, of live speech for a second of audio.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import make_table
from trimodal.audio.files import read_blocks
from trimodal.audio.live_words import LiveWords
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.audio.word_errors import word_error_rate
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root, data_directory, default_repository
from trimodal.repository import select_models
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import detectors
from trimodal.speech.settings import RecogniseSettings, SpeechSettings
from trimodal.speech.values import Window

CHUNK = SAMPLE_RATE // 10
UNSPACED = ("ja", "zh", "th")  # compared by letters
PAUSES_S = (0.1, 0.3, 0.6)
SAMPLES = data_directory() / "samples" / "speech"
ARTEFACTS = ("ctranslate2-int8", "ctranslate2-tiny.en")
CONTEXTS = ("30", "15,30")


@dataclass(frozen=True)
class Recording:
    """Speech with its text; `language` is a code, `words` are (word, start, end) where they are known."""

    samples: Samples
    text: str
    language: str
    words: tuple[tuple[str, float, float], ...] = ()


@dataclass
class Heard:
    """What one way of hearing made of the recordings, in their order, and what it took."""

    texts: list[str] = field(default_factory=list)
    windows: int = 0
    seconds: float = 0.0


def read(directory: Path, language: str = "en") -> Iterator[Recording]:
    """Of samples.json in `directory`; else of its folders, named by languages, with a .txt for each .wav."""
    listing = directory / "samples.json"
    if listing.is_file():
        for entry in json.loads(listing.read_text()):
            samples = next(read_blocks(directory / entry["file"], 30.0))
            words = tuple(map(tuple, entry.get("words", ())))
            yield Recording(samples, entry["text"], language, words)
        return
    for text in sorted(directory.glob("*/*.txt")):
        samples = next(read_blocks(text.with_suffix(".wav"), 30.0))
        yield Recording(samples, text.read_text(encoding="utf-8").strip(), text.parent.name)


def cut(recordings: Sequence[Recording], count: int) -> list[Recording]:
    """Windows of 8.5 to 10 s out of the recordings in random order, each from one word to another."""
    rng, joined, words, at = random.Random(3), [], [], 0.0
    order = list(recordings)
    for _ in range(3):
        rng.shuffle(order)
        for one in order:
            words += [(word, start + at, end + at) for word, start, end in one.words]
            joined += [one.samples, np.zeros(round(rng.choice(PAUSES_S) * SAMPLE_RATE), np.float32)]
            at += sum(map(len, joined[-2:])) / SAMPLE_RATE
    windows: list[Recording] = []
    speech = np.concatenate(joined)
    while len(windows) < count:
        longest, first = rng.uniform(8.8, 10.0), rng.randrange(len(words) - 40)
        begin = words[first][1] - 0.03
        inside = [word for word in words[first:] if word[2] <= begin + longest]
        end = min(inside[-1][2] + 0.08, begin + 10.0)
        if end - begin >= 8.5:
            samples = speech[round(begin * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
            windows.append(Recording(samples, " ".join(word for word, _, _ in inside), "en"))
    return windows


def errors(recordings: Sequence[Recording], texts: Sequence[str]) -> float:
    """Word error rate, in per cent; of letters where words are not parted."""

    def parted(text: str, language: str) -> str:
        return " ".join(text) if language in UNSPACED else text

    pairs = [
        (parted(one.text, one.language), parted(text, one.language))
        for one, text in zip(recordings, texts, strict=True)
    ]
    return 100 * word_error_rate(*zip(*pairs, strict=True))


def faster_whisper(artefact: Path, recordings: Sequence[Recording], threads: int) -> list[str]:
    """What faster-whisper hears in FP32, greedily, as the check of a build asks it."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(artefact), device="cpu", compute_type="float32", cpu_threads=threads)
    texts = []
    for one in recordings:
        segments, _ = model.transcribe(
            one.samples,
            language=one.language if model.model.is_multilingual else "en",
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
        )
        texts.append("".join(segment.text for segment in segments))
    return texts


def reshaped(artefact: Path, work: Path, contexts_s: list[float]) -> None:
    """Puts the same weights into `work` with other contexts, which only the manifest names."""
    for file in artefact.resolve().iterdir():
        (work / file.name).symlink_to(file)
    manifest = json.loads((artefact / "manifest.json").read_text())
    manifest["shapes"] |= {"contexts_s": contexts_s}
    (work / "manifest.json").unlink()
    (work / "manifest.json").write_text(json.dumps(manifest))


def whole(service: RecogniseService, recordings: Sequence[Recording]) -> Heard:
    """Each recording in one window."""
    heard = Heard()
    for one in recordings:
        started = time.process_time()
        heard.texts.append(service.recognise_one(Window(one.samples, one.language)).text)
        heard.seconds += time.process_time() - started
    return heard


def live(service: RecogniseService, recordings: Sequence[Recording], settings: SpeechSettings) -> Heard:
    """Each recording as a stream that ends with it."""
    heard, make = Heard(), detectors(settings.vad)
    for one in recordings:
        session = LiveSession(
            settings, policy=settings.policy, language=one.language, detector=make(settings)
        )
        words = LiveWords()

        def settle(session: LiveSession = session, words: LiveWords = words) -> None:
            started = time.process_time()
            while planned := session.next_window():
                session.accept(planned, service.recognise_one(planned.window))
                heard.windows += 1
            heard.seconds += time.process_time() - started
            update = session.take()
            words.add(update.committed, update.corrections)

        for at in range(0, len(one.samples), CHUNK):
            session.feed(one.samples[at : at + CHUNK])
            settle()
        session.end()
        settle()
        heard.texts.append(words.text)
    return heard


def main(
    artefact: Annotated[list[Path] | None, typer.Option(help="of CTranslate2; repeatable")] = None,
    contexts: Annotated[list[str] | None, typer.Option(help="seconds, as 15,30; repeatable")] = None,
    by: Annotated[
        list[str] | None, typer.Option(help="encoder,decoder as in config.pbtxt, one for both; repeatable")
    ] = None,
    audio: Annotated[Path, typer.Option(help="recordings with texts")] = SAMPLES,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    windows: Annotated[int, typer.Option(min=0, help="in place of recordings, so many cut out of them")] = 0,
) -> None:
    """Measure word error rates and times of each artefact with each set of contexts."""
    recordings = list(read(audio))
    recordings = cut(recordings, windows) if windows else recordings
    settings = select_models(default_repository(), ("speech",), "cpu")["speech"].settings(SpeechSettings)
    columns = "artefact|contexts|by|faster-whisper|whole|CPU s|live|windows|CPU s/s"
    table = make_table(f"{len(recordings)} recordings", columns)
    for place in artefact or [artefact_root("speech_recognize") / name for name in ARTEFACTS]:
        multilingual = len(json.loads((place / "manifest.json").read_text())["shapes"]["languages"]) > 1
        chosen = [one for one in recordings if multilingual or one.language == "en"]
        seconds = sum(len(one.samples) for one in chosen) / SAMPLE_RATE
        theirs = faster_whisper(place, chosen, threads)
        for each, parts in product(contexts or CONTEXTS, by or ("auto",)):
            with tempfile.TemporaryDirectory() as work:
                reshaped(place, Path(work), [float(part) for part in each.split(",")])
                chosen_by = dict(zip(("encoder", "decoder"), (parts.split(",") * 2)[:2], strict=True))
                given = {"artefact": work, "intra_op_threads": threads, **chosen_by}
                asked = RecogniseSettings.model_validate(given)
                service = RecogniseService.open(Path(work), asked, MemoryMetrics())
                ours, streamed = whole(service, chosen), live(service, () if windows else chosen, settings)
                service.close()
            row = [place.name, each, parts, f"{errors(chosen, theirs):.1f} %"]
            row += [f"{errors(chosen, ours.texts):.1f} %", f"{ours.seconds:.1f}"]
            if streamed.windows:
                row += [f"{errors(chosen, streamed.texts):.1f} %", str(streamed.windows)]
                row.append(f"{streamed.seconds / seconds:.2f}")
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    run_command(main)
