"""The CTranslate2 engine on a tiny Whisper with random weights: the words of torch and faster-whisper."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.speech.whisper.checkpoints import LANGUAGES, convert, edit_manifest, sound, write_checkpoint
from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import ArtefactError, ServerError
from trimodal.manifest import Manifest
from trimodal.speech.engines import ctranslate2
from trimodal.speech.engines.ctranslate2 import compute_type, preload_cublas
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window
from trimodal.speech.whisper import word_timestamps
from trimodal.speech.whisper.features import log_mel
from trimodal.speech.whisper.word_timestamps import most_tokens

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
WINDOWS = [Window(sound(seconds, seed)) for seed, seconds in enumerate([1, 1, 2, 2, 3, 4, 5, 5, 0.5, 5])]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory)
    return directory


@pytest.fixture(scope="module")
def artefact(checkpoint, tmp_path_factory):
    return convert(checkpoint, tmp_path_factory.mktemp("english") / "ctranslate2-fp32")


def opened(directory, **settings):
    return open_engine(directory, RecogniseSettings(artefact="x", intra_op_threads=1, **settings))


@pytest.fixture(scope="module")
def engine(artefact):
    engine = opened(artefact)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    directory = tmp_path_factory.mktemp("multilingual")
    write_checkpoint(directory / "checkpoint", LANGUAGES)
    engine = opened(convert(directory / "checkpoint", directory / "fp32", LANGUAGES))
    yield engine
    engine.close()


def same(one, other):
    """Words and times are equal, figures up to rounding."""
    assert one.text == other.text
    assert [(word.start, word.end) for word in one.words] == [(word.start, word.end) for word in other.words]
    assert one.language == other.language
    probabilities = [word.probability for word in other.words]
    assert [word.probability for word in one.words] == pytest.approx(probabilities, abs=1e-3)
    assert one.no_speech_probability == pytest.approx(other.no_speech_probability, abs=1e-4)
    if one.words:
        assert one.average_log_probability == pytest.approx(other.average_log_probability, abs=1e-3)


def test_nor_on_neighbours_with_prompts_other_languages_and_tasks(multilingual):
    texts = ["", "hello", "", "hello world what is a lambda", "one two"]
    windows = [
        Window(window.samples, ("", *LANGUAGES)[index % 4], texts[index % 5], index // 4 % 2 == 1)
        for index, window in enumerate(WINDOWS)
    ]
    batch = multilingual.recognise(windows)
    for window, heard in zip(windows, batch, strict=True):
        same(multilingual.recognise([window])[0], heard)
        assert window.language in ("", heard.language)
    plain = multilingual.recognise([Window(window.samples, window.language) for window in windows])
    assert [heard.text for heard in plain] != [heard.text for heard in batch], "prompts change nothing"


def test_nor_on_neighbours_that_begin_with_other_prefixes_which_their_texts_keep(multilingual):
    prefixes = ["", " hello world", " what", " hello world what is a lambda"]
    windows = [replace(window, language="en", prefix=prefixes[n % 4]) for n, window in enumerate(WINDOWS)]
    batch = multilingual.recognise(windows)
    plain = multilingual.recognise([replace(window, prefix="") for window in windows])
    for window, heard, unforced in zip(windows, batch, plain, strict=True):
        same(multilingual.recognise([window])[0], heard)
        assert heard.text.startswith(window.prefix)
        assert "".join(word.text for word in heard.words) == heard.text
        assert (heard == unforced) is (not window.prefix)
        assert heard.average_log_probability < 0  # of all tokens: a prefix that was not said is unlikely


def test_a_search_is_bounded_by_the_windows_own_language(multilingual, monkeypatch):
    monkeypatch.setattr(word_timestamps, "FEW_TOKENS", frozenset(LANGUAGES[:1]))
    monkeypatch.setattr(multilingual, "_beam_size", 5)
    windows = [Window(window.samples, LANGUAGES[index % 2]) for index, window in enumerate(WINDOWS)]
    batch = multilingual.recognise(windows)
    for window, heard in zip(windows, batch, strict=True):
        same(multilingual.recognise([window])[0], heard)


def test_the_bound_on_tokens_is_the_languages(multilingual, monkeypatch):
    windows = [Window(window.samples, "zh") for window in WINDOWS]
    long = multilingual.recognise(windows)
    monkeypatch.setattr(word_timestamps, "SPELLED_PER_S", word_timestamps.TOKENS_PER_S)
    short = multilingual.recognise(windows)
    cut = [(one.text, other.text) for one, other in zip(long, short, strict=True) if one.text != other.text]
    assert cut, "or nothing is shown"
    assert all(text.startswith(head) for text, head in cut)


def test_the_words_are_those_of_torch(checkpoint, artefact, tmp_path):
    """On 30 s, which is all that transformers encodes."""
    import torch
    from transformers import AutoTokenizer, WhisperForConditionalGeneration

    directory = tmp_path / "30"
    shutil.copytree(artefact, directory)
    edit_manifest(directory, shapes={"contexts_s": [30]})
    engine = opened(directory)
    model = WhisperForConditionalGeneration.from_pretrained(checkpoint).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    start, end, plain = tokenizer.convert_tokens_to_ids(
        ["<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"]
    )
    suppressed = engine._tokens.never_made()
    windows = [Window(sound(seconds, seed)) for seed, seconds in enumerate([1, 3, 8, 20])]
    for window, heard in zip(windows, engine.recognise(windows), strict=True):
        features = torch.tensor(log_mel(window.samples, 30, 80))[None]
        ids, logs = [start, plain], []
        with torch.inference_mode():
            encoded = model.model.encoder(features)
            nothing = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([[start]])).logits[0, -1]
            for _ in range(min(most_tokens(len(window.samples) / SAMPLE_RATE), 224)):
                logits = model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([ids])).logits[0, -1]
                logits[suppressed] = -torch.inf
                chosen = int(logits.argmax())
                logs.append(float(logits.log_softmax(-1)[chosen]))
                if chosen == end:
                    break
                ids.append(chosen)
        assert heard.text == tokenizer.decode([token for token in ids if token < end])
        expected = float(nothing.softmax(-1)[tokenizer.convert_tokens_to_ids("<|nospeech|>")])
        assert heard.no_speech_probability == pytest.approx(expected, abs=1e-4)
        if chosen == end:
            assert heard.average_log_probability == pytest.approx(np.mean(logs), abs=1e-3)
    engine.close()


def test_the_words_and_times_are_those_of_faster_whisper(artefact, tmp_path):
    from faster_whisper import WhisperModel
    from faster_whisper.feature_extractor import FeatureExtractor

    class SameFeatures(FeatureExtractor):
        """Nonsense hangs on the last digits of the features."""

        def __call__(self, waveform, padding=160, chunk_length=None):
            return log_mel(waveform, 30, 80, "zeros")[:, : len(waveform) // 160 + 1]

    directory = tmp_path / "30"
    shutil.copytree(artefact, directory)
    edit_manifest(directory, shapes={"contexts_s": [30], "padding": "zeros"})
    engine = opened(directory)
    # It makes at most half of the prompt's two tokens and max_new_tokens.
    model = WhisperModel(str(directory), device="cpu", compute_type="float32", cpu_threads=1)
    model.feature_extractor = SameFeatures()
    compared = 0
    for seed in range(8):
        window = Window(sound(6, seed))
        segments, _ = model.transcribe(
            window.samples, beam_size=1, temperature=0, without_timestamps=True, word_timestamps=True,
            max_new_tokens=2 * most_tokens(6) - 2, compression_ratio_threshold=None, log_prob_threshold=None,
            no_speech_threshold=None,
        )  # fmt: skip
        expected = [word for segment in segments for word in segment.words]
        (heard,) = engine.recognise([window])
        assert heard.text == "".join(word.word for word in expected)
        # The words at the window's edges are shortened by other rules; the rest is the same to a step.
        for word, other in list(zip(heard.words, expected, strict=True))[2:-2]:
            assert (word.start, word.end) == pytest.approx((other.start, other.end), abs=0.021)
            assert word.probability == pytest.approx(other.probability, abs=0.01)
            compared += 1
    assert compared > 50
    engine.close()


@pytest.mark.parametrize("samples", [1, 100, 320, 1600])
def test_the_shortest_windows(engine, samples):
    (heard,) = engine.recognise([Window(sound(1, 0)[:samples])])
    assert all(0 <= word.start <= word.end <= samples / SAMPLE_RATE for word in heard.words)


def test_runs_hold_no_more_windows_than_set(artefact, monkeypatch):
    engine = opened(artefact, max_batch_windows=3)
    sizes = []
    encode = engine._model.encode

    class Counted:
        def __getattr__(self, name):
            return getattr(model, name)

        def encode(self, features):
            sizes.append(features.shape)
            return encode(features)

    model, engine._model = engine._model, Counted()
    engine.recognise([Window(sound(1, seed)) for seed in range(7)] + [Window(sound(3, 0))])
    assert [(shape[0], shape[2]) for shape in sizes] == [(3, 200), (3, 200), (1, 200), (1, 500)]
    model.unload_model()


def test_a_temperature_draws_within_the_bounds_and_breaks_loops(engine):
    greedy = engine.recognise(WINDOWS)
    looping = [index for index, heard in enumerate(greedy) if heard.compression_ratio > 2.4]
    assert looping
    drawn = engine.recognise([WINDOWS[index] for index in looping], temperature=1.0)
    for index, heard in zip(looping, drawn, strict=True):
        assert heard.compression_ratio < greedy[index].compression_ratio
        assert (heard.temperature, greedy[index].temperature) == (1.0, 0.0)


def test_translating_is_another_task_for_a_multilingual_model_alone(engine, multilingual):
    windows = [replace(window, language=LANGUAGES[1]) for window in WINDOWS]
    translating = [replace(window, translate=True) for window in windows]
    plain, translated = multilingual.recognise(windows), multilingual.recognise(translating)
    # Random weights hardly look at the task; how sure they are of each window depends on it.
    sure = zip(plain, translated, strict=True)
    assert all(one.average_log_probability != other.average_log_probability for one, other in sure)
    assert {one.language for one in translated} == {LANGUAGES[1]}, "what is spoken"
    for plain_one, other in zip(
        engine.recognise(WINDOWS[:3]),
        engine.recognise([replace(window, translate=True) for window in WINDOWS[:3]]),
        strict=True,
    ):
        same(plain_one, other)


def test_a_language_is_detected_as_ctranslate2_does(multilingual):
    for window in WINDOWS[:4]:
        (detected,) = multilingual.recognise([window])
        (given,) = multilingual.recognise([Window(window.samples, detected.language)])
        assert detected.language in LANGUAGES
        assert 1 / len(LANGUAGES) <= detected.language_probability < 1 == given.language_probability
        same(detected, given)


def test_a_window_without_a_token_has_finite_figures(tmp_path):
    write_checkpoint(tmp_path / "checkpoint", seed=2, end_gain=3, may_be_empty=True)
    engine = opened(convert(tmp_path / "checkpoint", tmp_path / "fp32"))
    batch = engine.recognise(WINDOWS)
    assert any(heard.text == "" and heard.average_log_probability == 0.0 for heard in batch)
    for heard in batch:
        assert np.isfinite([heard.average_log_probability, heard.compression_ratio]).all()
        assert 0 <= heard.no_speech_probability <= 1
    for window, heard in zip(WINDOWS, batch, strict=True):
        same(engine.recognise([window])[0], heard)
    engine.close()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"runtime": "onnxruntime"}, "holds a speech engine for onnxruntime"),
        ({"precision": "int3"}, "has precision int3 (known: int8, "),
        ({"shapes": {"contexts_s": []}}, "shapes.contexts_s): build again with: make it again"),
        ({"shapes": {"contexts_s": [31]}}, "shapes.contexts_s"),
        ({"shapes": {"mel_bins": "many"}}, "shapes.mel_bins"),
        ({"shapes": {"sample_rate": 8000}}, "shapes.sample_rate"),
        ({"shapes": {"padding": "noise"}}, "shapes.padding"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(artefact, tmp_path, changes, told):
    directory = tmp_path / "edited"
    shutil.copytree(artefact, directory)
    edit_manifest(directory, **changes)
    with pytest.raises(ArtefactError) as error:
        opened(directory)
    assert told in str(error.value)


@pytest.mark.parametrize("name", ["model.bin", "tokenizer.json"])
def test_a_damaged_file_is_refused_with_the_remedy(artefact, tmp_path, name):
    directory = tmp_path / "damaged"
    shutil.copytree(artefact, directory)
    (directory / name).write_bytes(b"{}")
    with pytest.raises(ArtefactError, match=r"cannot be opened \(.+\): build again with: make it again"):
        opened(directory)
    (directory / name).unlink()
    with pytest.raises(ArtefactError, match=f"lacks {name}"):
        opened(directory)


def test_a_gpu_that_cannot_be_used_is_not_blamed_on_the_artefact(artefact, monkeypatch):
    def refuse(*arguments, **settings):
        raise RuntimeError("CUDA failed with error no CUDA-capable device is detected\nstack")

    monkeypatch.setattr("ctranslate2.models.Whisper", refuse)
    told = r"cannot use the GPU \(CUDA failed .* is detected\): `trimodal doctor --profile cuda` tells what"
    with pytest.raises(ServerError, match=told):
        opened(artefact, device="cuda")
    with pytest.raises(ArtefactError, match="cannot be opened"):
        opened(artefact)


@pytest.mark.parametrize(
    "said",
    [
        "CUDA failed with error out of memory",
        "Requested int8_float16 compute type, but the target device or backend do not support efficient "
        "int8_float16 computation.",
    ],
)
def test_nothing_is_missing_on_a_gpu_that_is_full_or_too_old(artefact, monkeypatch, said):
    def refuse(*arguments, **settings):
        raise ValueError(said)

    monkeypatch.setattr("ctranslate2.models.Whisper", refuse)
    with pytest.raises(ServerError, match=rf"cannot use the GPU \({said[:30]}.*\)$"):
        opened(artefact, device="cuda")
    with pytest.raises(ArtefactError, match="cannot be opened"):
        opened(artefact)


def test_a_library_that_the_first_run_does_not_find_is_told_when_it_is_opened(artefact, monkeypatch):
    class Model:
        is_multilingual = False

        def __init__(self, *arguments, **settings):
            pass

        def encode(self, features):
            raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")

    monkeypatch.setattr("ctranslate2.models.Whisper", Model)
    with pytest.raises(ServerError, match=r"\(Library libcublas.so.12 is not .* tells what is missing"):
        opened(artefact, device="cuda")


@pytest.mark.parametrize(("given", "threads"), [(3, 3), (0, 5)])
def test_a_run_has_the_threads_that_are_set_or_every_core(artefact, monkeypatch, given, threads):
    opened_with = {}

    def model(*arguments, **settings):
        opened_with.update(settings)
        raise RuntimeError("seen")

    monkeypatch.setattr("trimodal.settings.host_cpus", lambda: 5)
    monkeypatch.setattr("ctranslate2.models.Whisper", model)
    with pytest.raises(ArtefactError, match="seen"):
        open_engine(artefact, RecogniseSettings(artefact="x", intra_op_threads=given))
    assert opened_with["intra_threads"] == threads


UNREAD = Manifest(
    task="speech", runtime="ctranslate2", runtime_version="4", precision="int8", source="x",
    source_sha256="0", command="make it again",
)  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "cpu", "cuda"),
    [("int8", "int8", "int8_float16"), ("float16", "float32", "float16"), ("float32", "float32", "float32")],
)
def test_the_precision_decides_how_each_device_computes(precision, cpu, cuda):
    assert compute_type(Path("a"), UNREAD.model_copy(update={"precision": precision}), "cpu") == cpu
    assert compute_type(Path("a"), UNREAD.model_copy(update={"precision": precision}), "cuda") == cuda


def test_cublas_comes_out_of_its_wheel_in_the_order_of_its_needs(tmp_path, monkeypatch):
    (tmp_path / "nvidia").mkdir()  # a namespace package, as NVIDIA's wheels share it
    monkeypatch.syspath_prepend(tmp_path)
    loaded = []
    monkeypatch.setattr(ctranslate2.ctypes, "CDLL", lambda path, mode: loaded.append((path, mode)))
    preload_cublas()
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    ours = [(path, mode) for path, mode in loaded if path.startswith(str(tmp_path))]
    assert ours == [
        (str(folder / "libcublasLt.so.12"), ctypes.RTLD_GLOBAL),
        (str(folder / "libcublas.so.12"), ctypes.RTLD_GLOBAL),
    ]
