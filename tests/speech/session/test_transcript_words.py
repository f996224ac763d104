"""Every word of a stream is committed once, at its time, whatever the size of the chunks."""

import difflib
from itertools import cycle, pairwise, repeat

import pytest

from tests.speech.session.spoken import (
    Oracle,
    Outcome,
    Speech,
    chunks_of,
    held_s,
    looped,
    random_lengths,
    run,
    speak,
    texts,
)
from trimodal.audio.values import SAMPLE_RATE, PolicyName
from trimodal.speech.settings import SpeechSettings

POLICIES: list[PolicyName] = ["edge", "vad", "file"]
SETTINGS = SpeechSettings(step_s=1)
IN_ORDER = SpeechSettings(step_s=1.0, max_step_s=1.0)  # never widens


def check(outcome: Outcome, speech: Speech, *, off_s: float) -> None:
    """The words spoken, each once, in order, at their times; and the stream is done."""
    said, found = texts(speech.words), texts(outcome.words)
    if said != found:
        matcher = difflib.SequenceMatcher(None, said, found, autojunk=False)
        pytest.fail(str([code for code in matcher.get_opcodes() if code[0] != "equal"][:5]))
    for word, heard in zip(speech.words, outcome.words, strict=True):
        assert abs(word.start - heard.start) <= off_s
        assert abs(word.end - heard.end) <= off_s
    assert all(before.end <= after.start for before, after in pairwise(outcome.words))
    assert not outcome.session.waiting
    assert outcome.tentative[-1] == ()
    assert outcome.session.pending_s == outcome.session.behind_s == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("pauses", [True, False])
def test_words_are_committed_as_spoken_whatever_the_chunks(policy: PolicyName, pauses: bool) -> None:
    for seed in range(12):
        speech = speak(seed, 80, pauses=pauses)
        oracle = Oracle(speech, jitter_s=0.04, wavering_s=0.15, cut=("garbled", "missing")[seed % 2])
        outcome = run(SETTINGS, policy, oracle, chunks_of(speech.samples, random_lengths(seed)))
        check(outcome, speech, off_s=0.1)


@pytest.mark.parametrize("policy", POLICIES)
def test_exact_times_stay_exact(policy: PolicyName) -> None:
    speech = speak(100, 80)
    check(run(SETTINGS, policy, Oracle(speech), chunks_of(speech.samples, repeat(1600))), speech, off_s=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("settings", [
    SpeechSettings(step_s=0.3, max_step_s=0.3, max_speech_duration_s=5, min_silence_duration_ms=150),
    SpeechSettings(step_s=2, max_step_s=30, max_speech_duration_s=30, min_silence_duration_ms=2000),
    SpeechSettings(step_s=5, max_step_s=5, max_speech_duration_s=4),
], ids=["short", "long", "step-longer-than-window"])  # fmt: skip
def test_other_settings_lose_nothing_either(policy: PolicyName, settings: SpeechSettings) -> None:
    for seed in range(6):
        speech = speak(seed, 60, pauses=seed % 2 == 0)
        oracle = Oracle(speech, jitter_s=0.02)
        check(
            run(settings, policy, oracle, chunks_of(speech.samples, random_lengths(seed))), speech, off_s=0.1
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_windows_and_words_do_not_depend_on_the_chunks(policy: PolicyName) -> None:
    for seed in range(4):
        speech = speak(seed, 80, pauses=seed % 2 == 0)
        seen = []
        for lengths in (repeat(320), random_lengths(seed), repeat(480_000)):
            oracle = Oracle(speech, jitter_s=0.1, wavering_s=0.4)  # wrong words too are the same wrong words
            outcome = run(IN_ORDER, policy, oracle, chunks_of(speech.samples, lengths))
            seen.append((oracle.heard, outcome.words))
        assert seen[0] == seen[1] == seen[2]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_an_hour_is_heard_in_bounded_memory_with_an_exact_clock(policy: PolicyName) -> None:
    speech = speak(7, 100, tail_s=0.7, pauses=policy != "vad")
    times = round(3600 * SAMPLE_RATE / len(speech.samples))
    hour = looped(speech, times)
    oracle = Oracle(hour)
    lengths = cycle([8000, 480_000, 16_000, 160_000])
    chunks = (chunk for _ in range(times) for chunk in chunks_of(speech.samples, lengths))
    outcome = run(SETTINGS, policy, oracle, chunks)
    check(outcome, hour, off_s=1e-3)
    assert outcome.session.received_s == times * len(speech.samples) / SAMPLE_RATE > 3500
    segment_s = 2 * SETTINGS.file_window_s if policy == "file" else SETTINGS.max_speech_duration_s
    assert outcome.held_s < 30 + segment_s + 2
    # `edge` keeps what the next words are heard after; it is let go once it lies further back than a window.
    context_s = SETTINGS.max_speech_duration_s if policy == "edge" else 0
    assert held_s(outcome.session) < context_s + 2
    assert len(outcome.session._detector.spans) < 5 + context_s


@pytest.mark.parametrize("policy", POLICIES)
def test_windows_are_never_too_long_nor_too_many(policy: PolicyName) -> None:
    speech = speak(11, 300, pauses=False)
    oracle = Oracle(speech)
    run(SETTINGS, policy, oracle, chunks_of(speech.samples, repeat(480_000)))
    lengths = [end - start for start, end in oracle.heard]
    assert min(lengths) > 0
    longest = SETTINGS.file_window_s if policy == "file" else SETTINGS.max_speech_duration_s
    assert max(lengths) <= longest * SAMPLE_RATE
    # Behind by half a minute at each chunk: the step widens, each second is heard about twice.
    assert sum(lengths) < 2.5 * len(speech.samples)
    if policy == "file":  # of 30 s, cut in their last fifth
        assert len(lengths) <= len(speech.samples) / (24 * SAMPLE_RATE) + 1
