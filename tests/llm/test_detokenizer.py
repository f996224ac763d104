import random
from collections.abc import Sequence
from typing import Any

import pytest

from trimodal.llm.detokenizer import Detokenizer, StopMatcher, TextStream
from trimodal.llm.tokenizer import ByteTokenizer

TEXT = "naïve café 😀 日本語 👩‍👩‍👧 end"


def test_every_byte_alone_gives_the_text_and_never_half_a_character() -> None:
    detokenizer = Detokenizer(ByteTokenizer().decode)
    parts = [detokenizer.push([token]) for token in ByteTokenizer().encode(TEXT)]
    assert "".join(parts) + detokenizer.flush() == TEXT
    assert not any("\ufffd" in part for part in parts)


@pytest.mark.parametrize("seed", range(20))
def test_any_split_gives_the_same_text(seed: int) -> None:
    rng = random.Random(seed)
    tokens, detokenizer, text = ByteTokenizer().encode(TEXT), Detokenizer(ByteTokenizer().decode), ""
    while tokens:
        count = rng.randint(1, 7)
        text += detokenizer.push(tokens[:count])
        tokens = tokens[count:]
    assert text + detokenizer.flush() == TEXT


def test_an_unfinished_character_is_shown_as_replacement_at_the_end_only() -> None:
    detokenizer = Detokenizer(ByteTokenizer().decode)
    assert detokenizer.push("é".encode()[:1]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_endless_broken_bytes_are_not_held_for_ever() -> None:
    detokenizer = Detokenizer(ByteTokenizer().decode)
    assert any(detokenizer.push([0xFF]) for _ in range(20))


def test_a_stop_string_over_several_pieces_is_cut_and_nothing_of_it_is_sent() -> None:
    matcher = StopMatcher(["STOP"])
    assert [matcher.push(piece) for piece in ("one S", "T", "O", "P two")] == ["one ", "", "", ""]
    assert matcher.found
    assert matcher.push("more") == ""
    assert matcher.flush() == ""


def test_what_only_began_like_a_stop_string_is_sent_after_all() -> None:
    matcher = StopMatcher(["STOP", "\n\n"])
    assert matcher.push("a ST") == "a "
    assert matcher.push("ONE\n") == "STONE"
    assert matcher.flush() == "\n"
    assert not matcher.found


def test_the_earliest_of_several_stop_strings_wins() -> None:
    matcher = StopMatcher(["late", "bc"])
    assert matcher.push("abc late") == "a"


def test_the_end_of_a_stream_brings_what_was_held() -> None:
    stream = TextStream(ByteTokenizer(), ["xyz"])
    assert stream.push(list(b"abx"), last=False) == ("ab", False)
    assert stream.push(list(b"y"), last=True) == ("xy", False)


def test_a_stop_string_in_the_last_step_is_found() -> None:
    stream = TextStream(ByteTokenizer(), ["y"])
    assert stream.push(list(b"xyz"), last=True) == ("x", True)


class WordTokenizer:
    """Words with the space before them; a decoder that drops the first space of a text; 0 is special."""

    def decode(self, token_ids: Sequence[int]) -> str:
        words = ["", " one", " two", " three"]
        return "".join(words[token_id] for token_id in token_ids).removeprefix(" ")

    def token_bytes(self, token_id: int) -> bytes:
        return (b"<end>", b" one", b" two", b" three")[token_id]


@pytest.mark.parametrize("tokens", [[1, 0, 2], [1, 0, 0, 2, 3], [0, 1, 2], [1, 2, 0]])
def test_a_special_token_within_an_answer_costs_no_space(tokens: list[int]) -> None:
    tokenizer: Any = WordTokenizer()
    detokenizer = Detokenizer(tokenizer.decode)
    assert "".join(detokenizer.push([token]) for token in tokens) == tokenizer.decode(tokens)


@pytest.mark.parametrize(("tokenizer", "token"), [(ByteTokenizer(), 65), (WordTokenizer(), 0)])
def test_a_long_answer_keeps_a_short_window(tokenizer: Any, token: int) -> None:
    windows = []

    def decode(token_ids: Sequence[int]) -> str:
        windows.append(len(token_ids))
        return str(tokenizer.decode(token_ids))

    detokenizer = Detokenizer(decode)
    for _ in range(2000):
        detokenizer.push([token])
    assert max(windows) < 30
