from collections.abc import Sequence
from dataclasses import replace

import pytest

from trimodal.speech.session.policy import Kind, Stretch, Timeline
from trimodal.speech.session.policy_edge import EdgePolicy
from trimodal.speech.session.transcript import SpokenWord, Transcript
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

S = 16_000
SURE = 1536
SPEAKING = [SpeechSpan(round(0.3 * S), round(0.3 * S) + SURE)]


def policy(**settings: float) -> EdgePolicy:
    return EdgePolicy(
        SpeechSettings(
            **{"step_s": 1.0, "max_step_s": 5.0, "speech_pad_ms": 200, "delay": "low", **settings}
        ),
        Transcript(),
    )


def speaking(seconds: float) -> Timeline:
    return Timeline(round(seconds * S), False, SPEAKING)


def words(text: str, start: float = 0.3, each: float = 0.3) -> list[SpokenWord]:
    return [
        SpokenWord(word, round((start + n * each) * S), round((start + (n + 1) * each) * S))
        for n, word in enumerate(text.split())
    ]


def due(it: EdgePolicy, timeline: Timeline) -> Stretch:
    planned = it.plan(timeline)
    assert planned is not None
    return planned


def hear(it: EdgePolicy, seconds: float, heard: Sequence[SpokenWord] | None) -> Stretch:
    """Accepts what the step that is due at this time of the stream heard."""
    planned = due(it, speaking(seconds))
    assert planned.end == round(seconds * S)
    it.accept(planned, heard)
    return planned


def committed(it: EdgePolicy) -> list[str]:
    return [word.text for word in it.transcript.take()]


def believed(text: str = "what is") -> EdgePolicy:
    """A policy that heard the words twice: they are final."""
    it = policy()
    hear(it, 1, words(text))
    hear(it, 2, words(text))
    assert committed(it) == text.split()
    return it


def spoken(*heard: tuple[str, float, float]) -> list[SpokenWord]:
    return [SpokenWord(text, round(start * S), round(end * S)) for text, start, end in heard]


def test_words_are_final_once_they_end_far_enough_before_the_edge() -> None:
    it = live(step_s=0.5)
    hear(it, 1.0, spoken(("what", 0.3, 0.6), ("is", 0.61, 0.9)))
    assert (committed(it), [w.text for w in it.tentative]) == (["what"], ["is"]), "0.4 s before it"
    hear(it, 1.5, spoken(("what", 0.3, 0.6), ("is", 0.61, 0.9), ("a", 1.2, 1.4)))
    assert (committed(it), [w.text for w in it.tentative]) == (["is"], ["a"])


def test_words_on_which_two_windows_agree_are_final_nearer_to_it() -> None:
    for first, final in (("is", ["is"]), ("it", [])):
        it = live(step_s=0.5)
        hear(it, 1.0, spoken(("what", 0.3, 0.6), (first, 0.7, 1.0)))  # cut at the edge
        assert committed(it) == ["what"]
        hear(it, 1.5, spoken(("what", 0.3, 0.6), ("is", 0.7, 1.25)))
        assert committed(it) == final, "0.25 s before it"


def test_a_compound_is_final_as_a_whole() -> None:
    it, heard = believed(), words("what is an ill", each=0.37)
    hear(it, 3, [*heard, *words("-disp", start=1.78, each=1.2)])
    assert committed(it) == ["an"], "alone it would be final: it ends at 1.78 s"
    hear(it, 4, [*heard, *words("-disposed young", start=1.78, each=1)])
    assert committed(it) == ["ill", "-disposed"]


def test_a_window_is_told_what_of_it_is_final() -> None:
    it = believed()
    assert due(it, speaking(3)).prefix == "whatis", "joined as they are written"


def test_a_window_is_told_what_was_heard_behind_what_is_final() -> None:
    it = believed()
    hear(it, 3, words("what is an old", each=0.65))
    planned = due(it, speaking(4))
    assert (planned.prefix, planned.draft) == ("whatisan", "old")


def test_misheard_words_are_not_given_again_but_what_is_heard_is_expected() -> None:
    it = believed("howdy mary")
    assert due(it, speaking(3)).prefix == "howdymary"
    # Given them, the recogniser doubts, and hears all anew.
    for end, heard in (
        (3, "had he married an"),
        (4, "had he married an ill disposed"),
        (5, "had he married an"),
    ):
        planned = hear(it, end, words(heard, each=0.6))
        following = due(it, speaking(end + 1))
        assert (following.prefix, following.draft) == ("", heard.replace(" ", ""))
        assert following.start == planned.start
    it.floor = 5 * S
    it.settle([])
    again = [*SPEAKING, SpeechSpan(6 * S, 6 * S + SURE)]
    assert due(it, Timeline(7 * S, False, again)).prefix, "of another segment"


def test_misheard_words_are_given_no_more_only_while_they_can_be_heard() -> None:
    it, said = policy(max_speech_duration_s=8, step_s=0.5), words("x " * 60, each=0.4)
    given = {}
    for half in range(2, 46):
        planned = due(it, speaking(half / 2))
        heard = [word for word in said if word.middle > planned.start and word.end <= planned.end]
        given[half] = bool(planned.prefix)
        it.accept(planned, [replace(heard[0], text="y"), *heard[1:]] if half == 6 else heard)
    assert (given[5], given[6], given[7]) == (True, True, False)
    assert it.floor > 4 * S, "trimmed"
    assert given[45]


def test_misheard_words_are_corrected_in_the_pause_and_the_right_ones_given() -> None:
    it, said = policy(step_s=0.5), words(SAID, each=3.6 / 7)
    for half in range(2, 6):
        hear(it, half / 2, [word for word in words(MISHEARD, each=0.6) if word.end <= half * S // 2])
    for half in (6, 7):
        planned = hear(it, half / 2, [word for word in said if word.end <= half * S // 2])
        assert bool(planned.prefix) is (half == 6)
    planned = due(it, paused(3.9, 4.15))
    assert planned.whole
    it.accept(planned, said)
    assert corrected(it)
    on = [closed(0.3, 3.9), SpeechSpan(round(4.2 * S), round(4.3 * S))]
    assert due(it, Timeline(round(5.1 * S), False, on)).prefix


def test_words_that_were_misheard_are_heard_as_a_whole_though_all_are_final() -> None:
    it = policy(step_s=0.5)
    for text, halves in ((MISHEARD, (2, 3, 4)), (SAID, (5, 6, 7, 8))):
        for half in halves:
            said = words(text, each=3.3 / len(text.split()))
            hear(it, half / 2, [word for word in said if word.end <= half * S // 2])
    assert not it.tentative
    planned = due(it, paused(3.9, 4.7))
    assert (planned.kind, planned.whole) == (Kind.PAUSE, True)


def test_of_a_trimmed_segment_all_that_was_heard_is_expected_in_the_pause() -> None:
    it, said = policy(max_speech_duration_s=12, step_s=0.5), words("a b c d. e f g h i j k l m", each=0.8)
    for half in range(2, 21):
        planned = due(it, speaking(half / 2))
        it.accept(planned, [one for one in said if one.end <= planned.end and one.middle > planned.start])
    assert it.floor > 3 * S
    planned = due(it, paused(10.2, 10.6))
    assert (planned.whole, planned.draft) == (True, "abcd.efghijkl")


def test_what_was_said_before_a_pause_begins_the_next_windows_while_they_have_room() -> None:
    it = policy(max_speech_duration_s=6, step_s=0.5)
    spans = [closed(0.3, 2.2), SpeechSpan(3 * S, 3 * S + SURE)]
    said = words("I am ill disposed.", each=0.475)
    it.floor = round(2.7 * S)
    it.settle(said)
    planned = due(it, Timeline(round(3.5 * S), False, spans))
    own = round(2.8 * S)
    assert (planned.prefix, planned.start, planned.start + planned.context) == (
        "Iamilldisposed.",
        said[0].start - S // 8,
        own,
    )
    it.accept(planned, [*said, *words("howdy", start=3.1)])
    assert [word.text for word in it.tentative] == ["howdy"]
    it.accept(due(it, Timeline(4 * S, False, spans)), None)
    for end, prefix in ((4.5, "Iamilldisposed."), (5, "Iamilldisposed."), (5.5, "Iamilldisposed."), (6, "")):
        planned = due(it, Timeline(round(end * S), False, spans))
        assert (planned.end, planned.prefix) == (round(end * S), prefix)
        it.accept(planned, None)
    assert (planned.start, planned.context, planned.draft) == (own, 0, "howdy")


def test_only_as_much_of_it_as_the_longest_window_has_room_for() -> None:
    it = policy(max_speech_duration_s=3, step_s=0.5)
    said = words("I am ill disposed.", each=0.475)
    it.floor = round(2.7 * S)
    it.settle(said)
    spans = [closed(0.3, 2.2), SpeechSpan(3 * S, 3 * S + SURE)]
    planned = due(it, Timeline(round(3.5 * S), False, spans))
    assert (planned.prefix, planned.start) == ("amilldisposed.", said[1].start - S // 8)


def test_a_sentence_that_is_heard_again_at_once_is_not_believed() -> None:
    it = policy()
    for second in (1, 2, 3):
        hear(it, second, None)
    said = words("please press the pound", each=0.6)  # 2.4 s, to 2.7 s
    it.settle(said)
    assert len(committed(it)) == 4
    again = [*said, *words("please press the pound", start=2.8, each=0.2)]
    for second in (4, 5):
        hear(it, second, again)
        assert (it.tentative, committed(it)) == ((), [])
    hear(it, 6, again)
    assert committed(it) == ["please", "press", "the", "pound"], "who takes the time for it may say it twice"


def test_a_pause_is_no_time_for_words() -> None:
    it, spans = policy(step_s=0.5), [closed(0.3, 2.2), SpeechSpan(6 * S, 6 * S + SURE)]
    said = words("I am ill disposed.", each=0.475)
    it.floor = round(2.7 * S)
    it.settle(said)
    planned = due(it, Timeline(round(6.5 * S), False, spans))
    assert planned.context > 0
    it.accept(planned, [*said, *words("so many words in so short a time", start=2.8, each=0.4)])
    assert it.tentative == ()


def test_audio_is_kept_while_words_in_it_may_begin_a_window() -> None:
    it = policy(max_speech_duration_s=6)
    said = words("what is", start=2)
    it.floor = 3 * S
    it.settle(said)
    spans = [closed(2, 2.6)]
    held = [it.needed(Timeline(round(at * S), False, spans), S // 2) / S for at in (4, 8, 8.5, 9)]
    assert held == [2 - 1 / 8, 2 - 1 / 8, 2.3 - 1 / 8, 8.5]


def test_a_text_that_does_not_begin_as_it_was_told_is_compared_by_words_and_times() -> None:
    it = believed()
    hear(it, 3, words("was is a", each=0.3))  # "is" at the time of the one that is final
    assert committed(it) == ["a"]


def test_delay_moves_words_behind_the_edge() -> None:
    final = []
    for delay in ("minimal", "low", "medium", "high", "xhigh"):
        it = EdgePolicy(SpeechSettings(step_s=0.1, speech_pad_ms=200, delay=delay), Transcript())
        hypothesis = words("a b c d e f g h i j k l", each=0.2)  # the last ends at 2.7 s
        for tenth in range(4, 28):
            hear(it, tenth / 10, [word for word in hypothesis if word.end <= tenth * S // 10])
        final.append(len(committed(it)))
    assert final == sorted(final, reverse=True)
    assert (
        len(set(final)) == 4
    )  # where steps are so small, two windows agree as soon as minimal and low let them


def test_a_hypothesis_that_is_not_believed_does_not_count() -> None:
    it = policy()
    hear(it, 1, words("one", each=0.5))
    hear(it, 2, None)
    assert ([w.text for w in it.tentative], committed(it)) == (["one"], [])
    hear(it, 3, words("one two", each=0.5))
    assert committed(it) == ["one", "two"]


def test_steps_are_multiples_of_step_s_each_in_order_when_little_is_waiting() -> None:
    it = policy()
    assert it.plan(speaking(0.99)) is None
    for second in range(1, 6):
        hear(it, second, [])
        assert it.plan(speaking(second + 0.99)) is None


def test_a_step_waits_for_half_a_step_of_speech() -> None:
    late = [SpeechSpan(round(0.6 * S), round(0.6 * S) + SURE)]
    planned = due(policy(), Timeline(round(2.2 * S), False, late))
    assert planned.end == 2 * S


def test_the_step_widens_when_behind_and_no_further_than_max_step() -> None:
    planned = policy().plan(speaking(4.7))
    assert planned == Stretch(round(0.1 * S), 4 * S, 4 * S, Kind.STEP)
    far = due(policy(), speaking(60))
    assert far.end == 5 * S
    narrow = due(policy(max_step_s=1.0), speaking(60))
    assert narrow.end == S


def said_for(seconds: int, hypothesis: list[SpokenWord]) -> EdgePolicy:
    """A policy that heard, at each second, the words that were over by then."""
    it = policy(max_speech_duration_s=8)
    for second in range(1, seconds + 1):
        hear(it, second, [word for word in hypothesis if word.end <= second * S])
    return it


def test_a_long_buffer_is_trimmed_at_the_end_of_a_sentence() -> None:
    hypothesis = words("a b c d. e f g h", each=0.8)
    assert said_for(6, hypothesis).floor == 0
    assert said_for(7, hypothesis).floor == hypothesis[3].end


def test_without_a_sentence_to_trim_at_the_last_committed_words_are_kept() -> None:
    for text in ("a b c d e f g h", "a b. c d e f g h"):
        hypothesis = words(text, each=0.8)
        it = said_for(7, hypothesis)
        assert it.transcript.end == hypothesis[6].end  # 5.9 s; f is the first of the last 2 s
        assert it.floor == hypothesis[5].start - S // 8


def test_a_full_buffer_without_agreement_is_committed_but_for_its_edge() -> None:
    it = policy(max_speech_duration_s=4)
    for second in range(1, 5):
        hear(it, second, words(f"x{second}", start=second - 0.3))
    planned = it.plan(speaking(5))
    assert planned == Stretch(round(0.1 * S), round(4.1 * S), 5 * S, Kind.FULL, draft="x4")
    it.accept(planned, [*words("a b", start=3), *words("cu", start=3.8)])
    assert (committed(it), [w.text for w in it.tentative]) == (["a", "b"], ["cu"])
    following = it.plan(speaking(5))
    # "a" was final, too, and there is room for it.
    own, start = round(3.3 * S) - S // 8, 3 * S - S // 8
    assert following == Stretch(start, 5 * S, 5 * S, Kind.STEP, prefix="ab", draft="cu", context=own - start)


# A pause, and the whole segment at it


def live(step_s: float = 1.0) -> EdgePolicy:
    return policy(step_s=step_s)


def closed(start: float, end: float) -> SpeechSpan:
    return SpeechSpan(round(start * S), round(start * S) + SURE, round(end * S), round(end * S) + SURE)


def test_one_step_in_a_pause_hears_the_last_word_and_settles_the_segment() -> None:
    it, spans = live(), [closed(0.3, 1.2)]
    step = due(it, Timeline(S, False, [SpeechSpan(round(0.3 * S), 7000)]))
    it.accept(step, [SpokenWord("one", 5000, 9000), SpokenWord("tw", 15_000, 16_000)])
    paused_at = round(1.36 * S)
    assert it.plan(Timeline(paused_at - 1, False, spans)) is None
    planned = due(it, Timeline(paused_at, False, spans))
    assert planned == Stretch(round(0.1 * S), paused_at, paused_at, Kind.PAUSE, prefix="one", draft="tw")
    it.accept(planned, [SpokenWord("one", 5000, 9000), SpokenWord("two", 15_000, 19_000)])
    assert it.tentative[-1].text == "two", "speech may go on"
    assert it.plan(Timeline(round(1.7 * S), False, spans)) is None
    assert [word.text for word in it.transcript.take()] == ["one", "two"]


def test_a_step_in_a_pause_that_is_not_believed_is_followed_by_the_window_of_the_pause() -> None:
    it, spans = live(), [closed(0.3, 1.2)]
    for end in (S, round(1.36 * S)):
        planned = due(it, Timeline(round(1.4 * S), False, spans))
        assert planned.end == end
        it.accept(planned, None)
    assert it.plan(Timeline(round(1.7 * S) - 1, False, spans)) is None
    planned = it.plan(Timeline(round(1.7 * S), False, spans))
    assert planned == Stretch(round(0.1 * S), round(1.4 * S), round(1.7 * S), Kind.FINAL)


def test_after_a_pause_within_a_segment_steps_go_on_when_speech_does() -> None:
    it, spans = live(), [closed(0.3, 1.1), SpeechSpan(round(1.45 * S), round(1.55 * S))]
    for kind, end in ((Kind.STEP, S), (Kind.PAUSE, round(1.26 * S)), (Kind.STEP, 2 * S)):
        planned = due(it, Timeline(round(2.4 * S), False, spans))
        assert (planned.kind, planned.end) == (kind, end)
        it.accept(planned, words("one two"))


def test_a_segment_that_needs_no_window_does_not_hide_the_next() -> None:
    it, spans = live(), [closed(0.3, 0.75), closed(2, 3)]
    step = due(it, Timeline(S, False, spans))
    it.accept(step, [SpokenWord("one", 5000, 12_000)])
    following = due(it, Timeline(4 * S, True, spans))
    assert (len(it.transcript.recent), following.start + following.context) == (1, round(1.8 * S))


def test_far_behind_a_segment_that_is_here_is_heard_once() -> None:
    planned = live().plan(Timeline(60 * S, False, [closed(0.3, 4.8)]))
    assert planned == Stretch(round(0.1 * S), 5 * S, round(5.3 * S), Kind.FINAL, whole=True)


def paused(at: float, received: float) -> Timeline:
    """Speech from 0.3 s to `at`, and silence."""
    first, end = SPEAKING[0], round(at * S)
    spans = [SpeechSpan(first.start, first.known, end, end + SURE)] if received >= at + 0.1 else SPEAKING
    return Timeline(round(received * S), False, spans)


def test_a_step_that_would_cut_the_last_word_waits_until_it_cannot() -> None:
    it = live(step_s=0.5)
    assert it.plan(paused(0.9, 1.05)) is None, "not [0.1, 1.0)"
    stretch = due(it, paused(0.9, 1.4))
    assert (stretch.kind, stretch.end) == (Kind.PAUSE, round(1.06 * S))


def test_the_window_of_a_pause_hears_all_anew() -> None:
    # whisper-base wrote "He might even have been made amiable himself." twice where all of it was given.
    it = live(step_s=0.5)
    for seconds in (1.0, 1.5):
        hear(it, seconds, words("what is a lambda"))
    planned = hear(it, 2.0, words("what is a lambda"))
    assert (planned.kind, committed(it)) == (Kind.STEP, ["what", "is", "a", "lambda"])
    last = due(it, paused(2.0, 2.3))
    assert (last.end, last.prefix) == (round(2.16 * S), "")
    it.accept(last, words("what is a lambda loop"))
    assert it.plan(paused(2.0, 2.6)) is None
    assert committed(it) == ["loop"]


def test_no_window_hears_the_sound_behind_words_that_are_all_final() -> None:
    """whisper-base wrote "Give." over 0.8 s that began where "representative." ended."""
    it = live(step_s=0.5)
    for seconds in (1.0, 1.5, 2.0):
        hear(it, seconds, words("what is a lambda"))
    assert it.plan(paused(1.9, 2.6)) is None
    assert (committed(it), it.tentative) == (["what", "is", "a", "lambda"], ())


def test_speech_of_which_a_step_heard_no_word_is_heard_once_more() -> None:
    """Nothing tentative may also mean that the steps heard nothing."""
    it = live(step_s=0.5)
    for seconds in (1.0, 1.5, 2.0):
        hear(it, seconds, ())
    assert due(it, paused(1.9, 2.6)).end == round(2.06 * S)
    it = live(step_s=0.5)
    for seconds in (1.0, 1.5, 2.0, 2.5):
        hear(it, seconds, words("what is a lambda"))
    assert due(it, paused(2.4, 3.1)).end == round(2.56 * S), "the last word ended 0.9 s before"


def test_more_words_than_a_mouth_says_in_the_time_are_not_believed() -> None:
    it = believed()
    hear(
        it,
        3,
        words("what is what is what is what is what is what is what is what is what is what is", each=0.1),
    )
    assert (committed(it), it.tentative) == ([], ())
    hear(it, 4, words("what is a", each=0.3))
    assert committed(it) == ["a"]


def test_a_step_that_is_not_believed_has_not_heard_the_end() -> None:
    it = live(step_s=0.5)
    for seconds in (1.0, 1.5, 2.0):
        hear(it, seconds, words("what is a"))
    stretch = due(it, paused(2.2, 2.5))
    assert (stretch.kind, committed(it)) == (Kind.PAUSE, ["what", "is", "a"])
    it.accept(stretch, words("what is a " * 6, each=0.1))
    final = due(it, paused(2.2, 2.8))
    assert final.kind is Kind.FINAL


# Corrections


MISHEARD = "howdy mary a more amiable woman"
SAID = "had he married a more amiable woman"


def misheard(**settings: float) -> EdgePolicy:
    """A policy that heard a sentence of 3.6 s, to 3.9 s, wrong; its last word is tentative."""
    it = policy(step_s=0.5, **settings)
    hypothesis = words(MISHEARD, each=0.6)
    for half in range(2, 9):
        hear(it, half / 2, [word for word in hypothesis if word.end <= half * S // 2])
    return it


def corrected(it: EdgePolicy) -> list[tuple[int, int, str]]:
    return [
        (one.first, one.count, " ".join(word.text for word in one.words))
        for one in it.transcript.take_corrections()
    ]


def test_in_a_pause_the_whole_segment_is_heard_and_corrects_its_words() -> None:
    it = misheard()
    committed_before = committed(it)
    assert committed_before == MISHEARD.split()[:5]
    stretch = due(it, paused(3.9, 4.4))
    begin, end = round(0.1 * S), round(4.06 * S)
    heard = "".join((*committed_before, *(word.text for word in it.tentative)))
    assert stretch == Stretch(begin, end, end, Kind.PAUSE, draft=heard, whole=True)
    it.accept(stretch, words(SAID, each=3.6 / 7))
    assert corrected(it) == [(0, 5, "had he married a more amiable")]
    assert it.plan(paused(3.9, 4.6)) is None
    assert (committed(it), corrected(it)) == (["woman"], [])
    assert [word.text for word in it.transcript.recent] == SAID.split(), "what later windows are told"


def test_words_that_are_all_final_are_heard_as_a_whole_where_one_is_doubtful() -> None:
    """whisper-base committed "you're call" and was not asked again, though it doubted it by what followed."""
    for probability, heard in ((0.9, False), (0.4, True)):
        it = policy(step_s=0.5)
        hypothesis = words(MISHEARD, each=0.55)
        for half in range(2, 9):
            now = [word for word in hypothesis if word.end <= half * S // 2]
            hear(it, half / 2, [replace(word, probability=probability) for word in now[:1]] + now[1:])
        assert (committed(it), it.tentative) == (MISHEARD.split(), ())
        stretch = it.plan(paused(3.9, 4.7))
        assert (stretch is not None and stretch.kind is Kind.PAUSE and stretch.whole) == heard
        if stretch:
            it.accept(stretch, words(SAID, each=3.3 / 7))
            assert corrected(it) == [(0, 6, SAID)]
            assert it.plan(paused(3.9, 4.7)) is None, "once"


def test_a_segment_of_which_no_word_is_wrong_is_not_corrected() -> None:
    it = misheard()
    it.accept(due(it, paused(3.9, 4.4)), words(MISHEARD, each=0.6))
    assert corrected(it) == []


def test_the_window_of_a_pause_corrects_as_well() -> None:
    it = misheard()
    it.accept(due(it, paused(3.9, 4.4)), None)
    final = due(it, paused(3.9, 4.6))
    assert (final.kind, final.start, final.whole) == (Kind.FINAL, round(0.1 * S), True)
    it.accept(final, words(SAID, each=3.6 / 7))
    assert (corrected(it)[0][:2], committed(it)[-1]) == ((0, 5), "woman")


def test_speech_that_goes_on_is_corrected_again_with_all_that_was_said() -> None:
    it = misheard()
    it.accept(due(it, paused(3.9, 4.15)), words(SAID, each=3.6 / 7))
    assert len(corrected(it)) == 1
    spans = [closed(0.3, 3.9), SpeechSpan(round(4.2 * S), round(4.3 * S), 6 * S, 6 * S + SURE)]
    rest = words("she might", start=4.3, each=0.8)
    while (planned := due(it, Timeline(round(6.2 * S), False, spans))).kind is Kind.STEP:
        it.accept(planned, [*words(SAID, each=3.6 / 7), *(word for word in rest if word.end <= planned.end)])
    assert (planned.kind, planned.start, planned.whole) == (Kind.PAUSE, round(0.1 * S), True)
    it.accept(planned, [*words("had she married a more amiable woman", each=3.6 / 7), *rest])
    first, count, text = corrected(it)[0]
    assert text == "had she married a more amiable woman she"
    assert (first, count) == (0, 7), "words as they came; one of them is two now"
    assert len(committed(it)) == 8, "the last one followed the correction"


def test_the_next_segments_words_are_numbered_on_and_only_they_are_corrected() -> None:
    it = misheard()
    it.accept(due(it, paused(3.9, 4.4)), words(SAID, each=3.6 / 7))
    assert it.plan(paused(3.9, 4.6)) is None
    corrected(it)
    before = len(committed(it))
    hypothesis = words("hee might even have been made amiable", start=5, each=0.5)
    spans = [closed(0.3, 3.9), SpeechSpan(5 * S, 5 * S + SURE, round(8.5 * S), round(8.5 * S) + SURE)]
    while (planned := due(it, Timeline(round(8.9 * S), False, spans))).kind is Kind.STEP:
        prefix = words(SAID, each=3.6 / 7) if planned.context else []
        it.accept(planned, [*prefix, *(word for word in hypothesis if word.end <= planned.end)])
    assert (planned.kind, planned.start) == (Kind.PAUSE, round(4.8 * S))
    it.accept(planned, words("he might even have been made amiable", start=5, each=0.5))
    (first, count, text), said = corrected(it)[0], "he might even have been made amiable"
    assert (first, count) == (before, len(committed(it)))
    assert said.startswith(text)


def test_what_is_short_is_heard_after_what_was_said_before_it_and_not_corrected() -> None:
    it = live(step_s=0.5)
    for half in (2, 3, 4):
        hear(it, half / 2, [word for word in words("what is a lambda") if word.end <= half * S // 2])
    assert not due(it, paused(2.0, 2.3)).whole


def test_a_segment_that_is_longer_than_a_window_stays_as_it_was_heard() -> None:
    it = policy(step_s=0.5, max_speech_duration_s=4)
    hypothesis = words("a b c d. e f g h i", each=0.5)
    for half in range(2, 10):
        hear(it, half / 2, [word for word in hypothesis if word.end <= half * S // 2])
    planned = due(it, paused(4.8, 5.2))
    assert (planned.kind, planned.whole) == (Kind.PAUSE, False)
    assert planned.start > round(0.1 * S)


@pytest.mark.parametrize("behind", [False, True], ids=["", "behind"])
def test_audio_of_a_segment_is_kept_while_all_of_it_may_be_heard(behind: bool) -> None:
    it, hypothesis = policy(max_speech_duration_s=8), words("a b c d. e f g h", each=0.8)
    for second in range(1, 8):
        hear(it, second, [word for word in hypothesis if word.end <= second * S])
    assert it.floor == hypothesis[3].end
    pause = paused(7.4, 12 if behind else 7.7)
    assert it.needed(pause if behind else speaking(7), S // 2) <= round(0.1 * S)
    planned = due(it, pause)
    assert (planned.start, planned.whole) == (round(0.1 * S), True)
