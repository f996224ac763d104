"""The TensorRT engine on a double that computes with ONNX Runtime: the words of its network in torch."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest

from tests.speech.engines.tensorrt.on_onnx import write_plan
from tests.speech.engines.tensorrt.plans import BUCKETS, FRAMES, MAX_BATCH, MEL, write_plans
from tests.speech.engines.tensorrt.test_model import MIXED, WINDOWS, opened, same
from tests.speech.whisper.checkpoints import CONTEXTS_S, LANGUAGES, edit_manifest
from trimodal.errors import ArtefactError, ServerError, SettingsError
from trimodal.runtimes.tensorrt_session import TensorRTError
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
# What does not depend on the library's names is tested with one version of them.
NEWEST = pytest.mark.parametrize("tensorrt_double", ["11.4"], indirect=True)
QUICK_NEWEST = pytest.mark.parametrize(
    "tensorrt_double", [pytest.param("10.14", marks=pytest.mark.slow), "11.4"], indirect=True
)
OPENINGS = len(BUCKETS)  # a profile of the decoder; those before are of single tokens


@pytest.fixture
def artefact(static_plans, tensorrt_double, tmp_path):
    """The network as plans: a profile for each context, for each number of rows, and for openings."""
    return write_plans(static_plans, tmp_path, tensorrt_double.version)


def tensorrt(directory, **settings):
    return opened(directory, "tensorrt", **({"device": "cuda", "max_batch_windows": MAX_BATCH} | settings))


@QUICK_NEWEST
@pytest.mark.parametrize("temperature", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_words_times_and_figures_are_those_of_the_network(artefact, runs, reference, temperature):
    engine = tensorrt(artefact)
    assert (engine.contexts_s, engine.languages) == (tuple(CONTEXTS_S), LANGUAGES)
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
    decoded = [(profile, shapes) for name, profile, shapes in runs.runs if name == "decoder.onnx"]
    steps = [(profile, shapes["tokens"]) for profile, shapes in decoded if profile < OPENINGS]
    assert len(steps) > 30
    assert {(profile, *shape) for profile, shape in steps} <= {
        (profile, rows, 1) for profile, rows in enumerate(BUCKETS)
    }
    openings = {shapes["tokens"][1] for profile, shapes in decoded if profile == OPENINGS}
    assert {1, 3} <= openings, "<|startoftranscript|>, then language, task, <|notimestamps|>"
    assert max(openings) > 4, "what was said before"
    assert {shapes["past_key_0"][2] for _, shapes in decoded} == {448}, "a capacity, not a length"
    engine.close()


def test_a_step_is_told_nothing_again_but_to_run(artefact, runs, tensorrt_double):
    """What a CUDA graph needs: the same shapes at the same addresses, whatever was decoded before."""
    engine = tensorrt(artefact)
    windows = [Window(one.samples, "en") for one in WINDOWS[:2]]
    engine.recognise(windows)
    recorder = tensorrt_double.recorder
    on_change = tensorrt_double.module.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE
    created = recorder.named("ICudaEngine.create_execution_context")
    assert {call.arguments["strategy"] for call in created} == {on_change}
    begun = len(recorder.calls)
    engine.recognise(windows)
    assert len(recorder.named("ICudaEngine.create_execution_context")) == len(created)
    calls = recorder.calls[begun:]
    ran = Counter(id(call.instance) for call in calls if call.name.endswith("execute_async_v3"))
    told = {
        id(call.instance) for call in calls if call.name.endswith(("set_input_shape", "set_tensor_address"))
    }
    ((step, times),) = ran.most_common(1)
    assert times > 5
    assert step not in told
    assert len(told) <= 1, "an opening's tensors alone are made anew"
    engine.close()


@NEWEST
@pytest.mark.slow
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
        (MAX_BATCH + 1, FRAMES[0], 1, "5 windows at once, and there is memory for 4"),
        (1, FRAMES[0] + 2, 1, "no profile of encoder.plan holds features 1×80×202"),
        (1, FRAMES[0], 229, "no profile of decoder.plan holds tokens 1×229"),
        (1, FRAMES[0], 449, "449 tokens, and there are 448 places"),
    ],
)
def test_what_no_profile_holds_is_refused_before_memory_is_touched(
    artefact, runs, rows, frames, tokens, sentence
):
    engine = tensorrt(artefact)
    with pytest.raises((TensorRTError, ValueError), match=sentence):
        engine.graphs.start(np.zeros((rows, MEL, frames), np.float32)).open(
            np.zeros((rows, tokens), np.int64), 0
        )
    engine.close()


@NEWEST
@pytest.mark.parametrize(
    ("settings", "changes", "sentence"),
    [
        (
            {"max_batch_windows": 5},
            {},
            "max_batch_size 4, and max_batch_windows is 5: lower it, or raise max_batch_size and",
        ),
        ({"precision": "fp16"}, {}, "is fp32, and the configuration asks for fp16"),
        ({"checkpoint_sha256": "abc"}, {}, "checkpoint with hash 0, not abc"),
        ({}, {"runtime_version": "10.13.0"}, "built with tensorrt 10.13.0, here is 11"),
        ({}, {"gpu": {"sm": "8.9", "name": "NVIDIA L4", "count": 1}}, r"SM 8.9 \(NVIDIA L4\), GPU 0 has 9.0"),
    ],
)
def test_a_misfit_is_one_sentence_with_the_command(artefact, runs, settings, changes, sentence):
    edit_manifest(artefact, **changes)
    with pytest.raises(ArtefactError, match=f"{sentence}.* build again with: make it again"):
        tensorrt(artefact, **settings)
    assert runs.runs == []


def test_a_damaged_plan_is_named(artefact, runs, tensorrt_double):
    (artefact / "decoder.plan").write_bytes(b"damaged")
    with pytest.raises(ArtefactError, match="TensorRT does not take decoder.plan: it did not say why.*make"):
        tensorrt(artefact)
    tensorrt_double.recorder.raises("Runtime.deserialize_cuda_engine", MemoryError("no memory"))
    with pytest.raises(ArtefactError, match=r"cannot be opened \(no memory\)"):
        tensorrt(artefact)


@NEWEST
@pytest.mark.parametrize(
    ("plan", "output", "sentence"),
    [
        ("decoder", "alignment", "lacks the tensor alignment"),
        ("encoder", -1, "lacks the tensor cross_value_1"),
    ],
)
def test_a_plan_with_other_tensors_is_refused_in_one_sentence(artefact, runs, plan, output, sentence):
    model = onnx.load_from_string((artefact / f"{plan}.plan").read_bytes().partition(b"\n")[2])
    names = [value.name for value in model.graph.output]
    del model.graph.output[names.index(output) if isinstance(output, str) else output]
    onnx.save(model, artefact / f"{plan}.onnx")
    write_plan(artefact / f"{plan}.plan", artefact / f"{plan}.onnx", [])
    with pytest.raises(ArtefactError, match=rf"\({plan}\.plan {sentence}, .*make it again"):
        tensorrt(artefact)


def test_a_refused_profile_is_named(artefact, runs):
    runs.refused = {"set_optimization_profile_async"}
    with pytest.raises(TensorRTError, match=r"encoder\.plan does not take profile 0"):
        tensorrt(artefact).recognise(MIXED[:1])


@NEWEST
@pytest.mark.parametrize(("name", "value", "only"), [("beam_size", 5, "1"), ("device", "cpu", "cuda")])
def test_settings_that_it_cannot_follow_are_refused(artefact, runs, name, value, only):
    with pytest.raises(SettingsError, match=f"parameter '{name}'.*{only} only"):
        tensorrt(artefact, **{name: value})


def test_without_tensorrt_the_sentence_says_what_to_install(artefact, runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(ServerError, match="needs the Python package tensorrt .*install the tensorrt wheel"):
        tensorrt(artefact)
