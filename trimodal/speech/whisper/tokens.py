"""Reads Whisper's vocabulary: special tokens by name, prompts, and which tokens make a word.

Works on any tokenizer.json with Whisper's special tokens, whatever their numbers
are, as long as text comes before <|endoftext|>.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Written without spaces: a word is then what one or more tokens spell completely.
# (Whisper's own list, and Khmer and Tibetan: what is heard of a stretch of them must not be one long word.)
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue", "km", "bo"})
REPLACEMENT = "\ufffd"  # of bytes that are no character yet
# Prompts of one run have one length: of a long one up to 7 of the oldest tokens go, so that more agree in it.
# A short one is kept, though it may cost a run: it holds names, and the oldest are the first.
PROMPT_STEP, LONG_PROMPT = 8, 64

Piece = tuple[str, int]  # text of a word, number of its tokens


def with_first_merge(held: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json in which the merge of the first token that is made of two is not missing.

    That of Systran's multilingual Whispers lacks " t", whose line in merges.txt was taken for the version's.
    " the", " to", " try" became tokens then that no transcript holds ("Ġ", "the"), and after them, as the
    beginning of what is said or as words to expect, Whisper is less sure of what follows.
    """
    model = held["model"]
    if model.get("type", "BPE") != "BPE" or not model.get("merges"):  # files of old have no type
        return held
    merges = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
    made = [model["vocab"][first + second] for first, second in merges]
    names = {number: token for token, number in model["vocab"].items()}
    missing = names.get(made[0] - 1, "")
    if len(missing) == 2 and made == list(range(made[0], made[0] + len(made))):  # all others, in order
        model["merges"] = [list(missing), *merges]
    return held


class WhisperTokens:
    """One model's vocabulary.

    Attributes:
        languages: ISO 639-1 code → its token; empty for an English-only model.
        end: <|endoftext|>; every token below it is text.
    """

    def __init__(self, directory: Path, languages: Sequence[str], *, multilingual: bool) -> None:
        """Reads `tokenizer.json`; one that is not `multilingual` takes neither language nor task token.

        Raises ValueError: a special token is missing; Exception: unreadable (`tokenizers` has no other).
        """
        import tokenizers

        held = json.loads((directory / "tokenizer.json").read_bytes())
        self._tokenizer: Any = tokenizers.Tokenizer.from_str(json.dumps(with_first_merge(held)))
        self._tokenizer.no_truncation()  # the file may ask for both
        self._tokenizer.no_padding()
        self.start = self._special("<|startoftranscript|>")
        self.end = self._special("<|endoftext|>")
        self.no_timestamps = self._special("<|notimestamps|>")
        self.previous = self._special("<|startofprev|>")
        self.no_speech = self._special("<|nospeech|>", "<|nocaptions|>")
        self.languages: dict[str, int] = {}
        self._tasks: dict[bool, int] = {}  # whether to translate → its token
        if multilingual:
            self.languages = {code: self._special(f"<|{code}|>") for code in languages}
            self._tasks = {False: self._special("<|transcribe|>"), True: self._special("<|translate|>")}

    def _special(self, *names: str) -> int:
        for name in names:
            token = self._tokenizer.token_to_id(name)
            if token is not None:
                return int(token)
        raise ValueError(f"the tokenizer has no {names[0]}")

    def start_sequence(self, language: str, translate: bool = False) -> list[int]:
        """<|startoftranscript|>, then language and task where the model takes them."""
        if not self.languages:
            return [self.start]
        return [self.start, self.languages[language], self._tasks[translate]]

    def prompt(self, language: str, text: str, room: int, translate: bool = False) -> list[int]:
        """What the decoder is given first; of `text`, what was said before, the last tokens that have room.

        Of several lines the first is kept whole, names to expect, or as much of its end as has room: it may
        be a stream's own prompt, which is cut like any other, and not refused once words were said.
        """
        names, _, said = text.partition("\n") if "\n" in text else ("", "", text)
        given, before = self._spoken(names), self._spoken(said)
        given = given[max(0, len(given) - room) :]
        kept = min(len(before), room - len(given))
        if kept >= LONG_PROMPT:
            kept -= (len(given) + kept) % PROMPT_STEP
        given += before[len(before) - kept :]
        start = self.start_sequence(language, translate)
        return [*([self.previous] if given else []), *given, *start, self.no_timestamps]

    def _spoken(self, text: str) -> list[int]:
        return self.encode(" " + text.strip()) if text.strip() else []

    def never_made(self) -> list[int]:
        """Special tokens that no transcript holds; <|endoftext|> and times are not among them."""
        names = ("<|transcribe|>", "<|translate|>", "<|startoflm|>")
        optional = (self._tokenizer.token_to_id(name) for name in names)
        known = [self.start, self.previous, self.no_speech]
        return sorted({*known, *(token for token in optional if token is not None)})

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, none of them special."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token < self.end]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of text tokens, with its leading space."""
        return str(self._tokenizer.decode(list(tokens)))

    def text_only(self, tokens: Sequence[int]) -> list[int]:
        """Without special tokens and times."""
        return [token for token in tokens if token < self.end]

    def pieces(self, tokens: Sequence[int], language: str) -> list[Piece]:
        """The words that text tokens make, each with the number of its tokens; punctuation stands alone.

        Joined they are the whole text, however characters are cut into tokens.
        """
        characters = self._characters(tokens)
        if language in UNSPACED:
            return characters
        words: list[Piece] = []
        for text, count in characters:
            alone = text.startswith(" ") or text.strip() in string.punctuation
            if alone or not words:
                words.append((text, count))
            else:
                words[-1] = (words[-1][0] + text, words[-1][1] + count)
        return words

    def _characters(self, tokens: Sequence[int]) -> list[Piece]:
        """Fewest tokens that spell whole characters; bytes that never become one go with the last."""
        whole = self.decode(tokens)
        pieces: list[Piece] = []
        waiting: list[int] = []
        done = 0
        for token in tokens:
            waiting.append(token)
            text = self.decode(waiting)
            cut = text.find(REPLACEMENT)
            # The model may have written the replacement character, or bytes that are none: it stays.
            if cut < 0 or whole[done + cut : done + cut + 1] == REPLACEMENT:
                pieces.append((text, len(waiting)))
                done += len(text)
                waiting = []
        if waiting:
            pieces.append((whole[done:], len(waiting)))
        return pieces
