from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest

from tests.speech.session.spoken import Oracle, chunks_of, held_s, run, speak, texts
from trimodal.audio.live_words import LiveWords
from trimodal.audio.values import SAMPLE_RATE, PolicyName, Samples, Word
from trimodal.speech.session.session import LiveSession, PlannedWindow
from trimodal.speech.session.transcript import MOST_BEFORE
from trimodal.speech.session.vad import EnergyDetector, detectors
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import MAX_PROMPT, Recognition

POLICIES: list[PolicyName] = ["edge", "vad", "file"]
SPOKEN = ((" one", 0.1), (" two", 1.5), (" three", 2.8), (" four", 3.5))
SPOKEN_LATER = tuple((one, at, at + 0.4) for one, at in SPOKEN[1:])
SETTINGS = SpeechSettings(step_s=1, speech_pad_ms=200)


def session(policy: PolicyName = "edge", **settings: float) -> LiveSession:
    return LiveSession(
        SpeechSettings(**{"step_s": 1, "speech_pad_ms": 200, **settings}),
        policy=policy,
        detector=EnergyDetector(),
    )


def noise(seconds: float) -> Samples:
    return np.random.default_rng(0).uniform(-0.3, 0.3, round(seconds * SAMPLE_RATE)).astype(np.float32)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)


def heard(*words: tuple[str, float, float], **told: str) -> Recognition:
    return Recognition(tuple(Word(text, start, end, 1.0) for text, start, end in words), **told)


def due(it: LiveSession) -> PlannedWindow:
    planned = it.next_window()
    assert planned is not None
    return planned


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seconds", [0, 0.001, 70])
def test_silence_and_nothing_at_all_end_without_a_window(policy: PolicyName, seconds: float) -> None:
    it = session(policy)
    it.feed(silence(seconds))
    assert it.next_window() is None
    assert held_s(it) <= 0.5
    it.end()
    it.end()
    assert it.next_window() is None
    assert not it.waiting
    assert it.take().committed == ()
    assert it.take().lag_s == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_the_end_while_a_window_is_out(policy: PolicyName) -> None:
    it = session(policy)
    it.feed(noise(6))
    planned = it.next_window() if policy in ("vad", "file") else due(it)
    it.end()
    if planned:
        assert it.outstanding
        assert it.waiting
        assert it.next_window() is None
        it.accept(planned, heard((" early", 0.5, 0.9)))
    last = due(it)
    assert last.end == 6 * SAMPLE_RATE
    it.accept(last, heard((" late", last.end / SAMPLE_RATE - last.start / SAMPLE_RATE - 0.3, 99)))
    assert not it.waiting
    assert texts(it.take().committed)[-1] == " late"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shortest_ms", [10, 96, 500, 3000])
def test_an_onset_that_is_known_late_is_still_held(policy: PolicyName, shortest_ms: float) -> None:
    settings = SpeechSettings(vad="energy", min_speech_duration_ms=shortest_ms)
    it = LiveSession(settings, policy=policy, detector=detectors("energy")(settings))
    speech = np.concatenate((silence(2), noise(4), silence(1)))
    begins = []
    for at in range(0, len(speech), 320):
        it.feed(speech[at : at + 320])
        while planned := it.next_window():
            begins.append(planned.start)
            it.accept(planned, heard())
    it.end()
    while planned := it.next_window():
        begins.append(planned.start)
        it.accept(planned, heard())
    assert min(begins) < 2 * SAMPLE_RATE


def test_a_language_is_that_of_most_sentences_and_not_of_most_steps() -> None:
    it = session(language_detection_segments=2)
    guess = Recognition((Word(" wort", 0.5, 0.9, 1.0),), language="de", language_probability=0.4)
    windows = []
    for _ in range(2):
        it.feed(silence(1))
        for _ in range(6):
            it.feed(noise(1))
            windows.append(due(it))
            it.accept(windows[-1], guess)
        it.feed(silence(1))
        windows.append(due(it))
        it.accept(windows[-1], guess)
    assert {one.window.language for one in windows} == {""}
    it.feed(noise(1))
    assert due(it).window.language == "de"


def test_a_pause_after_which_the_same_speech_goes_on_counts_no_language() -> None:
    it = session(language_detection_segments=2, min_silence_duration_ms=1000)
    guess = Recognition((Word(" wort", 0.5, 0.9, 1.0),), language="de", language_probability=0.4)
    languages = []
    for pause in (0.3, 1.5, 0.3, 1.5):
        for _ in range(4):
            it.feed(noise(1))
            while planned := it.next_window():
                languages.append(planned.window.language)
                it.accept(planned, guess)
        it.feed(silence(pause))
        while planned := it.next_window():
            languages.append(planned.window.language)
            it.accept(planned, guess)
    assert set(languages) == {""}, "until its second segment is over"
    it.feed(noise(2))
    assert due(it).window.language == "de"


def test_a_step_that_is_sure_of_the_language_decides() -> None:
    it = session(language_detection_segments=2)
    sure = Recognition((Word(" wort", 0.5, 0.9, 1.0),), language="de", language_probability=0.6)
    for _ in range(3):
        it.feed(noise(1))
        it.accept(due(it), sure)
    it.feed(noise(1))
    assert due(it).window.language == "de"


def test_a_stream_that_ended_takes_no_audio() -> None:
    it = session()
    it.end()
    with pytest.raises(RuntimeError, match="after the end"):
        it.feed(noise(1))


def test_only_the_window_that_is_out_is_accepted() -> None:
    it = session()
    it.feed(noise(1))
    planned = due(it)
    it.accept(planned, heard())
    with pytest.raises(ValueError, match="is not out"):
        it.accept(planned, heard())


def test_an_update_tells_committed_words_once_and_the_tentative_ones_anew() -> None:
    it = session()
    it.feed(noise(1))
    it.accept(due(it), heard((" one", 0.1, 0.6), (" tw", 0.7, 0.9)))
    update = it.take()
    assert (update.committed, texts(update.tentative)) == ((), [" one", " tw"])
    assert (update.received_s, update.lag_s) == (1, 0)
    it.feed(noise(1))
    it.accept(due(it), heard((" one", 0.1, 0.5), (" two", 0.6, 1.9)))
    update = it.take()
    assert update.committed == (Word(" one", 0.1, 0.5, 1.0),)
    assert (texts(update.tentative), update.lag_s) == ([" two"], 1.5)
    assert it.take().committed == ()
    assert texts(it.take().tentative) == [" two"]
    assert it.pending_s == 1.5


def test_words_where_nobody_spoke_are_dropped() -> None:
    it = session("vad", min_silence_duration_ms=1000)
    it.feed(np.concatenate((noise(1), silence(0.8), noise(1), silence(1.2))))
    words = (
        (" one", 0.1, 0.9),
        (" late", 0.9, 1.3),
        (" made", 1.3, 1.4),
        (" up", 1.4, 1.5),
        (" two", 1.5, 2),
    )
    it.accept(due(it), heard(*words))
    assert texts(it.take().committed) == [" one", " late", " two"]


def test_words_that_were_given_stay_where_they_are_heard_in_a_pause_now() -> None:
    it = session(step_s=0.5)
    said = [("one", 0.2, 0.6), ("two", 0.7, 1.0), ("three", 1.1, 1.9)]

    def hear(planned: PlannedWindow, words: list[tuple[str, float, float]]) -> None:
        begin = planned.start / SAMPLE_RATE
        it.accept(planned, heard(*((text, start - begin, end - begin) for text, start, end in words)))

    it.feed(np.concatenate([noise(2), silence(2)]))
    while planned := it.next_window():
        hear(planned, said)
    assert [word.text for word in it.take().committed] == ["one", "two", "three"]
    moved = [*said[:2], ("three", 2.6, 2.9)]
    for words in ([("four", 4.1, 4.4)], [("four", 4.1, 4.4), ("five", 4.5, 4.9)]):
        it.feed(noise(0.5))
        planned = due(it)
        assert planned.window.prefix.startswith("onetwothree")
        hear(planned, [*moved, *words])
    assert [word.text for word in it.take().committed] == ["four"]


def test_what_is_speech_is_decided_by_what_was_known_at_the_windows_moment() -> None:
    it = session(max_step_s=1, min_silence_duration_ms=600, speech_pad_ms=20)
    it.feed(np.concatenate((noise(0.9), silence(0.15), noise(2))))
    it.accept(due(it), heard((" one", 0.1, 0.9), (" two", 1.0, 1.06)))
    # The onset at 1.05 s was known only after the step in the pause, though its audio is here now.
    assert texts(it.take().tentative) == [" one"]


def test_what_is_heard_alone_is_kept_where_it_begins_further_from_its_speech_than_a_pad() -> None:
    it = session("file", min_silence_duration_ms=2000, speech_pad_ms=400)
    it.feed(np.concatenate([noise(4.5), silence(1.9)] * 4))
    it.end()
    whole = [(" one", 2.0, 4.0), (" two", 6.5, 10.0), (" four", 19.5, 23.0)]
    it.accept(due(it), heard(*whole))
    alone = due(it)
    assert alone.start / SAMPLE_RATE == pytest.approx(4.5 + 1.9 / 2, abs=0.05)
    it.accept(alone, heard((" two", 1.0, 5.0), (" three", 7.5, 11.0)))
    it.accept(due(it), heard((" four", 1.0, 5.0)))
    assert texts(it.take().committed) == [" one", " two", " three", " four"]
    assert not it.waiting


def test_a_step_that_is_rejected_leaves_the_guess_as_it_was() -> None:
    it = session()
    it.feed(noise(1))
    it.accept(due(it), heard((" one", 0.1, 0.8)))
    it.feed(noise(1))
    it.accept(due(it), heard(rejected="silence"))
    assert texts(it.take().tentative) == [" one"]


def test_a_step_that_is_doubted_is_not_believed_and_a_final_window_is() -> None:
    it = session()
    it.feed(noise(1))
    step = due(it)
    assert step.window.temperatures == (0.0,), "it is heard again soon"
    it.accept(step, heard((" la", 0.1, 0.5), doubted="compression"))
    assert it.take().tentative == ()
    it.feed(np.concatenate((noise(0.4), silence(0.6))))
    assert it.ends_turn
    paused = due(it)
    assert paused.window.temperatures == (0.0,), "at the pause's end it is heard again"
    it.accept(paused, heard((" la", 0.1, 0.5), doubted="compression"))
    final = due(it)
    assert final.window.temperatures == (0.0, 0.4), "somebody waits for its words"
    it.accept(final, heard((" hardly", 0.1, 0.5), doubted="probability"))
    assert texts(it.take().committed) == [" hardly"]


@pytest.mark.parametrize(
    ("doubted", "text"), [("", " won two three four"), ("probability", " one two three four")]
)
def test_a_whole_segment_corrects_words_unless_it_is_doubted(doubted: str, text: str) -> None:
    it, live = session(), LiveWords()
    for seconds in (1, 2, 3, 4):
        it.feed(noise(1))
        it.accept(due(it), heard(*((one, at, at + 0.4) for one, at in SPOKEN if at + 0.4 <= seconds)))
    it.feed(silence(1))
    while planned := it.next_window():
        whole = planned.start < 1 and not planned.window.prefix
        it.accept(planned, heard((" won", 0.1, 0.5), *SPOKEN_LATER, doubted=doubted if whole else ""))
    update = it.take()
    live.add(update.committed, update.corrections)
    assert live.text == text


def test_a_recording_is_decoded_at_all_temperatures_of_the_recogniser() -> None:
    it = session("file")
    it.feed(np.concatenate((noise(2), silence(1))))
    it.end()
    assert due(it).window.temperatures == ()


def test_what_is_told_of_the_windows_whose_words_are_final() -> None:
    it = session("vad")
    it.feed(np.concatenate((noise(0.9), silence(1.1))))
    words = heard((" one", 0.1, 0.5)).words
    final = Recognition(
        words, "de", 0.1, -0.4, 1.2, temperature=0.2, language_probability=0.75, doubted="probability"
    )
    it.accept(due(it), final)
    (window,) = it.take().windows
    assert (window.language, window.language_probability, window.temperature) == ("de", 0.75, 0.2)
    assert (window.avg_logprob, window.compression_ratio, window.no_speech_prob) == (-0.4, 1.2, 0.1)
    assert (window.doubted, window.rejected, it.take().windows) == ("probability", "", ())


@pytest.mark.parametrize(("probability", "kept"), [(0.4, ""), (0.6, "de")])
def test_a_language_is_kept_once_it_is_likelier_than_not(probability: float, kept: str) -> None:
    it = LiveSession(SETTINGS, policy="vad", detector=EnergyDetector())
    it.feed(np.concatenate((noise(4), silence(1))))
    it.accept(due(it), replace(heard((" eins", 0.1, 0.5)), language="de", language_probability=probability))
    it.feed(np.concatenate((noise(2), silence(1))))
    assert due(it).window.language == kept


def test_a_temperature_that_was_asked_for_is_the_only_one() -> None:
    it = LiveSession(SETTINGS, policy="vad", temperature=0.4, detector=EnergyDetector())
    it.feed(np.concatenate((noise(2), silence(1))))
    assert due(it).window.temperatures == (0.4,)


def test_a_pause_that_needs_no_window_is_told_at_once() -> None:
    it = session()
    it.feed(np.concatenate((noise(0.7), silence(0.3))))
    planned = due(it)
    it.accept(planned, heard((" one", 0.1, 0.7)))
    it.feed(silence(0.4))
    update = it.take()
    assert (texts(update.committed), update.tentative) == ([" one"], ())
    assert [(window.start, window.end) for window in update.windows] == [(0.0, planned.end / SAMPLE_RATE)]


def test_a_window_of_which_a_word_was_final_before_the_pause_is_told_once() -> None:
    it = session()
    told = []
    for chunk, said in (
        (noise(1), [(" one", 0.1, 0.8)]),
        (noise(1), [(" one", 0.1, 0.4), (" two", 1.0, 1.9)]),
        (np.concatenate((noise(0.7), silence(0.3))), [(" two", 1.0, 1.9), (" three", 2.2, 2.7)]),
    ):
        it.feed(chunk)
        it.accept(due(it), heard(*said))
        told.append([window.end for window in it.take().windows])
    it.feed(silence(1))
    update = it.take()
    assert texts(update.committed) == [" three"]
    assert [*told, [window.end for window in update.windows]] == [[], [2.0], [2.88], []]


def test_a_final_window_that_is_rejected_says_nothing() -> None:
    it = session()
    it.feed(noise(1))
    it.accept(due(it), heard((" one", 0.1, 0.8)))
    it.feed(np.concatenate((noise(0.4), silence(0.6))))
    for _ in range(2):
        it.accept(due(it), heard(rejected="silence"))
    it.end()
    assert not it.waiting
    assert it.take().committed == ()


def test_the_prompt_is_what_was_said_before_the_window() -> None:
    speech = speak(8, 80, pauses=False)  # windows overlap: what is heard again is not in the prompt
    oracle, prompts = Oracle(speech), []

    def hear(planned: PlannedWindow) -> Recognition:
        prompts.append((planned.start / SAMPLE_RATE, planned.window.prompt))
        return oracle(planned)

    run(
        SpeechSettings(condition_on_previous_text=True),
        "vad",
        hear,
        chunks_of(speech.samples, repeat(16_000)),
    )
    assert prompts[0][1] == ""
    assert len(prompts) > 3
    for start, prompt in prompts[1:]:
        before = "".join(word.text for word in speech.words if word.end <= start)
        assert before.endswith(" " + prompt)
        assert prompt == before.strip() or len(prompt) > MOST_BEFORE - 10


def test_what_was_decoded_at_a_high_temperature_is_no_prompt() -> None:
    it = session("vad", condition_on_previous_text=True)
    prompts = []
    for temperature in (0.0, 0.6, 0.4, 0.0):
        it.feed(np.concatenate((noise(1), silence(1))))
        planned = due(it)
        prompts.append(planned.window.prompt)
        it.accept(planned, replace(heard((f" {temperature}", 0.3, 0.7)), temperature=temperature))
    assert prompts == ["", "0.0", "", "0.4"]


@pytest.mark.parametrize(
    ("own", "prompts"),
    [
        ("Ada", ["Ada", "Ada\nyes", "Ada\nyes no"]),
        ("Ada\nA talk.", ["Ada\nA talk.", "Ada\nA talk. yes", "Ada\nA talk. yes no"]),
        ("x" * 995, ["x" * 995, "x" * 995 + "\nyes", "x" * 995 + "\nno"]),
        ("x" * 1000, ["x" * 1000] * 3),
    ],
)
def test_what_was_said_follows_the_streams_own_prompt_in_another_line(own: str, prompts: list[str]) -> None:
    settings = SpeechSettings(condition_on_previous_text=True)
    it = LiveSession(settings, policy="vad", prompt=own, detector=EnergyDetector())
    made = []
    for word in (" yes", "\n no", " so"):
        it.feed(np.concatenate((noise(1), silence(1))))
        planned = due(it)
        made.append(planned.window.prompt)
        it.accept(planned, heard((word, 0.3, 0.7)))
    assert made == prompts
    assert all(len(prompt) <= MAX_PROMPT for prompt in made)


def test_the_streams_own_prompt_and_language_go_with_each_window() -> None:
    it = LiveSession(SETTINGS, policy="vad", language="en", prompt="Lambdas.", detector=EnergyDetector())
    it.feed(np.concatenate((noise(1), silence(1))))
    planned = due(it)
    assert (planned.window.prompt, planned.window.language) == ("Lambdas.", "en")
    np.testing.assert_array_equal(planned.window.samples[:16_000], noise(1)[: len(planned.window.samples)])


def test_behind_is_the_audio_that_came_since_the_window_could_have_been_heard() -> None:
    it = session()
    it.feed(noise(0.9))
    assert it.behind_s == 0
    it.feed(noise(0.4))
    assert it.behind_s == pytest.approx(0.3)
    planned = due(it)
    it.feed(noise(0.5))
    assert it.behind_s == pytest.approx(0.8)
    assert held_s(it) == it.received_s == pytest.approx(1.8)
    it.accept(planned, heard())
    assert it.behind_s == 0
    assert it.speech_s == pytest.approx(1.8, abs=0.04)


def at_once(
    it: LiveSession, oracle: Oracle, samples: Samples, chunk_s: float, most: int = 2
) -> tuple[list[Word], list[int]]:
    """Hears a recording by `next_windows`; its words, and how many windows were out at once."""
    words: list[Word] = []
    sizes: list[int] = []
    for chunk in chunks_of(samples, repeat(round(chunk_s * SAMPLE_RATE))):
        it.feed(chunk)
        if it.received_s * SAMPLE_RATE >= len(samples):
            it.end()
        while planned := it.next_windows(most):
            sizes.append(len(planned))
            it.accept_windows(planned, [oracle(one) for one in planned])
        words += it.take().committed
    return words, sizes


@pytest.mark.parametrize("seed", range(4))
def test_windows_heard_ahead_give_the_words_of_windows_heard_one_by_one(seed: int) -> None:
    """Where the one before left speech unheard, what was heard ahead counts for nothing."""
    speech = speak(seed, 500)

    def deaf(oracle: Oracle) -> Oracle:
        """Whisper that ends early in a third of its windows."""
        heard = oracle.__call__

        class Deaf(Oracle):
            def __call__(self, planned: PlannedWindow) -> Recognition:
                found = heard(planned)
                early = len(planned.window.samples) % 3 == 0
                return replace(found, words=found.words[: len(found.words) // 2]) if early else found

        return Deaf(speech)

    alone = run(SETTINGS, "file", deaf(Oracle(speech)), chunks_of(speech.samples, repeat(80 * SAMPLE_RATE)))
    for chunk_s, most in ((75.0, 2), (400.0, 2), (400.0, 4)):
        it = session("file", language_detection_threshold=0)
        words, sizes = at_once(it, deaf(Oracle(speech)), speech.samples, chunk_s, most)
        assert texts(words) == texts(alone.words)
        assert max(sizes) == most
        assert sizes[0] == 1, "its language is not known yet"


def test_nothing_is_heard_ahead_where_it_depends_on_the_words_before() -> None:
    speech = speak(0, 300)
    it = session("file", condition_on_previous_text=True)
    assert set(at_once(it, Oracle(speech), speech.samples, 400.0)[1]) == {1}
    it = session("vad")
    assert set(at_once(it, Oracle(speech), speech.samples, 400.0)[1]) == {1}


def test_what_is_sent_ahead_waits_for_no_window_any_more() -> None:
    speech = speak(0, 300)
    it = session("file")
    it.feed(speech.samples[: 50 * SAMPLE_RATE])
    first = it.next_windows(2)
    assert (it.pending_s > 49, it.unsent_s) == (True, pytest.approx(50 - first[0].end / SAMPLE_RATE))
    it.accept_windows(first, [Oracle(speech)(first[0])])
    it.feed(speech.samples[50 * SAMPLE_RATE : 130 * SAMPLE_RATE])
    assert it.unsent_s == it.pending_s
    pair = it.next_windows(2)
    assert len(pair) == 2
    assert it.unsent_s == pytest.approx(130 - pair[1].end / SAMPLE_RATE)
    assert it.pending_s > 79
