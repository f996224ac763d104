"""Whisper whose tokens TensorRT-LLM writes: its encoder-decoder engines of build/speech_tensorrt_llm.py.

The C++ executor batches in flight and pages its KV cache. Language, silence and word times come from our
FP16 graphs beside the engines, on ONNX Runtime and the same GPU (external_decoder). What the checkpoint
does not let be written first (`suppressed_first`) cannot be told to the executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np

from trimodal.errors import OperatorError, ServerError
from trimodal.runtimes.gpu_device import visible_gpus
from trimodal.runtimes.gpu_fit import check_gpu, check_shapes, check_version
from trimodal.speech.engines.onnxruntime import WhisperGraphs
from trimodal.speech.settings import RecognizeSettings
from trimodal.speech.whisper.artefact import read_compiled, read_shapes, read_spec, read_tokens, unopened
from trimodal.speech.whisper.external_decoder import WriterWhisper, Written
from trimodal.speech.whisper.features import FRAMES_PER_S, Features
from trimodal.speech.whisper.greedy import SEED

if TYPE_CHECKING:
    from tensorrt_llm.runtime import ModelRunnerCpp

# Half of the KV memory holds the encoder's keys and values, which are 3 times as many tokens as a text has.
CROSS_SHARE = 0.5


class _Drawing(TypedDict, total=False):
    temperature: float
    top_p: float
    random_seed: int


class TensorRTLLMWriter:
    """One runner; `never` are tokens that may not be made."""

    def __init__(
        self, runner: ModelRunnerCpp, *, end: int, never: Sequence[int], device: str = "cuda"
    ) -> None:
        self._runner = runner
        self._end = end
        self._banned = [[token] for token in never]
        self._device = device

    def write(
        self, features: Features, prompts: Sequence[list[int]], longest: int, temperature: float
    ) -> list[Written]:
        """At most `longest` tokens for each row after its prompt; above temperature 0 drawn with one seed."""
        import torch

        frames = features.shape[2]
        mels = torch.from_numpy(np.ascontiguousarray(features.transpose(0, 2, 1)))
        drawing = _Drawing()  # By default it takes the likeliest token.
        if temperature:
            drawing = _Drawing(temperature=temperature, top_p=1.0, random_seed=SEED)
        # A list for each request: it is zipped with them, which the declared type of the source leaves out.
        banned = cast("list[list[int]]", [self._banned] * len(prompts))
        outputs = self._runner.generate(
            [torch.tensor(prompt, dtype=torch.int32) for prompt in prompts],
            encoder_input_features=list(mels.to(self._device, torch.float16)),
            encoder_output_lengths=[frames // 2] * len(prompts),
            max_new_tokens=longest,
            end_id=self._end,
            pad_id=self._end,
            bad_words_list=banned,
            num_beams=1,
            output_sequence_lengths=True,
            output_log_probs=True,
            return_dict=True,
            **drawing,
        )
        lengths = outputs["sequence_lengths"].tolist()
        ids, chances = outputs["output_ids"].tolist(), outputs["log_probs"].tolist()
        return [
            self._written(ids[row][0][: lengths[row][0]], prompt, chances[row][0], longest)
            for row, prompt in enumerate(prompts)
        ]

    def close(self) -> None:
        """Ends the executor's threads and frees its memory."""
        del self._runner

    def _written(self, ids: list[int], prompt: list[int], chances: list[float], longest: int) -> Written:
        # The executor may or may not repeat the prompt, and end with <|endoftext|> or before it.
        made = ids[len(prompt) :] if ids[: len(prompt)] == prompt else ids
        tokens = made[: made.index(self._end)] if self._end in made else made
        ended = len(tokens) < longest
        # Rows are filled up with zeros to the longest of the batch.
        told = len(tokens) + (self._end in made)
        return Written(tokens, [*chances[:told], *[0.0] * (len(tokens) - len(chances))], ended)


def open_engine(directory: Path, settings: RecognizeSettings) -> WriterWhisper:
    """The engines in `directory`/encoder and /decoder, and our graphs and `tokenizer.json` beside them.

    Raises:
        ArtefactError: missing, damaged, or built for another checkpoint, precision, release, GPU or batch.
        ServerError: TensorRT-LLM, torch, ONNX Runtime with CUDA, or the GPU is missing.
        SettingsError: more than one beam, or a device that is no GPU.
    """
    manifest = read_compiled(directory, settings, "tensorrt_llm")
    shapes, spec = read_shapes(directory, manifest), read_spec(directory, manifest)
    frames = round(shapes.contexts_s[-1] * FRAMES_PER_S)
    wanted = {"encoder:features": (settings.max_batch_windows, shapes.mel_bins, frames)}
    check_shapes(directory, manifest, wanted, f"max_batch_windows {settings.max_batch_windows}")
    check_gpu(directory, manifest, visible_gpus())
    check_version(directory, manifest, library_version())
    tokens = read_tokens(directory, manifest, shapes, spec)
    graphs = WhisperGraphs(
        directory, device=settings.device, threads=settings.threads, command=manifest.command
    )
    try:
        from tensorrt_llm.runtime import ModelRunnerCpp

        runner = ModelRunnerCpp.from_dir(
            str(directory),
            is_enc_dec=True,
            max_batch_size=settings.max_batch_windows,
            max_input_len=frames,
            max_output_len=shapes.positions // 2,
            max_beam_width=1,
            kv_cache_free_gpu_memory_fraction=settings.kv_cache_free_gpu_memory_fraction,
            cross_kv_cache_fraction=CROSS_SHARE,
        )
    except OperatorError:
        raise
    except Exception as error:  # Its C++ throws RuntimeError, its Python checks with assert.
        raise unopened(directory, manifest, error) from None
    never = [*spec.suppressed, *tokens.never_made()]
    writer = TensorRTLLMWriter(runner, end=tokens.end, never=never)
    return WriterWhisper(graphs, writer, tokens, shapes, spec, max_batch=settings.max_batch_windows)


def library_version() -> str:
    """As 1.2.1. Raises: ServerError when TensorRT-LLM cannot be imported, or has no engines any more."""
    try:
        import tensorrt_llm
    except ImportError as error:
        raise ServerError(
            f"the engine tensorrt_llm needs the Python package tensorrt_llm ({error}): use the container, or "
            "the engine tensorrt or ctranslate2"
        ) from None
    version: str = tensorrt_llm.__version__
    return version
