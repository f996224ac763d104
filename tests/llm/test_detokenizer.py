import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import decoders

from tests.llm.doubles.checkpoints import STRIPS, sentencepiece
from trimodal.llm.detokenizer import Detokenizer, StopMatcher, TextStream, context_of
from trimodal.llm.tokenizer import ByteTokenizer

TEXT = "naïve café 😀 日本語 👩‍👩‍👧 end"


def test_endless_broken_bytes_are_not_held_for_ever() -> None:
    detokenizer = Detokenizer(ByteTokenizer().decode)
    assert any(detokenizer.push(0xFF) for _ in range(20))


@pytest.mark.parametrize(
    ("stops", "pieces", "sent", "rest", "found"),
    [
        (["STOP"], ("one S", "T", "O", "P two", "more"), ["one ", "", "", "", ""], "", True),
        (["STOP", "\n\n"], ("a ST", "ONE\n"), ["a ", "STONE"], "\n", False),
        (["late", "bc"], ("abc late",), ["a"], "", True),
    ],
    ids=["over several pieces", "only began like one", "the earliest of several"],
)
def test_nothing_of_a_stop_string_is_sent_and_all_else_is(
    stops: list[str], pieces: tuple[str, ...], sent: list[str], rest: str, found: bool
) -> None:
    matcher = StopMatcher(stops)
    assert [matcher.push(piece) for piece in pieces] == sent
    assert (matcher.flush(), matcher.found) == (rest, found)


def test_the_end_of_a_stream_brings_what_was_held() -> None:
    stream = TextStream(ByteTokenizer(), ["xyz"])
    assert stream.push(list(b"abx"), last=False) == ("ab", False)
    assert stream.push(list(b"y"), last=True) == ("xy", False)


def test_a_stop_string_in_the_last_step_is_found() -> None:
    stream = TextStream(ByteTokenizer(), ["y"])
    assert stream.push(list(b"xyz"), last=True) == ("x", True)


@pytest.mark.parametrize("step", [1, 2, 4, 99])
@pytest.mark.parametrize(
    ("said", "least", "text"),
    [
        ("abXYcdXYef", 0, "ab"),
        ("abXYcdXYef", 3, "ab"),  # it ends after the first 3
        ("abXYcdXYef", 4, "abXYcd"),
        ("abXYXYef", 5, "abXY"),
        ("abXY", 4, "abXY"),
        ("abX", 99, "abX"),
        ("abX\xc3", 99, "abX\ufffd"),
    ],
)
def test_no_stop_string_ends_within_the_least_tokens(said: str, least: int, text: str, step: int) -> None:
    stream, tokens = TextStream(ByteTokenizer(), ["XY", "\ufffd"], min_tokens=least), said.encode("latin-1")
    sent, found = "", False
    for at in range(0, len(tokens), step):
        part, found = stream.push(list(tokens[at : at + step]), last=at + step >= len(tokens))
        sent += part
    assert (sent, found) == (text, len(text) < len(said))


class WordTokenizer:
    """Words with the space before them; a decoder that drops the first space of a text; 0 is special."""

    def decode(self, token_ids: Sequence[int]) -> str:
        words = ["", " one", " two", " three"]
        return "".join(words[token_id] for token_id in token_ids).removeprefix(" ")

    def token_bytes(self, token_id: int) -> bytes:
        return (b"<end>", b" one", b" two", b" three")[token_id]


@pytest.mark.parametrize("decoder", [STRIPS, decoders.Metaspace()])
@pytest.mark.parametrize(
    "prompt", ["The capital is", "is", " ", "The capital, naïve 日本 is", "<s>The<s><s><s><s>"]
)
def test_what_continues_a_prompt_keeps_the_blank_before_its_first_word(
    tmp_path: Path, prompt: str, decoder: Any
) -> None:
    """As in vLLM, with `echo` and without."""
    tokenizer = sentencepiece(tmp_path, decoder)
    answer, context = tokenizer.encode("Paris."), context_of(tokenizer.encode(prompt), tokenizer)
    assert TextStream(tokenizer, (), context=context).push(answer, last=True) == (" Paris.", False)
    assert TextStream(tokenizer, ()).push(answer, last=True) == ("Paris.", False)


def test_behind_a_prompt_without_text_a_text_begins(tmp_path: Path) -> None:
    tokenizer = sentencepiece(tmp_path)
    context = context_of(tokenizer.encode("<s>" * 40), tokenizer)
    assert TextStream(tokenizer, (), context=context).push(tokenizer.encode("Paris"), last=True)[0] == "Paris"


@pytest.mark.parametrize("seed", range(20))
def test_a_prompt_in_bytes_changes_nothing_of_what_continues_it(seed: int) -> None:
    tokenizer, draw = ByteTokenizer(), random.Random(seed)
    text = "".join(draw.choices("aé日😀 ", k=40))
    cut = draw.randrange(40)
    context = context_of(tokenizer.encode(text[:cut]), tokenizer)
    assert len(context) < 24
    tokens = tokenizer.encode(text[cut:])
    assert TextStream(tokenizer, (), context=context).push(tokens, last=True)[0] == text[cut:]


def test_half_a_character_at_a_prompts_end_is_no_part_of_the_answer() -> None:
    tokenizer, whole = ByteTokenizer(), "é".encode()
    context = context_of(list(b"caf" + whole[:1]), tokenizer)
    assert TextStream(tokenizer, (), context=context).push([*whole[1:], 33], last=True)[0] == "\ufffd!"


@pytest.mark.parametrize(("tokenizer", "token"), [(ByteTokenizer(), 65), (WordTokenizer(), 0)])
def test_a_long_answer_keeps_a_short_window(tokenizer: Any, token: int) -> None:
    windows = []

    def decode(token_ids: Sequence[int]) -> str:
        windows.append(len(token_ids))
        return str(tokenizer.decode(token_ids))

    detokenizer = Detokenizer(decode)
    for _ in range(2000):
        detokenizer.push(token)
    assert max(windows) < 30
