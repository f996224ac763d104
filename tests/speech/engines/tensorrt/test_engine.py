"""The TensorRT engine on a double that computes with ONNX Runtime: the words of the engine onnxruntime."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.speech.engines.tensorrt.plans import (
    DECODER,
    ENCODER,
    FRAMES,
    LAYERS,
    MAX_BATCH,
    MEL,
    PLACES,
    write_plans,
)
from tests.speech.engines.test_onnxruntime import WINDOWS, opened, same
from tests.speech.whisper.checkpoints import CONTEXTS_S, LANGUAGES, edit_manifest
from trimodal.errors import ArtefactError, ServerError, SettingsError
from trimodal.speech.engines.tensorrt.memory import Memory
from trimodal.speech.engines.tensorrt.session import TensorRTError
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
# What does not depend on the library's names is tested with one version of them.
NEWEST = pytest.mark.parametrize("tensorrt_double", ["11.4"], indirect=True)
STEPS, PROMPTS = 0, 1  # profiles of the decoder
TEXTS = ["", "hello", "hello world what is a lambda"]
MIXED = [
    Window(window.samples, ("", *LANGUAGES)[index % 4], TEXTS[index % 3], index // 4 % 2 == 1)
    for index, window in enumerate(WINDOWS)
]


@pytest.fixture
def artefact(graphs, tensorrt_double, tmp_path):
    """The same graphs as plans: a profile for each context, one for single tokens, one for prompts."""
    return write_plans(graphs, tmp_path, tensorrt_double.version)


def tensorrt(directory, **settings):
    return opened(directory, "tensorrt", **({"device": "cuda", "max_batch_windows": MAX_BATCH} | settings))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_words_times_and_figures_are_those_of_onnx_runtime(artefact, runs, reference, temperature):
    engine = tensorrt(artefact)
    assert engine.contexts_s == tuple(CONTEXTS_S)
    expected = reference.recognise(MIXED, temperature)
    assert len({one.text for one in expected}) > 5, "or nothing is shown"
    for found, one in zip(engine.recognise(MIXED, temperature), expected, strict=True):
        same(found, one)
    engine.close()


@NEWEST
def test_each_run_is_in_the_profile_that_was_built_for_it(artefact, runs):
    engine = tensorrt(artefact)
    engine.recognise(MIXED)
    encoded = {(profile, shapes["features"][2]) for name, profile, shapes in runs.runs if "encoder" in name}
    assert encoded == set(enumerate(FRAMES))
    steps, prompts = (
        [
            (shapes["tokens"][1], shapes["past_key_0"][2])
            for name, profile, shapes in runs.runs
            if name == "decoder.onnx" and profile == number
        ]
        for number in (STEPS, PROMPTS)
    )
    assert len(steps) > 30
    assert {count for count, _ in steps} == {1}
    assert min(past for _, past in steps) >= 1
    assert (1, 0) in prompts, "<|startoftranscript|>, with an empty past"
    assert max(count for count, _ in prompts) > 4, "what was said before"
    assert (3, 1) in prompts, "language, task, <|notimestamps|>"
    engine.close()


@NEWEST
def test_logits_leave_the_gpu_at_the_first_step_alone_and_a_later_step_waits_once(
    artefact, runs, monkeypatch
):
    engine = tensorrt(artefact)
    fetches, fetch = [], Memory.fetch

    def counted(self, *views):
        fetches.append((len(runs.runs) - 1, [view.shape for view in views]))
        return fetch(self, *views)

    monkeypatch.setattr(Memory, "fetch", counted)
    engine.recognise(MIXED)
    begun = [at for at, (name, _, _) in enumerate(runs.runs) if name == "encoder.onnx"]
    vocabulary = engine._graphs.vocabulary
    logits = [at for at, shapes in fetches if any(shape[-1] == vocabulary for shape in shapes)]
    assert logits == [at + 1 for at in begun], "silence and language, after <|startoftranscript|>"
    later = 0
    for at, (_, _, inputs) in enumerate(runs.runs):
        if any(at <= first + 3 for first in begun if first <= at):
            continue  # Openings, the first token, and the second, with which other tokens are banned.
        rows, later = inputs["tokens"][0], later + 1
        (shapes,) = [shapes for run, shapes in fetches if run == at]
        assert shapes == [(rows,), (rows,), (rows, engine._graphs.aligned, 1, inputs["cross_key_0"][-1])]
    assert later > 30
    fetches.clear(), runs.runs.clear()
    engine.recognise(MIXED, 0.5)
    drawn = [at for at, shapes in fetches if shapes[0][-1] == vocabulary]
    assert drawn == [at for at, (name, _, _) in enumerate(runs.runs) if name == "decoder.onnx"]
    engine.close()


def test_a_context_for_each_profile_and_only_what_changes_is_told_again(artefact, runs, tensorrt_double):
    engine = tensorrt(artefact)
    engine.recognise(MIXED)
    recorder = tensorrt_double.recorder
    created = recorder.named("ICudaEngine.create_execution_context")
    assert len(created) == len(ENCODER) + len(DECODER)
    on_change = tensorrt_double.module.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE
    assert {call.arguments["strategy"] for call in created} == {on_change}
    chosen = recorder.named("IExecutionContext.set_optimization_profile_async")
    assert sorted(call.arguments["profile_index"] for call in chosen) == [0, 0, 1, 1]
    calls = len(recorder.calls)
    graphs = engine._graphs
    decoding = graphs.start(np.zeros((2, MEL, FRAMES[0]), np.float32))
    for token in ([[1]], [[2]], [[3]]):
        decoding.step(np.array(token * 2))
    last = max(at for at, call in enumerate(recorder.calls) if call.name.endswith("execute_async_v3"))
    before = max(
        at for at, call in enumerate(recorder.calls[:last]) if call.name.endswith("execute_async_v3")
    )
    assert before > calls
    told = [call for call in recorder.calls[before + 1 : last]]
    shapes = {call.arguments["name"] for call in told if call.name.endswith("set_input_shape")}
    assert shapes == {f"past_{kind}_{layer}" for kind in ("key", "value") for layer in range(LAYERS)}
    addresses = {call.arguments["name"] for call in told if call.name.endswith("set_tensor_address")}
    assert addresses == shapes | {name.removeprefix("past_") for name in shapes}, "two sets that take turns"
    engine.close()


@NEWEST
def test_rows_that_are_kept_go_on_as_if_alone(artefact, runs, graphs):
    engine = tensorrt(artefact)
    features = np.random.default_rng(0).normal(size=(3, MEL, FRAMES[0])).astype(np.float32)
    decoding = engine._graphs.start(features)
    decoding.step(np.array([[1, 2], [3, 4], [5, 6]]))
    decoding.keep([2, 0])
    scores, weights = decoding.step(np.array([[7], [8]]))
    kept = scores.numpy()
    for row, (index, tokens) in enumerate([(2, [5, 6, 7]), (0, [1, 2, 8])]):
        alone = engine._graphs.start(features[index : index + 1])
        scores, alignment = alone.step(np.array([tokens]))
        np.testing.assert_allclose(kept[row], scores.numpy()[0], atol=1e-4)
        np.testing.assert_allclose(weights[row, :, 0], alignment[0, :, -1], atol=1e-6)
    engine.close()


@NEWEST
def test_threads_take_turns(artefact, runs, reference):
    engine = tensorrt(artefact)
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda window: engine.recognise([window])[0], MIXED[:6]))
    for found, expected in zip(together, reference.recognise(MIXED[:6]), strict=True):
        same(found, expected)
    engine.close()


def test_a_refused_run_tells_tensorrts_words_and_the_next_one_is_whole(
    artefact, runs, reference, tensorrt_double
):
    engine = tensorrt(artefact)
    (made,) = tensorrt_double.recorder.named("tensorrt.Runtime")
    logger, error = made.arguments["logger"], tensorrt_double.module.ILogger.Severity.ERROR
    logger.log(error, "an illegal\nmemory access")
    logger.log(tensorrt_double.module.ILogger.Severity.WARNING, "beside the point")
    runs.refused = {"execute_async_v3"}
    with pytest.raises(TensorRTError, match=r"^encoder\.plan was not run: an illegal memory access$"):
        engine.recognise(MIXED[:1])
    runs.refused, told = set(), len(tensorrt_double.recorder.named("set_input_shape"))
    same(engine.recognise(MIXED[:1])[0], reference.recognise(MIXED[:1])[0])
    again = tensorrt_double.recorder.named("set_input_shape")[told].arguments["name"]
    assert again == "features", "a context that refused is told everything again"
    engine.close()


@NEWEST
@pytest.mark.parametrize(
    ("rows", "frames", "tokens", "sentence"),
    [
        (MAX_BATCH + 1, FRAMES[0], 1, "no profile of encoder.plan holds features 5×80×200"),
        (1, FRAMES[0] + 2, 1, "no profile of encoder.plan holds features 1×80×202"),
        (1, FRAMES[0], 229, "no profile of decoder.plan holds tokens 1×229"),
        (1, FRAMES[0], PLACES + 1, "449 tokens, and there are 448 places"),
    ],
)
def test_what_no_profile_holds_is_refused_before_memory_is_touched(
    artefact, runs, rows, frames, tokens, sentence
):
    engine = tensorrt(artefact)
    with pytest.raises(TensorRTError, match=sentence):
        engine._graphs.start(np.zeros((rows, MEL, frames), np.float32)).step(
            np.zeros((rows, tokens), np.int64)
        )
    engine.close()


@NEWEST
@pytest.mark.parametrize(
    ("settings", "changes", "sentence"),
    [
        ({"max_batch_windows": 5}, {}, "max_batch_windows 5 of 2 s: .*4×80×.*, not 5×80×200"),
        ({"precision": "fp16"}, {}, "is fp32, and the configuration asks for fp16"),
        ({"checkpoint_sha256": "abc"}, {}, "checkpoint with hash 0, not abc"),
        ({}, {"runtime_version": "10.13.0"}, "built with tensorrt 10.13.0, here is 11"),
        ({}, {"gpu": {"sm": "8.9", "name": "NVIDIA L4", "count": 1}}, r"SM 8.9 \(NVIDIA L4\), GPU 0 has 9.0"),
    ],
)
def test_a_misfit_is_one_sentence_with_the_command(artefact, runs, settings, changes, sentence):
    edit_manifest(artefact, **changes)
    with pytest.raises(ArtefactError, match=f"{sentence}.*: build again with: make it again"):
        tensorrt(artefact, **settings)
    assert runs.runs == []


def test_a_damaged_plan_is_named(artefact, runs, tensorrt_double):
    (artefact / "decoder.plan").write_bytes(b"damaged")
    with pytest.raises(ArtefactError, match="TensorRT does not take decoder.plan: it did not say why.*make"):
        tensorrt(artefact)
    tensorrt_double.recorder.raises("Runtime.deserialize_cuda_engine", MemoryError("no memory"))
    with pytest.raises(ArtefactError, match=r"cannot be opened \(no memory\)"):
        tensorrt(artefact)


def test_a_refused_profile_is_named(artefact, runs):
    runs.refused = {"set_optimization_profile_async"}
    with pytest.raises(TensorRTError, match=r"encoder\.plan does not take profile 0"):
        tensorrt(artefact).recognise(MIXED[:1])


@NEWEST
def test_settings_that_it_cannot_follow_are_refused(artefact, runs):
    with pytest.raises(SettingsError, match="parameter 'beam_size'.*1 only"):
        tensorrt(artefact, beam_size=5)
    with pytest.raises(SettingsError, match="parameter 'device'.*cuda only"):
        tensorrt(artefact, device="cpu")


def test_without_tensorrt_the_sentence_says_what_to_install(artefact, runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(ServerError, match="needs the Python package tensorrt .*install the tensorrt wheel"):
        tensorrt(artefact)
