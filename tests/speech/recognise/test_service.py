import re
from dataclasses import replace

import numpy as np
import pytest

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.errors import InternalError, InvalidArgument, SettingsError
from trimodal.metrics import MemoryMetrics
from trimodal.settings import parse_parameters
from trimodal.speech.engines.fake import FakeWhisper, speak
from trimodal.speech.recognise.pieces import joined
from trimodal.speech.recognise.request import RecogniseRequest
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Recognition, Window


class Scripted(FakeWhisper):
    """Two contexts and languages; notes every run. It hears what `speak` said, or what a script tells.

    `script` maps the first sample of a window to what happens at temperature 0, then at each above it (the
    last again and again): a Recognition, or an exception.
    """

    contexts_s = (6.0, 30.0)  # the first for windows of up to 5 s
    languages = ("en", "de")

    def __init__(self, script=None):
        super().__init__()
        self.script = script or {}
        self.runs = []
        self.closed = False

    def recognise(self, windows, temperature=0.0):
        self.runs.append(([len(window.samples) for window in windows], temperature))
        self.windows = windows
        results = super().recognise(windows)
        for index, window in enumerate(windows):
            planned = self.script.get(round(float(window.samples[0]), 3))
            if planned is not None:
                results[index] = planned[min(self.turn(temperature), len(planned) - 1)]
                if isinstance(results[index], Exception):
                    raise results[index]
        return results

    def turn(self, temperature):
        return sorted({hot for _, hot in self.runs} | {0.0}).index(temperature)

    def close(self):
        self.closed = True


def marked(mark, seconds=1.0):
    """A window that a script knows by its first sample."""
    samples = np.zeros((1, round(seconds * SAMPLE_RATE)), np.float32)
    samples[0, 0] = mark
    return RecogniseRequest(samples)


def said(text, log_probability=-0.2, no_speech=0.0, compression=1.0):
    words = tuple(Word(f" {word}", at / 3, (at + 1) / 3, 0.9) for at, word in enumerate(text.split()))
    return Recognition(words, "en", no_speech, log_probability, compression)


GOOD, UNSURE, LOOPING = said("good"), said("unsure", -1.5), said("loop " * 20, compression=9.0)
WORSE = said("worse", -2.5)
SILENCE = said("thank you", -1.5, no_speech=0.9)


@pytest.fixture
def metrics():
    return MemoryMetrics()


def service(metrics, script=None, **settings):
    engine = Scripted(script)
    made = RecogniseService(engine, RecogniseSettings(artefact="x", **settings), metrics)
    return made, engine


def spoken(*texts):
    """One request, a row for each text; rows of one length."""
    rows = [speak(text.split())[0] for text in texts]
    longest = max(map(len, rows))
    return RecogniseRequest(np.stack([np.pad(row, (0, longest - len(row))) for row in rows]))


def windows(metrics):
    series = metrics.series.items()
    named = {
        dict(labels).get("outcome"): one for (name, labels), one in series if name.endswith("windows_total")
    }
    return {outcome: one.value for outcome, one in named.items() if one.value}


def test_each_request_gets_its_own_words_from_one_run(metrics):
    recogniser, engine = service(metrics)
    first, second, third = recogniser.recognise(
        [spoken("what is a lambda"), spoken("one two", "three"), spoken("")]
    )
    assert [row.text for row in first.rows] == [" what is a lambda"]
    assert [row.text for row in second.rows] == [" one two", " three"]
    assert third.rows[0].words == ()
    assert len(engine.runs) == 1
    assert first.batch_sizes + second.batch_sizes + third.batch_sizes == (4,) * 4
    assert windows(metrics) == {"heard": 3, "empty": 1}
    assert metrics.get("trimodal_speech_batch_size", {}).observations == [4]
    assert len(metrics.get("trimodal_speech_recognize_seconds", {}).observations) == 1


def test_the_first_word_of_a_window_begins_with_its_sound(metrics):
    samples, (word,) = speak(["one"], lead_s=0.4)
    early = Recognition((Word(" one", 0.0, word.end, 1.0),), average_log_probability=-0.1)
    samples[0] = 0.001
    recogniser, _ = service(metrics, {0.001: (early, None)})
    (outcome,) = recogniser.recognise([RecogniseRequest(samples[None])])
    assert outcome.rows[0].words[0].start == pytest.approx(word.start, abs=0.021)
    assert outcome.rows[0].words[0].end == word.end


def test_runs_hold_one_context_and_no_more_windows_than_set(metrics):
    recogniser, engine = service(metrics, max_batch_windows=2)
    outcomes = recogniser.recognise([marked(0, seconds) for seconds in (1, 6, 2, 3, 30, 4, 5, 5)])
    assert [([length // SAMPLE_RATE for length in run], hot) for run, hot in engine.runs] == [
        ([1, 2], 0), ([3, 4], 0), ([5, 5], 0), ([6, 30], 0),
    ]  # fmt: skip
    assert [one.batch_sizes for one in outcomes] == [(2,)] * 8
    assert metrics.get("trimodal_speech_audio_seconds_total", {}).value == 56
    assert metrics.get("trimodal_speech_batch_size", {}).observations == [2] * 4


def test_a_refused_request_leaves_the_others_alone(metrics):
    recogniser, engine = service(metrics)
    good, bad, wrong = recogniser.recognise(
        [
            spoken("one"),
            RecogniseRequest(np.full((3, 9), 99, np.float32)),
            RecogniseRequest(marked(0).windows, None, [b"fr"]),
        ]
    )
    assert good.rows[0].text == " one"
    assert isinstance(bad, InvalidArgument)
    assert str(bad) == "window[0]: a sample of 99; FP32 samples lie within [-1, 1]"
    assert str(wrong) == "language: 'fr' is not known (known: en, de)"
    assert [len(run) for run, _ in engine.runs] == [1]
    assert windows(metrics) == {"heard": 1, "refused": 4}


def test_a_window_longer_than_the_longest_context_is_heard_in_pieces_cut_in_silence(metrics):
    samples, words = speak(["one", "two", "three", "four", "five", "what", "is", "lambda", 0.3] * 3)
    engine = Scripted()
    engine.contexts_s = (2.0, 4.0)
    recogniser = RecogniseService(engine, RecogniseSettings(artefact="x"), metrics)
    (heard,) = recogniser.recognise([RecogniseRequest(np.stack([samples, samples]))])
    for row in heard.rows:
        assert [word.text for word in row.words] == [word.text for word in words]
        starts = [(word.start, said.start) for word, said in zip(row.words, words, strict=True)]
        assert all(abs(start - said) < 0.02 for start, said in starts)
    assert max(length for run, _ in engine.runs for length in run) <= 4 * SAMPLE_RATE * 5 // 6
    (fits,) = recogniser.recognise([marked(0, 4)])
    assert engine.runs[-1][0] == [4 * SAMPLE_RATE]
    assert fits.rows[0].text == ""


def test_the_prefix_of_a_window_is_not_given_to_its_pieces(metrics):
    class Given(Scripted):
        """Begins with the prefix that it is given, as Whisper is made to."""

        contexts_s = (4.0,)

        def recognise(self, windows, temperature=0.0):
            heard = super().recognise(windows, temperature)
            return [
                replace(one, words=(Word(window.prefix, 0.0, 0.2, 1.0), *one.words)) if window.prefix else one
                for window, one in zip(windows, heard, strict=True)
            ]

    samples, words = speak(["one", "two", "three", "four", "five", "what", "is", "lambda", 0.3] * 2)
    recogniser = RecogniseService(Given(), RecogniseSettings(artefact="x"), metrics)
    (heard,) = recogniser.recognise([RecogniseRequest(samples[None], prefixes=[b" one two"])])
    assert heard.rows[0].text == "".join(word.text for word in words)


def test_a_window_in_pieces_has_the_figures_of_its_worst_piece():
    pieces = [
        (16_000, GOOD),
        (32_000, replace(UNSURE, doubted="probability")),
        (16_000, replace(SILENCE, words=())),
    ]
    heard = joined(pieces)
    assert [(word.text, word.start) for word in heard.words] == [(" good", 0), (" unsure", 1)]
    assert (heard.average_log_probability, heard.no_speech_probability) == (-1.5, 0.0)
    assert (heard.doubted, heard.rejected) == ("probability", "")
    silent = replace(SILENCE, words=(), rejected="silence")
    assert joined([(16_000, silent), (16_000, silent)]).rejected == "silence"


def test_language_and_prompt_reach_the_engine_and_the_settings_fill_in(metrics):
    recogniser, engine = service(metrics, language="de")
    samples = marked(0).windows
    recogniser.recognise([RecogniseRequest(samples, ["straße".encode()], [b"en"]), RecogniseRequest(samples)])
    assert [(window.prompt, window.language) for window in engine.windows] == [("straße", "en"), ("", "de")]


def test_a_language_that_the_model_does_not_know_stops_loading(metrics):
    with pytest.raises(SettingsError, match="parameter 'language' = 'fr': the model knows en, de"):
        service(metrics, language="fr")


def test_what_is_doubted_is_decoded_again_together_at_the_next_temperature(metrics):
    script = {0.1: (GOOD,), 0.2: (UNSURE, GOOD), 0.3: (LOOPING,), 0.4: (SILENCE,), 0.5: (UNSURE, WORSE)}
    recogniser, engine = service(metrics, script, temperatures="0,0.4,0.8")
    good, better, loops, silent, unsure = recogniser.recognise([marked(mark) for mark in script])
    again = [(len(lengths), temperature) for lengths, temperature in engine.runs if temperature]
    assert again == [(3, 0.4), (2, 0.8)]
    assert (good.rows[0].text, better.rows[0].text) == (" good", " good")
    assert (loops.rows[0].text, loops.rows[0].doubted) == (LOOPING.text, "compression")
    assert loops.rows[0].compression_ratio == 9.0
    assert (silent.rows[0].words, silent.rows[0].rejected) == ((), "silence")
    assert (unsure.rows[0].text, unsure.rows[0].doubted, unsure.rows[0].rejected) == (
        " unsure", "probability", "",
    ), "real speech that is hard to hear is kept"  # fmt: skip
    assert [one.batch_sizes for one in (good, better, loops, silent, unsure)] == [(5,)] * 5
    assert windows(metrics) == {"heard": 4, "rejected": 1}
    doubted = {
        guard: metrics.get("trimodal_speech_doubted_total", {"guard": guard}).value
        for guard in ("silence", "compression", "probability")
    }
    assert doubted == {"silence": 1, "compression": 1, "probability": 1}
    assert metrics.get("trimodal_speech_fallbacks_total", {}).value == 5


def test_a_prefix_that_makes_the_text_doubted_is_dropped_before_anything_else_is_tried(metrics):
    recogniser, engine = service(metrics, {0.1: (GOOD,), 0.2: (LOOPING, GOOD)}, temperatures="0,0.4")
    prefixed = [
        RecogniseRequest(marked(mark).windows, prefixes=[b" wrong"], drafts=[b" too"]) for mark in (0.1, 0.2)
    ]
    seen, plain = [], engine.recognise

    def recognise(windows, temperature=0.0):
        seen.append(([window.prefix + window.draft for window in windows], temperature))
        heard = plain(windows, temperature)
        return [one if window.prefix else GOOD for window, one in zip(windows, heard, strict=True)]

    engine.recognise = recognise
    outcomes = recogniser.recognise(prefixed)
    assert seen == [([" wrong too", " wrong too"], 0.0), ([""], 0.0)]
    assert [(one.rows[0].text, one.rows[0].doubted) for one in outcomes] == [(" good", "")] * 2
    assert metrics.get("trimodal_speech_fallbacks_total", {}).value == 1


def test_a_prompt_after_which_the_text_loops_is_dropped_before_higher_temperatures(metrics):
    """ "Bravo" alone, with 26 names as prompt, was "Bravo, Bravo, Bravo, …" at every temperature."""
    recogniser, engine = service(metrics, {0.2: (LOOPING,), 0.3: (UNSURE,)}, temperatures="0,0.4")
    seen, plain = [], engine.recognise

    def recognise(windows, temperature=0.0):
        seen.append(([window.prompt for window in windows], temperature))
        heard = plain(windows, temperature)
        return [one if window.prompt else GOOD for window, one in zip(windows, heard, strict=True)]

    engine.recognise = recognise
    prompted = [RecogniseRequest(marked(mark).windows, prompts=[b"Ada, Bravo"]) for mark in (0.2, 0.3)]
    looped, unsure = recogniser.recognise(prompted)
    assert (looped.rows[0].text, looped.rows[0].doubted) == (" good", "")
    assert unsure.rows[0].doubted == "probability", "hints stay where nothing loops"
    assert seen == [(["Ada, Bravo"] * 2, 0.0), ([""], 0.0), (["Ada, Bravo"], 0.4)]


def test_a_window_may_choose_its_temperatures(metrics):
    recogniser, engine = service(metrics, {0.2: (UNSURE, GOOD)})
    once = RecogniseRequest(marked(0.2).windows, temperatures=[b"0"])
    hot = RecogniseRequest(marked(0.2).windows, temperatures=[b"0.7"])
    first, second = recogniser.recognise([once, hot])
    assert (first.rows[0].text, first.rows[0].doubted) == (" unsure", "probability")
    assert (second.rows[0].text, second.rows[0].doubted) == (" good", "")
    assert [temperature for _, temperature in engine.runs] == [0.0, 0.7]


@pytest.mark.parametrize("given", ["", "0.2,hot", "0,1.5", "-0.1"])
def test_temperatures_that_are_none_stop_loading(given):
    with pytest.raises(SettingsError, match="temperatures"):
        parse_parameters(RecogniseSettings, {"artefact": "x", "temperatures": given}, source="config.pbtxt")


def test_a_later_decoding_that_fails_leaves_the_window_as_the_first_left_it(metrics, caplog):
    recogniser, _ = service(metrics, {0.2: (UNSURE, RuntimeError("secret"))})
    (outcome,) = recogniser.recognise([marked(0.2)])
    assert (outcome.rows[0].text, outcome.rows[0].doubted) == (" unsure", "probability")
    assert windows(metrics) == {"heard": 1}
    assert "secret" in caplog.text


def test_a_window_that_the_engine_cannot_bear_fails_alone(metrics, caplog):
    recogniser, engine = service(metrics, {0.5: (RuntimeError("secret"), None)})
    first, bad, second = recogniser.recognise([spoken("one"), marked(0.5), spoken("two")])
    assert (first.rows[0].text, second.rows[0].text) == (" one", " two")
    assert isinstance(bad, InternalError)
    assert "secret" not in str(bad)
    assert "secret" in caplog.text
    assert [len(run) for run, _ in engine.runs] == [3, 1, 1, 1]
    assert (first.batch_sizes, second.batch_sizes) == ((1,), (1,))
    assert windows(metrics) == {"heard": 2, "failed": 1}


def test_one_failed_row_fails_its_request(metrics, caplog):
    recogniser, _ = service(metrics, {0.5: (RuntimeError("x"), None)})
    both = np.concatenate([marked(0).windows, marked(0.5).windows])
    (outcome,) = recogniser.recognise([RecogniseRequest(both)])
    assert isinstance(outcome, InternalError)
    assert "RuntimeError" in caplog.text


def test_an_engine_that_loses_a_result_is_not_trusted_with_the_batch(metrics, caplog):
    recogniser, engine = service(metrics)
    whole = engine.recognise
    engine.recognise = lambda windows, temperature: whole(windows)[:2]
    outcomes = recogniser.recognise([spoken("one"), spoken("two"), spoken("three")])
    assert [one.rows[0].text for one in outcomes] == [" one", " two", " three"]


@pytest.mark.parametrize(
    ("device", "shapes"), [("cpu", [(1, 5)]), ("cuda", [(1, 5), (3, 5), (1, 30), (3, 30)])]
)
def test_opening_runs_once_and_on_a_gpu_in_every_context_and_batch_and_counts_nothing(
    metrics, tmp_path, monkeypatch, device, shapes
):
    engine = Scripted()
    monkeypatch.setattr("trimodal.speech.recognise.service.open_engine", lambda directory, settings: engine)
    settings = RecogniseSettings(artefact="x", max_batch_windows=3, device=device)
    opened = RecogniseService.open(tmp_path, settings, metrics)
    assert [(len(run), run[0] // SAMPLE_RATE) for run, _ in engine.runs] == shapes
    assert windows(metrics) == {}
    opened.close()
    assert engine.closed


@pytest.mark.parametrize("temperatures", [(), (0.0,), (0.0, 0.4)])
def test_one_window_is_heard_as_its_session_chose(temperatures):
    engine = Scripted({0.5: [UNSURE]})
    service = RecogniseService(engine, RecogniseSettings(artefact="x"), MemoryMetrics())
    window = Window(marked(0.5).windows[0], "de", "Ada", translate=True, temperatures=temperatures)
    assert service.recognise_one(window).text == " unsure"
    (asked,) = engine.windows
    assert (asked.language, asked.prompt, asked.translate) == ("de", "Ada", True)
    assert [hot for _, hot in engine.runs] == list(temperatures or service._settings.temperatures)


@pytest.mark.parametrize("translate", [False, True])
def test_a_translation_is_doubted_by_the_language_that_it_is_written_in(metrics, translate):
    loop = said("thank you " * 5)  # ten words in 0.8 s: as characters of Japanese nothing unusual
    words = tuple(replace(word, start=word.start / 4, end=word.end / 4) for word in loop.words)
    loop = replace(loop, words=words, language="ja")
    recogniser, _ = service(metrics, {0.5: [loop, GOOD]})
    window = Window(marked(0.5).windows[0], translate=translate)
    assert recogniser.recognise_one(window).text == (GOOD if translate else loop).text


def test_one_window_that_the_engine_cannot_bear_gets_its_error(caplog):
    engine = Scripted({0.5: [RuntimeError("secret")]})
    service = RecogniseService(engine, RecogniseSettings(artefact="x"), MemoryMetrics())
    with pytest.raises(InternalError):
        service.recognise_one(Window(marked(0.5).windows[0]))


def test_what_fills_a_row_up_is_not_heard(metrics):
    recogniser, engine = service(metrics)
    recogniser.recognise([RecogniseRequest(np.ones((2, 9), np.float32), lengths=[9, 4])])
    assert [len(window.samples) for window in engine.windows] == [9, 4]


@pytest.mark.parametrize("lengths", [[9], [9, 0], [9, 10], [9, -1], [1] * 999])
def test_lengths_that_are_none_are_refused(metrics, lengths):
    recogniser, _ = service(metrics)
    (outcome,) = recogniser.recognise([RecogniseRequest(np.ones((2, 9), np.float32), lengths=lengths)])
    assert isinstance(outcome, InvalidArgument)
    assert re.fullmatch(
        r"samples: \[.{1,60}; one number for each of 2 windows is needed, 1 to 9", str(outcome)
    )
