from dataclasses import replace

import pytest

from trimodal.audio.values import MOST_CORRECTED, Word
from trimodal.speech.session.transcript import (
    SpokenWord,
    Transcript,
    after_prefix,
    agreed,
    normalised,
    on_stream,
    repeated,
    without_made_up,
)

S = 16_000


def words(text: str, start: float = 0.0, each: float = 0.4) -> list[SpokenWord]:
    """The words of a text, one after the other."""
    return [
        SpokenWord(" " + word, round((start + n * each) * S), round((start + (n + 1) * each) * S))
        for n, word in enumerate(text.split())
    ]


def test_a_word_goes_to_the_streams_clock_and_back() -> None:
    word = on_stream(Word(" a", 1.5, 2.0, 0.7), ((10 * S, 13 * S),))
    assert word == SpokenWord(" a", round(11.5 * S), 12 * S, 0.7)
    assert word.to_word() == Word(" a", 11.5, 12.0, 0.7)


def test_a_word_stays_within_its_window_and_ends_behind_its_start() -> None:
    assert on_stream(Word("a", -1, 9, 1), ((S, 3 * S),)) == SpokenWord("a", S, 3 * S)
    assert on_stream(Word("a", 1.0, 0.5, 1), ((0, 3 * S),)) == SpokenWord("a", S, S)
    assert on_stream(Word("a", 8, 9, 1), ((0, 3 * S),)) == SpokenWord("a", 3 * S, 3 * S)


def test_texts_are_compared_without_case_and_punctuation() -> None:
    assert normalised(" Don't,") == normalised("dont") == "dont"
    assert normalised(" ÄRGER.") == "ärger"
    assert normalised(" …") == "…" != normalised("-")


def test_marks_belong_to_their_letters() -> None:
    assert normalised(" caf\u00e9,") == normalised("Cafe\u0301") != normalised("cafe")
    assert normalised("का।") == "का" != normalised("की")
    assert agreed(words("का"), words("की")) == 0


def test_agreed_is_the_common_beginning() -> None:
    assert agreed(words("one two three"), words("One, two four")) == 2
    assert agreed(words("one two"), words("two one two")) == 0
    assert agreed([], words("one")) == 0
    assert agreed(words("no"), words("no", start=5)) == 0


@pytest.mark.parametrize(
    ("past", "heard", "start", "count"),
    [
        pytest.param(words("a b c"), words("a b c d e"), 0, 3, id="whole-past"),
        pytest.param(words("a b c"), words("x c d", start=0.4), 0.4, 2, id="garbled-first-word"),
        pytest.param(words("a b c"), words("c d", start=1.1), 0.8, 1, id="times-moved"),
        pytest.param(words("a b c"), words("x y z w", start=0.1), 0, 3, id="no-text-in-common-time-decides"),
        pytest.param(words("five"), words("five five"), 0, 1, id="said-twice"),
        pytest.param(words("five five"), words("five five five five", start=0.1), 0, 2, id="said-four-times"),
        pytest.param(words("a five"), words("a five five"), 0, 2, id="longer-match-wins"),
        pytest.param(words("a b"), words("b c", start=0.8), 0.8, 0, id="window-begins-behind-the-past"),
        pytest.param(words("a b c"), words("b c", start=0.4), 0, 2, id="past-missed-at-the-beginning"),
        pytest.param([], words("a b"), 0, 0, id="no-past"),
        pytest.param(words("a b c"), [], 0, 0, id="nothing-heard"),
        pytest.param(words("a is", each=0.3), words("is is", start=0.55), 0.5, 0, id="hardly-in-the-window"),
        # whisper-base at two windows over "an ill-disposed young man": "young" was lost.
        pytest.param(
            words("an ill", start=1.2) + [SpokenWord("-disposed", 2 * S, round(2.6 * S))],
            words("an old", start=1.2)
            + [SpokenWord(" supposed", 2 * S, round(2.36 * S))]
            + words("young man", start=2.36),
            0,
            3,
            id="like-words",
        ),
        pytest.param(
            words("the number"), words("the numbers you have", each=0.38), 0, 2, id="one-letter-more"
        ),
    ],
)
def test_repeated_finds_the_border(past, heard, start: float, count: int) -> None:
    assert repeated(past, heard, round(start * S)) == count


def test_the_transcript_is_in_order_of_time_and_taken_once() -> None:
    transcript = Transcript()
    assert (transcript.end, transcript.take()) == (0, ())
    transcript.commit(words("a b"))
    transcript.commit([SpokenWord(" c", S // 2, S), SpokenWord(" d", 0, 100)])
    taken = transcript.take()
    assert [word.text for word in taken] == [" a", " b", " c", " d"]
    assert [(word.start, word.end) for word in taken[2:]] == [(0.8, 1.0), (1.0, 1.0)]
    assert (transcript.take(), len(transcript.recent), transcript.end) == ((), 4, S)


def test_the_transcript_remembers_a_bounded_part() -> None:
    transcript = Transcript()
    transcript.commit(words("w " * 10_000))
    assert len(transcript.take()) == 10_000
    assert len(transcript.recent) == 256


def test_a_correction_tells_which_words_it_is_in_place_of() -> None:
    transcript = Transcript()
    transcript.commit(words("one two"))
    transcript.close()
    transcript.commit(words("howdy mary", 2))
    transcript.correct(words("had he married", 2), 3)
    (correction,) = transcript.take_corrections()
    assert (correction.first, correction.count) == (2, 2)
    assert [word.text for word in correction.words] == [" had", " he", " married"]
    assert [word.start for word in correction.words] == sorted(word.start for word in correction.words)
    assert [word.text for word in transcript.recent] == [" one", " two", " had", " he", " married"]
    assert (transcript.take_corrections(), len(transcript.take())) == ((), 4)
    transcript.commit(words("a", 3.2))
    transcript.correct(words("had he married her", 2), 4)
    assert [(one.first, one.count) for one in transcript.take_corrections()] == [(2, 3)]


@pytest.mark.parametrize(
    "heard",
    [
        [],
        words("one"),
        words("one two three four"),  # the last sentence is left out
        [*words("one two"), *words("eight nine", 2.8)],  # one within
        words("six seven eight nine", 1.6),  # the first
        words("one two three four five six seven eight " * 2, each=0.2),  # said twice
        words("one two three four five six seven eight"),
    ],
)
def test_words_that_cannot_be_all_that_was_said_correct_nothing(heard: list[SpokenWord]) -> None:
    transcript = Transcript()
    transcript.commit(words("one two three four five six seven eight"))
    transcript.correct(heard, len(heard))
    assert (transcript.take_corrections(), len(transcript.recent)) == ((), 8)


def test_one_word_may_have_been_three() -> None:
    transcript = Transcript()
    transcript.commit(words("howdy", each=0.8))
    transcript.correct(words("had he married", each=0.3), 3)
    assert [word.text for word in transcript.recent] == [" had", " he", " married"]


@pytest.mark.parametrize(("sure", "corrected"), [(0.8, False), (0.84, True), (0.9, True)])
def test_words_that_whisper_is_less_sure_of_correct_nothing(sure: float, corrected: bool) -> None:
    transcript = Transcript()
    transcript.commit([replace(word, probability=0.85) for word in words("the speed dial entry")])
    transcript.correct([replace(word, probability=sure) for word in words("the speed dialantry is")], 4)
    assert bool(transcript.take_corrections()) is corrected


def test_a_segment_of_which_nothing_is_committed_is_not_corrected() -> None:
    transcript = Transcript()
    transcript.correct(words("one"), 1)
    assert transcript.take_corrections() == ()


def test_a_segment_that_is_over_is_not_corrected() -> None:
    transcript = Transcript()
    transcript.commit(words("one two"))
    transcript.close()
    transcript.correct(words("one too"), 2)
    assert not transcript.take_corrections()


def test_what_was_heard_behind_them_tells_that_nothing_was_left_out() -> None:
    transcript = Transcript()
    transcript.commit(words("one two three", each=0.9))
    transcript.correct(words("won two tree", each=0.9), 2)
    (correction,) = transcript.take_corrections()
    assert (correction.count, [word.text for word in correction.words]) == (3, [" won", " two"])


def test_of_a_segment_that_is_not_remembered_whole_nothing_is_corrected() -> None:
    transcript = Transcript()
    transcript.commit(words("word " * MOST_CORRECTED))
    transcript.correct(words("worm " * MOST_CORRECTED), MOST_CORRECTED)
    assert transcript.take_corrections() == ()


def test_the_text_before_a_sample_is_cut_at_words() -> None:
    transcript = Transcript()
    transcript.commit(words("alpha beta gamma delta"))
    assert transcript.between(0, round(1.2 * S)) == "alpha beta gamma"
    assert transcript.between(S // 5, round(1.2 * S)) == "beta gamma"
    transcript.commit([SpokenWord(" " + "x" * 796, 2 * S, 3 * S)])
    assert transcript.between(0, 10 * S) == "x" * 796


def said(text: str, start: float, probability: float = 0.9, each: float = 0.3) -> list[SpokenWord]:
    return [replace(word, probability=probability) for word in words(text, start, each)]


def test_words_between_two_silences_are_dropped_where_they_look_made_up() -> None:
    spoken, unlikely = said("what was said", 0), said("thank you .", 5, probability=0.1)
    assert without_made_up(spoken + unlikely, 2 * S) == spoken
    assert without_made_up(spoken + unlikely, 5 * S) == spoken + unlikely  # no silence as long parts them
    assert without_made_up(spoken + said("thank you .", 5), 2 * S) == spoken + said("thank you .", 5)
    assert without_made_up(said("um", 3, each=4.0), S) == []  # a word of four seconds
    assert without_made_up([], S) == []


@pytest.mark.parametrize(
    ("prefix", "texts", "left"),
    [
        ("", [" one"], None),
        (" one two", [" one", " two", " three"], [" three"]),
        ("one two", ["one", " two"], []),
        (" cold", [" cold-hearted", " and"], ["-hearted", " and"]),
        (" him", [" him,", " said"], [",", " said"]),
        (" one two", [" one"], []),
        (" one two", [" one", " too", " three"], None),
        (" 一二", ["一", "二", "三"], ["三"]),
        (" one", [], []),
    ],
)
def test_words_behind_a_prefix(prefix: str, texts: list[str], left: list[str] | None) -> None:
    words = [SpokenWord(text, n * S, (n + 1) * S) for n, text in enumerate(texts)]
    behind = after_prefix(prefix, words)
    assert (behind if behind is None else [word.text for word in behind]) == left
