"""Tokens that another runtime writes: a double of TensorRT-LLM that greedy decoding stands in for."""

from __future__ import annotations

import functools
import json
import sys

import numpy as np
import pytest
import torch

from tests.doubles.gpu_libraries import make
from tests.speech.engines.tensorrt.plans import H200
from tests.speech.engines.tensorrt.test_engine import MIXED
from tests.speech.engines.test_onnxruntime import opened
from tests.speech.whisper.checkpoints import LANGUAGES, edit_manifest
from trimodal.errors import ArtefactError, ServerError, SettingsError
from trimodal.runtimes.gpu_device import Gpu
from trimodal.speech.engines import tensorrt_llm as engine_tensorrt_llm
from trimodal.speech.engines.onnxruntime import WhisperGraphs
from trimodal.speech.engines.tensorrt_llm import TensorRTLLMWriter
from trimodal.speech.whisper.external_decoder import Written
from trimodal.speech.whisper.greedy import Greedy, Row
from trimodal.speech.whisper.scores import HostScores

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
VERSION = "1.2.1"


class Executor:
    """What `ModelRunnerCpp.generate` gives, computed by the graphs: in one of the forms that it may have."""

    def __init__(self, graphs, tokens, *, prompt=True, end=True):
        self.graphs, self.end, self.never = graphs, tokens.end, tokens.never_made()
        self.with_prompt, self.with_end = prompt, end
        self.calls = []

    def __call__(self, runner, batch_input_ids, **arguments):
        self.calls.append(arguments)
        features = torch.stack(arguments["encoder_input_features"])
        assert features.dtype == torch.float16
        assert arguments["encoder_output_lengths"] == [features.shape[1] // 2] * len(features)
        assert arguments["end_id"] == arguments["pad_id"] == self.end
        assert arguments["bad_words_list"] == [[token] for token in self.never]
        decoding = self.graphs.start(features.float().numpy().transpose(0, 2, 1))
        prompts = np.array([prompt.tolist() for prompt in batch_input_ids])
        scores, attention = decoding.step(prompts)
        rows = [Row(most_tokens=arguments["max_new_tokens"]) for _ in prompts]
        greedy = Greedy(end=self.end, never=self.never, not_first=(), positions=448)
        greedy.decode(rows, decoding, scores, attention, arguments.get("temperature", 0.0))
        ids, chances, lengths = [], [], []
        for prompt, row in zip(prompts.tolist(), rows, strict=True):
            ended = len(row.tokens) < arguments["max_new_tokens"]
            made = [*row.tokens, *[self.end] * (ended and self.with_end)]
            told = np.log(row.chances).tolist()
            ids.append([*(prompt if self.with_prompt else []), *made])
            lengths.append(len(ids[-1]))
            last = row.log_probability - sum(told)
            chances.append([*told, *[last] * (ended and self.with_end)])
        longest = max(map(len, chances))
        return {
            "output_ids": torch.tensor([[row + [self.end] * (448 - len(row))] for row in ids]),
            "sequence_lengths": torch.tensor(lengths)[:, None],
            "log_probs": torch.tensor([[row + [0.0] * (longest - len(row))] for row in chances]),
        }


@pytest.fixture
def library(tensorrt_llm_double, monkeypatch):
    """The double, one GPU, and all that is CUDA's on the processor."""
    tensorrt_llm_double.module.__version__ = VERSION
    runner = make(tensorrt_llm_double.module.runtime.ModelRunnerCpp)
    tensorrt_llm_double.recorder.returns("ModelRunnerCpp.from_dir", runner)
    declared = type(runner).generate

    def generate(self, batch_input_ids, *, bad_words_list, **arguments):
        """Declared as one list of words; in the source it is zipped with the requests: a list for each."""
        assert len(bad_words_list) == len(batch_input_ids)
        (words, *others) = bad_words_list
        assert all(other == words for other in others)
        return declared(self, batch_input_ids, bad_words_list=words, **arguments)

    monkeypatch.setattr(type(runner), "generate", generate)
    monkeypatch.setattr(engine_tensorrt_llm, "visible_gpus", lambda: [H200])
    monkeypatch.setattr(
        engine_tensorrt_llm,
        "WhisperGraphs",
        lambda directory, *, device, **options: WhisperGraphs(
            directory, device={"cuda": "cpu"}[device], **options
        ),
    )
    monkeypatch.setattr(
        engine_tensorrt_llm, "TensorRTLLMWriter", functools.partial(TensorRTLLMWriter, device="cpu")
    )
    return tensorrt_llm_double


@pytest.fixture
def built(graphs, tmp_path):
    directory = tmp_path / "tensorrt-llm-fp16"
    directory.mkdir()
    for path in graphs.iterdir():
        (directory / path.name).symlink_to(path)
    (directory / "manifest.json").unlink()
    manifest = json.loads((graphs / "manifest.json").read_text())
    frames = 500
    manifest |= {
        "runtime": "tensorrt_llm",
        "runtime_version": VERSION,
        "precision": "fp16",
        "gpu": {"sm": "9.0", "name": "NVIDIA H200", "count": 1},
        "profiles": [
            {"encoder:features": {"min": [1, 80, 2], "opt": [8, 80, frames], "max": [8, 80, frames]}}
        ],
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def tensorrt_llm(directory, **settings):
    return opened(directory, "tensorrt_llm", **({"device": "cuda"} | settings))


@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "no-prompt"])
@pytest.mark.parametrize("end", [True, False], ids=["end", "no-end"])
def test_words_and_times_are_those_of_our_own_decoding(built, library, reference, prompt, end):
    engine = tensorrt_llm(built)
    executor = Executor(engine._graphs, engine._tokens, prompt=prompt, end=end)
    library.recorder.returns("ModelRunnerCpp.generate", executor)
    heard = list(zip(engine.recognize(MIXED), reference.recognize(MIXED), strict=True))
    # The encoder is given FP16 features, which turns a close decision of random weights.
    alike = [(found, expected) for found, expected in heard if found.text == expected.text]
    assert len(alike) >= len(heard) - 2
    assert len({expected.text for _, expected in alike}) > 4, "or nothing is shown"
    for found, expected in alike:
        assert found.language == expected.language
        assert found.no_speech_probability == pytest.approx(expected.no_speech_probability, abs=1e-4)
        for name in ("start", "end"):
            times = [getattr(word, name) for word in expected.words]
            assert [getattr(word, name) for word in found.words] == pytest.approx(times, abs=1e-6)
        chances = [word.probability for word in expected.words]
        assert [word.probability for word in found.words] == pytest.approx(chances, abs=0.02)
        if end:
            expected_mean = expected.average_log_probability
            assert found.average_log_probability == pytest.approx(expected_mean, abs=0.02)
    engine.close()


def test_our_graphs_logits_are_asked_for_at_the_first_step_alone(built, library, monkeypatch):
    engine = tensorrt_llm(built)
    executor, asked, numpy = Executor(engine._graphs, engine._tokens), [], HostScores.numpy

    def writes(*arguments, **options):
        before = len(asked)
        answer = executor(*arguments, **options)
        del asked[before:]  # The double's own.
        return answer

    library.recorder.returns("ModelRunnerCpp.generate", writes)
    monkeypatch.setattr(HostScores, "numpy", lambda self: asked.append(self) or numpy(self))
    engine.recognize(MIXED)
    assert len(asked) == len(executor.calls) > 1
    engine.close()


def test_what_was_said_before_and_the_bound_reach_the_executor(built, library):
    engine = tensorrt_llm(built)
    executor = Executor(engine._graphs, engine._tokens)
    library.recorder.returns("ModelRunnerCpp.generate", executor)
    engine.recognize(MIXED)
    calls = library.recorder.named("ModelRunnerCpp.generate")
    prompts = {tuple(prompt.tolist()) for call in calls for prompt in call.arguments["batch_input_ids"]}
    starts = {code: tuple(engine._tokens.start_sequence(code)) for code in LANGUAGES}
    ends = {tuple(start[1:]) + (engine._tokens.no_timestamps,) for start in starts.values()}
    assert {prompt[-3:] for prompt in prompts} <= ends
    assert len({len(prompt) for prompt in prompts}) > 1, "some have what was said before"
    assert all(16 < call["max_new_tokens"] <= 224 for call in executor.calls)
    assert all("temperature" not in call for call in executor.calls)
    engine.recognize(MIXED[:1], 0.4)
    drawing = {name: executor.calls[-1][name] for name in ("temperature", "top_p", "random_seed")}
    assert drawing == {"temperature": 0.4, "top_p": 1.0, "random_seed": 0}
    engine.close()


def test_the_runner_is_opened_for_what_the_configuration_asks(built, library):
    tensorrt_llm(built, kv_cache_free_gpu_memory_fraction=0.3).close()
    (call,) = library.recorder.named("ModelRunnerCpp.from_dir")
    assert call.arguments == {
        "engine_dir": str(built), "is_enc_dec": True, "max_batch_size": 8, "max_input_len": 500,
        "max_output_len": 224, "max_beam_width": 1, "kv_cache_free_gpu_memory_fraction": 0.3,
        "cross_kv_cache_fraction": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "chances", "expected"),
    [
        ([7, 8, 1, 2, 9, 9], [-1, -2, -3], Written([1, 2], [-1, -2, -3], True)),
        ([7, 8, 1, 2], [-1, -2], Written([1, 2], [-1, -2], True)),
        ([1, 2, 9], [-1, -2, -3], Written([1, 2], [-1, -2, -3], True)),
        ([7, 8, 1, 2, 3], [-1, -2, -3], Written([1, 2, 3], [-1, -2, -3], False)),
        ([7, 8, 9], [-1, 0, 0], Written([], [-1], True)),
        ([7, 8, 1, 2], [], Written([1, 2], [0, 0], True)),
    ],
)
def test_every_form_of_an_answer_is_read(ids, chances, expected):
    """With or without the prompt (7, 8), with or without <|endoftext|> (9), cut at three tokens."""
    writer = TensorRTLLMWriter(None, end=9, never=[])
    assert writer._written(ids, [7, 8], chances, 3) == expected


@pytest.mark.parametrize(
    ("settings", "changes", "sentence"),
    [
        ({"max_batch_windows": 9}, {}, "max_batch_windows 9: .*8×80×500, not 9×80×500"),
        ({}, {"runtime_version": "1.2.0"}, "built with tensorrt_llm 1.2.0, here is 1.2.1"),
        ({"precision": "int8"}, {}, "is fp16, and the configuration asks for int8"),
        ({"checkpoint_sha256": "abc"}, {}, "hash 0, not abc"),
    ],
)
def test_a_misfit_is_one_sentence_with_the_command(built, library, settings, changes, sentence):
    edit_manifest(built, **changes)
    with pytest.raises(ArtefactError, match=f"{sentence}.*: build again with: make it again"):
        tensorrt_llm(built, **settings)
    assert library.recorder.named("ModelRunnerCpp.from_dir") == []


def test_another_gpu_and_an_executor_that_does_not_start_are_told(built, library, monkeypatch):
    library.recorder.raises("ModelRunnerCpp.from_dir", RuntimeError("no memory\nat line 3"))
    with pytest.raises(ArtefactError, match=r"cannot be opened \(no memory\): build again"):
        tensorrt_llm(built)
    l4 = Gpu(index=0, name="NVIDIA L4", sm="8.9", memory=1, free=1, driver="1")
    monkeypatch.setattr(engine_tensorrt_llm, "visible_gpus", lambda: [l4])
    with pytest.raises(ArtefactError, match="SM 9.0"):
        tensorrt_llm(built)


def test_settings_and_machines_that_cannot_are_refused(built, library, monkeypatch):
    with pytest.raises(SettingsError, match="parameter 'beam_size'.*1 only"):
        tensorrt_llm(built, beam_size=5)
    with pytest.raises(SettingsError, match="parameter 'device'.*cuda only"):
        tensorrt_llm(built, device="cpu")
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    with pytest.raises(ServerError, match="needs the Python package tensorrt_llm"):
        tensorrt_llm(built)
