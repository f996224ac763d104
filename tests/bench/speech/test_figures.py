import json
from dataclasses import asdict

import pytest

from tests.bench.speech.spoken import spoken
from trimodal.audio.values import Word
from trimodal.bench.speech.figures import Plan, Work, lag_growth, summarise_live
from trimodal.bench.speech.streams import HeldWord, StreamRun

WORK = Work(windows=12, seconds=3.0, batch_mean=1.5, batch_most=4)


def held(text, end, lag):
    return HeldWord(Word(f" {text}", end - 0.2, end, 1.0), end + lag)


def run(*words, **fields):
    return StreamRun(words=list(words), **{"sent": 10.0, "flush": 0.1, **fields})


def test_figures_of_two_streams():
    streams = [spoken("one two", 10.0), spoken("three four", 10.0)]
    runs = [
        run(held("one", 5.0, 0.4), held("too", 10.0, 0.8), first=0.5, server_lags=[0.3], late=[0.0, 0.01]),
        run(held("three", 5.0, 0.6), held("four", 10.0, 1.0), first=0.9, server_lags=[0.2], late=[0.02]),
    ]
    row = summarise_live(runs, streams, ["one two", "three for"], WORK, seconds=10.0)
    assert (row.streams, row.refused, row.failed, row.words) == (2, 0, 0, 4)
    assert (row.wer, row.offline_wer, row.wer_to_offline) == (0.25, 0.25, 0.5)
    assert (row.lag_p50, row.lag_p95, row.lag_p99) == pytest.approx((0.6, 1.0, 1.0))
    assert row.server_lag_p95 == 0.3
    assert row.first_s == pytest.approx(0.7)
    assert row.late_p99 == 0.02
    assert row.compute == pytest.approx(3.0 / 20)
    assert row.windows_per_s == pytest.approx(1.2)
    assert row.keeps_up
    assert json.loads(json.dumps(asdict(row)))["batch_mean"] == 1.5


def test_first_text_is_counted_from_the_first_word():
    stream = spoken("one two", 4.0)
    late = [word.shifted(1.5) for word in stream.words]
    shifted = type(stream)(stream.samples, stream.text, tuple(late), stream.windows)
    row = summarise_live([run(first=2.25)], [shifted], None, WORK, 10.0)
    assert row.first_s == pytest.approx(0.75)


def test_refused_streams_count_for_no_word_error_rate():
    runs = [run(held("one", 1, 0.1), held("two", 2, 0.1)), StreamRun(refused="8 streams are open")]
    row = summarise_live(runs, [spoken("one two")] * 2, ["one two"] * 2, WORK, 10.0)
    assert (row.wer, row.refused, row.keeps_up, row.why) == (0, 1, False, "8 streams are open")


def test_without_a_word_there_is_no_lag():
    row = summarise_live([run()], [spoken("one two")], [""], WORK, 10.0)
    assert (row.lag_p95, row.first_s, row.wer, row.wer_to_offline) == (None, None, 1.0, None)


@pytest.mark.parametrize(
    ("fields", "lags", "kept"),
    [
        ({}, [0.5] * 9, True),
        ({"flush": 2.5}, [0.5] * 9, False),
        ({"failed": "broke"}, [0.5] * 9, False),
        ({}, [0.5, 0.5, 0.5, 1, 1, 1, 1.6, 1.6, 1.6], False),
        ({}, [0.1, 0.9, 0.5, 9, 9, 9, 0.2, 1.4, 0.9], True),  # the middle third says nothing
    ],
)
def test_keeping_up(fields, lags, kept):
    words = [held("a", number + 1, lag) for number, lag in enumerate(lags)]
    row = summarise_live([run(*words, **fields)], [spoken("a", 9.0)], None, WORK, 10.0)
    assert row.keeps_up is kept


def test_growth_needs_words_at_both_ends():
    assert lag_growth([held("a", 1, 0.2)], 30.0) == 0
    assert lag_growth([held("a", 1, 0.2), held("b", 29, 1.0)], 30.0) == pytest.approx(0.8)


def test_the_plans_default_ends_within_twelve_minutes():
    plan = Plan()
    assert len(plan.streams) * len(plan.policies) * (plan.seconds + 5) <= 12 * 60
