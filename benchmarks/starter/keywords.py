"""Makes the table "Names": how many are heard right with and without them as keywords, and what is made up.

    python -m benchmarks.starter.keywords
    python -m benchmarks.starter.keywords --tiny --audio pytest_audioeval/samples/audio

Names are the words that a recording's text has with a capital within a sentence. Distractors are capitalised
words of Whisper's own vocabulary that no text has; one that is heard was made up. Both are given as a
prompt, as the gateway makes it of OpenAI's `keywords`, so there are as many distractors as it takes.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from tokenizers import Tokenizer

from benchmarks.parity.contexts import ARTEFACTS, SAMPLES, errors, read
from benchmarks.tables import make_table
from trimodal.audio.word_errors import normalise
from trimodal.gateway.media import MAX_HINTS, with_keywords
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

LEAST = 4  # letters of a name


def names_of(text: str) -> list[str]:
    """Words with a capital that begin no sentence, in their order."""
    words = text.split()
    inner = [word for before, word in pairwise(words) if before[-1] not in ".?!" or before == "Mr."]
    bare = (word.strip(".,:;?!") for word in inner)
    return list(dict.fromkeys(word for word in bare if len(word) >= LEAST and word[0].isupper()))


def distractors(vocabulary: Path, texts: str) -> list[str]:
    """Capitalised words that are one token each, in random order, none of which is in the texts."""
    tokens = Tokenizer.from_file(str(vocabulary)).get_vocab()
    words = sorted(token[1:] for token in tokens if token[0] == "Ġ" and token[1:].istitle())
    said = set(normalise(texts).split())
    found = [word for word in words if word.isalpha() and len(word) > LEAST and word.lower() not in said]
    random.Random(3).shuffle(found)
    return found


def fitting(names: list[str], others: list[str]) -> list[str]:
    """The names among as many others as keywords may be."""
    while others and len(", ".join((*names, *others))) > MAX_HINTS:
        others = others[:-1]
    mixed = [*names, *others]
    random.Random(4).shuffle(mixed)
    return mixed


def main(
    tiny: Annotated[bool, typer.Option(help="on tiny.en, not on base")] = False,
    audio: Annotated[Path, typer.Option(help="recordings with texts")] = SAMPLES,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Hear each recording whole, without keywords, with its names, and with names among distractors."""
    artefact = (artefact_root("speech_recognize") / ARTEFACTS[tiny]).resolve()
    settings = RecogniseSettings(artefact=str(artefact), intra_op_threads=threads)
    service = RecogniseService.open(Path("/"), settings, MemoryMetrics())
    recordings = [one for one in read(audio) if one.language == "en"]
    names = [name for one in recordings for name in names_of(one.text)]
    others = distractors(artefact / "tokenizer.json", " ".join(one.text for one in recordings))[:100]
    among = fitting(list(dict.fromkeys(names)), others)
    ways: dict[str, list[str]] = {
        "none": [],
        "the names": list(dict.fromkeys(names)),
        f"among {len(among) - len(set(names))} others": among,
    }
    table = make_table(f"{artefact.name}: {len(names)} names", "keywords|names right|made up|words wrong")
    for way, keywords in ways.items():
        prompt = with_keywords(keywords, None) or ""
        heard = [service.recognise_one(Window(one.samples, "en", prompt)).text for one in recordings]
        right = sum(
            normalise(name) in normalise(text)
            for one, text in zip(recordings, heard, strict=True)
            for name in names_of(one.text)
        )
        words = set(normalise(" ".join(heard)).split())
        made_up = sum(other.lower() in words for other in others if other in keywords)
        table.add_row(way, str(right), str(made_up), f"{errors(recordings, heard):.1f} %")
    service.close()
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
