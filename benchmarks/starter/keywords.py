"""Makes the table "Names as keywords": how many are heard right with and without them, and what is made up.

    python -m benchmarks.starter.keywords
    python -m benchmarks.starter.keywords --tiny

Names are the words that a sample's text has with a capital within a sentence, and the 26 words by which a
telephone exchange spells ("Quebec", "Zulu"), each a recording of its own, of half a second. Distractors are
capitalised words of Whisper's own vocabulary that nobody says; one that is heard was made up. Keywords are
given as a prompt, as the gateway makes it of OpenAI's `keywords`; what does not fit into one is given in the
next, and all is heard with each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from tokenizers import Tokenizer

from benchmarks.common import run_command
from benchmarks.parity.contexts import ARTEFACTS, SAMPLES, Recording, read
from benchmarks.parity.recordings import telephone
from benchmarks.tables import make_table
from trimodal.audio.files import read_blocks
from trimodal.audio.word_errors import normalise, word_error_rate
from trimodal.gateway.media import MAX_HINTS, with_keywords
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

LEAST, DISTRACTORS = 4, 100  # letters of a name; words that nobody says
SPELLED = (
    "Alpha Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliet Kilo Lima Mike November Oscar Papa "
    "Quebec Romeo Sierra Tango Uniform Victor Whiskey X-ray Yankee Zulu"
)


class Named(NamedTuple):
    """A recording and the names that are said in it."""

    recording: Recording
    names: tuple[str, ...]


def names_of(text: str) -> tuple[str, ...]:
    """Words with a capital that begin no sentence, in their order."""
    words = text.split()
    inner = [word for before, word in pairwise(words) if before[-1] not in ".?!" or before == "Mr."]
    bare = (word.strip(".,:;?!") for word in inner)
    return tuple(dict.fromkeys(word for word in bare if len(word) >= LEAST and word[0].isupper()))


def spelled(sounds: Path) -> Iterator[Named]:
    """The words of the spelling alphabet, one a recording."""
    for word in SPELLED.split():
        samples = next(read_blocks(sounds / "phonetic" / f"{word[0].lower()}_p.wav", 30.0))
        yield Named(Recording(samples, word, "en"), (word,))


def distractors(vocabulary: Path, texts: str) -> list[str]:
    """Capitalised words that are one token each, in random order, none of which is in the texts."""
    tokens = Tokenizer.from_file(str(vocabulary)).get_vocab()
    words = sorted(token[1:] for token in tokens if token.startswith("Ġ") and token[1:].istitle())
    said = set(normalise(texts).split())
    found = [word for word in words if word.isalpha() and len(word) > LEAST and word.lower() not in said]
    random.Random(3).shuffle(found)
    return found


def lists(names: Sequence[str], others: Sequence[str]) -> Iterator[list[str]]:
    """The names among the others, in random order, in as many lists as the others take."""
    rest = list(others)
    while rest:
        count = len(rest)
        while len(", ".join((*names, *rest[:count]))) >= MAX_HINTS:  # a line's end is behind them
            count -= 1
        mixed = [*names, *rest[:count]]
        random.Random(4).shuffle(mixed)
        yield mixed
        rest = rest[count:]


def main(
    tiny: Annotated[bool, typer.Option(help="on tiny.en, not on base")] = False,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Hear each recording whole, without keywords, with all names, and with them among distractors."""
    artefact = (artefact_root("speech_recognize") / ARTEFACTS[tiny]).resolve()
    settings = RecogniseSettings(artefact=str(artefact), intra_op_threads=threads)
    service = RecogniseService.open(Path("/"), settings, MemoryMetrics())
    sets = {
        "samples": [Named(one, names_of(one.text)) for one in read(SAMPLES)],
        "spelling": list(spelled(telephone())),
    }
    every = [one for named in sets.values() for one in named]
    names = list(dict.fromkeys(name for one in every for name in one.names))
    texts = " ".join(one.recording.text for one in every)
    others = distractors(artefact / "tokenizer.json", texts)[:DISTRACTORS]
    ways: dict[str, list[list[str]]] = {
        "none": [[]],
        f"the {len(names)} names": [names],
        f"among {DISTRACTORS} others": list(lists(names, others)),
    }
    table = make_table(artefact.name, "keywords|recordings|names right|made up|words wrong")
    for way, prompts in ways.items():
        for kind, named in sets.items():
            right = made_up = 0
            pairs = []
            for keywords in prompts:
                prompt = with_keywords(keywords, None) or ""
                for one in named:
                    heard = service.recognise_one(Window(one.recording.samples, "en", prompt)).text
                    said = set(normalise(heard).split())
                    right += sum(set(normalise(name).split()) <= said for name in one.names)
                    made_up += len(said.intersection(map(str.lower, others)))
                    pairs.append((one.recording.text, heard))
            of = sum(len(one.names) for one in named) * len(prompts)
            wrong = 100 * word_error_rate(*zip(*pairs, strict=True))
            table.add_row(way, kind, f"{right} of {of}", str(made_up), f"{wrong:.1f} %")
    service.close()
    Console().print(table)


if __name__ == "__main__":
    run_command(main)
