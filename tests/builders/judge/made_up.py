"""Pairs of a few kinds and a tiny BERT, for tests of the judge's build."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.builders.scripts import Later

pairs = Later("judge.pairs")
DOMAINS = ("cooking", "travel", "tax", "pets", "cars", "music", "law", "garden")
THINGS = ("cake", "boat", "form", "rabbit", "engine", "song", "fence", "lamp", "roof", "shoe")
VERBS = ("paint", "sell", "clean", "lend", "measure", "move", "weigh", "open")


def written(seed: int, number: int = 100) -> list[Any]:
    """`number` pairs of each of four kinds; nothing of one `case` is left once normalised."""
    rng = random.Random(seed)
    found: dict[tuple[str, str], Any] = {}
    while len(found) < 4 * number:
        one, other = rng.sample(range(2, 60), 2)
        verb, thing, domain = rng.choice(VERBS), rng.choice(THINGS), rng.choice(DOMAINS)
        place = rng.choice(("Rome", "Oslo", "Lima", "Cairo"))
        asked = f"How do I {verb} {one} {thing}s?"
        for a, b, same, kind in (
            (asked, f"How do I {verb} {other} {thing}s?", False, "number"),
            (
                f"Who will {verb} a {thing} in {place}?",
                f"Who did {verb} a {thing} in {place}?",
                False,
                "tense",
            ),
            (asked, f"What is the way to {verb} {one} {thing}s?", True, "light"),
            (asked, asked.upper(), True, "case"),
        ):
            found.setdefault((a, b), pairs.Example(a, b, same, kind, domain))
    return list(found.values())


def write_pairs(path: Path, lines: list[tuple[str, str, str, str]]) -> Path:
    """A file of pairs as an operator has it; each line: the two questions, label and class."""
    rows = [
        {"id": f"p{at}", "a": a, "b": b, "label": label, "class": kind, "domain": "history"}
        for at, (a, b, label, kind) in enumerate(lines)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def disguise(text: str, rng: random.Random) -> str:
    return f"{rng.choice(('please', 'hi', 'well'))}, {text}"


def embed(texts: Any) -> Any:
    """Texts that share words are near."""
    import numpy as np

    vectors = np.full((len(texts), 64), 1e-3, np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().strip("?").split():
            vectors[row, sum(map(ord, word)) % 64] += 1
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_bert(directory: Path, positions: int = 96, signs: str = "0123456789,?") -> Path:
    """A tiny BERT with random weights that reads small letters and these signs."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    letters = f"abcdefghijklmnopqrstuvwxyz{signs}"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *("##" + letter for letter in letters)]
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes |= {"max_position_embeddings": positions}
    config = BertConfig(vocab_size=len(words), initializer_range=0.3, **sizes)
    BertModel(config, add_pooling_layer=False).save_pretrained(directory)
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory
