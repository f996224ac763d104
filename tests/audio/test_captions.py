"""Captions of written words, and of random ones, whose rules a parser of the formats checks."""

import html
import json
import random
import re

import pytest

from trimodal.audio.captions import (
    CUE_S,
    LINE_CHARS,
    WIDE_CHARS,
    as_srt,
    as_text,
    as_vtt,
    cues,
    render,
    timestamp,
)
from trimodal.audio.values import Word

CUE = re.compile(r"(\d\d+):(\d\d):(\d\d)[.,](\d{3}) --> (\d\d+):(\d\d):(\d\d)[.,](\d{3})")


def spoken(text, start=0.0, pace=0.3):
    """Words one after the other, each `pace` seconds long."""
    return [
        Word(f" {word}", start + number * pace, start + (number + 1) * pace, 0.9)
        for number, word in enumerate(text.split())
    ]


def texts(words):
    return [" ".join(cue.lines) for cue in cues(words)]


def test_timestamps():
    assert timestamp(3_599_999) == "00:59:59.999"
    assert timestamp(100 * 3_600_000 + 61_001, ",") == "100:01:01,001"


def test_seconds_are_rounded_to_milliseconds_not_cut():
    word = Word(" a", 59.9996, 61.0, 1.0)
    assert as_vtt([word]).splitlines()[2] == "00:01:00.000 --> 00:01:01.000"


def test_srt_and_vtt():
    words = [*spoken("what is a lambda", 0.5), *spoken("explain <b> & the while --> statement", 3.0)]
    assert as_srt(words) == (
        "1\n00:00:00,500 --> 00:00:01,700\nwhat is a lambda\n"
        "\n"
        "2\n00:00:03,000 --> 00:00:05,100\nexplain <b> & the while -> statement\n"
    )
    assert as_vtt(words) == (
        "WEBVTT\n"
        "\n00:00:00.500 --> 00:00:01.700\nwhat is a lambda\n"
        "\n00:00:03.000 --> 00:00:05.100\nexplain &lt;b&gt; &amp; the while --&gt; statement\n"
    )


def test_json_keeps_everything():
    words = [Word(" é", 0.10004, 0.2, 0.98765)]
    line = render(words, "json", seconds=1.23456, name="a.wav")
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "file": "a.wav",
        "text": "é",
        "seconds": 1.235,
        "words": [{"word": " é", "start": 0.1, "end": 0.2, "probability": 0.9877}],
    }
    assert "é" in line


def test_plain_text_has_a_line_a_long_pause():
    words = [*spoken("one two"), *spoken("three", 1.4), *spoken("four five", 4.0)]
    assert as_text(words) == render(words, "text") == "one two three\nfour five\n"


def test_nothing_heard():
    assert [render([], form) for form in ("text", "srt", "vtt")] == ["", "", "WEBVTT\n"]
    assert json.loads(render([], "json", seconds=2.0))["words"] == []
    assert cues([Word(" ", 0.0, 1.0, 0.5)]) == []


def test_a_cue_ends_at_a_pause_and_at_a_sentence():
    words = [*spoken("one two"), *spoken("three four five now. six seven", 1.5)]
    assert texts(words) == ["one two", "three four five now.", "six seven"]
    assert texts(spoken('he said "so we go." and left')) == ['he said "so we go."', "and left"]
    # Short sentences share a cue: each alone would be gone before it is read.
    assert texts(spoken("Yes. No. Perhaps not. Or so?")) == ["Yes. No. Perhaps not.", "Or so?"]


def test_a_long_cue_is_cut_after_a_comma_else_at_the_longest_gap():
    text = "this is a rather long way to say, when nobody is in a hurry, that it goes on and on and on"
    first, *_ = texts(spoken(text, pace=0.2))
    assert first == "this is a rather long way to say, when nobody is in a hurry,"
    words = spoken("w " * 40, pace=0.2)
    words[20:] = [word.shifted(0.4) for word in words[20:]]
    assert len(texts(words)[0].split()) == 20


def test_two_lines_of_about_the_same_length():
    (cue,) = cues(spoken("the quick brown fox jumps over the lazy dog again today", pace=0.2))
    assert cue.lines == ("the quick brown fox jumps", "over the lazy dog again today")


def test_what_has_no_space_before_it_stays_with_its_word():
    words = [Word(" well", 0, 1, 0.9), Word("-", 1, 1.1, 0.9), Word("known", 1.1, 1.5, 0.9)]
    assert texts(words) == ["well-known"]
    (cue,) = cues([Word(" " + "x" * 30, 0, 1, 0.9), Word("-", 1, 1, 0.9), Word(" " + "y" * 20, 1, 2, 0.9)])
    assert cue.lines == ("x" * 30 + "-", "y" * 20)


def test_text_without_spaces_and_endless_words_are_wrapped():
    chinese = [Word("語", number * 0.2, number * 0.2 + 0.2, 0.9) for number in range(100)]
    shown = cues(chinese)
    assert "".join("".join(cue.lines) for cue in shown) == "語" * 100
    assert max(len(line) for cue in shown for line in cue.lines) <= WIDE_CHARS
    (cue,) = cues([Word(" " + "u" * 100, 0, 1, 0.9)])
    assert [len(line) for line in cue.lines] == [42, 42, 16]


def test_lines_of_wide_characters_have_16_and_break_where_they_may():
    (cue,) = cues(characters("今天我想去看长城而且我的朋友也有时间和我一起", pace=0.2))
    assert cue.lines == ("今天我想去看长城而且我", "的朋友也有时间和我一起")
    text = "「スーパー」と「コンピューター」を使っています"
    words = [Word(letter, at * 0.1, at * 0.1 + 0.1, 0.9) for at, letter in enumerate(text)]
    lines = [line for cue in cues(words) for line in cue.lines]
    assert "".join(lines) == text
    assert len(lines) > 1
    assert max(map(len, lines)) <= WIDE_CHARS
    assert not any(line[0] in "ー」ュっ" or line[-1] == "「" for line in lines)


def test_korean_lines_have_16_characters_and_break_at_spaces():
    text = "오늘은 날씨가 아주 좋아서 친구와 함께 산에 올라가고 싶어요"
    lines = [line for cue in cues(spoken(text, pace=0.2)) for line in cue.lines]
    assert " ".join(lines) == text
    assert len(lines) > 1
    assert all(sum(letter != " " for letter in line) <= WIDE_CHARS for line in lines)


def characters(text, start=0.0, pace=0.25):
    """Words of a language without spaces, each a character with the marks behind it."""
    found = re.findall(r"\w[^\w ]*", text)
    return [
        Word(one, start + number * pace, start + (number + 1) * pace, 0.9, (number,))
        for number, one in enumerate(found)
    ]


def times(words):
    return [(cue.start_ms, cue.end_ms, "".join(cue.lines)) for cue in cues(words)]


def test_without_spaces_a_cue_ends_with_its_sentence_and_is_cut_after_a_clause():
    assert times(
        characters("昨天我去了北京。今天我想去看长城，因为天气很好，而且我的朋友也有时间和我一起去。")
    ) == [
        (0, 1750, "昨天我去了北京。"),
        (1750, 5250, "今天我想去看长城，因为天气很好，"),
        (5250, 9000, "而且我的朋友也有时间和我一起去。"),
    ]
    assert times(characters("はい、そうです。」と彼は言った。")) == [
        (0, 1500, "はい、そうです。」"),
        (1500, 3000, "と彼は言った。"),
    ]


def test_without_spaces_and_marks_a_cue_is_shown_while_its_words_are_said():
    assert times(characters("語" * 60)) == [
        (0, 6000, "語" * 24),
        (6000, 12000, "語" * 24),
        (12000, 15000, "語" * 12),
    ]


def test_marks_within_numbers_and_names_end_nothing():
    words = [Word(text, at, at + 0.9, 0.9) for at, text in enumerate([" of 3.", "5", " so.", ".", "."])]
    assert texts(words) == ["of 3.5 so..."]


def test_a_cue_has_the_tokens_of_all_its_words():
    words = [
        *characters("語" * 30),
        Word(" far", 9.0, 20.0, 1.0, (98,)),
        Word(" late", 16.0, 21.0, 1.0, (99,)),
    ]
    assert [token for cue in cues(words) for token in cue.tokens] == [*range(30), 98, 99]


def test_a_short_cue_stays_until_it_is_read_or_the_next_comes():
    alone, near, far = Word(" a", 1.0, 1.1, 1), Word(" b", 2.0, 2.1, 1), Word(" c", 9.0, 20.0, 1)
    assert [(cue.start_ms, cue.end_ms) for cue in cues([alone, near, far])] == [
        (1000, 2000),
        (2000, 3000),
        (9000, 15000),
    ]


def parsed(document):
    """start, end (ms) and lines of each cue; fails where the document is not what the formats say."""
    blocks = document.removeprefix("WEBVTT\n\n").rstrip("\n").split("\n\n")
    for number, block in enumerate(blocks, 1):
        lines = block.split("\n")
        if not document.startswith("WEBVTT"):
            assert lines.pop(0) == str(number)
        times = CUE.fullmatch(lines.pop(0))
        assert times, block
        h, m, s, ms, h2, m2, s2, ms2 = map(int, times.groups())
        yield ((h * 60 + m) * 60 + s) * 1000 + ms, ((h2 * 60 + m2) * 60 + s2) * 1000 + ms2, lines


@pytest.mark.parametrize("form", ["srt", "vtt"])
@pytest.mark.parametrize("seed", range(40))
def test_any_words_make_readable_captions_that_lose_nothing(form, seed):
    chance = random.Random(seed)
    clock, words = 0.0, []
    for _ in range(chance.randrange(1, 300)):
        # Word times as models give them: gaps, empty words, words that overlap or go back a little.
        start = max(0.0, clock + chance.choice([0, 0, 0.05, 0.3, 1.5, -0.2]))
        clock = max(clock, start + chance.choice([0, 0.08, 0.2, 0.5, 3.0]))
        text = "".join(chance.choices("abc&<>", k=chance.randrange(1, 14))) + chance.choice(
            ["", "", ",", "."]
        )
        words.append(Word(chance.choice([" ", " ", " ", ""]) + text, start, clock, 0.5))
    shown = list(parsed(render(words, form)))
    before = 0
    for start, end, lines in shown:
        assert before <= start < end <= start + CUE_S * 1000
        assert 1 <= len(lines) <= 2
        assert all(line.strip() == line != "" for line in lines)
        before = end
    said = "".join("".join(lines) for _, _, lines in shown).replace(" ", "")
    wanted = "".join(word.text for word in words).replace(" ", "")
    assert (html.unescape(said) if form == "vtt" else said) == wanted
    for _, _, lines in shown:
        plain = [html.unescape(line) if form == "vtt" else line for line in lines]
        assert max(map(len, plain)) <= LINE_CHARS


def test_no_cue_ends_after_the_recording():
    words = [Word(" yes", 0.1, 0.3, 0.9)]
    assert as_srt(words, 0.6) == "1\n00:00:00,100 --> 00:00:00,600\nyes\n"
    assert cues(words, 0.1)[0].end_ms == 101, "a length above 0 all the same"
