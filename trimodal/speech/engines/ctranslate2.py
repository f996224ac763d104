"""Runs Whisper on CTranslate2 at the batch level: windows of many streams in one run.

faster-whisper's class takes one audio at a time and always encodes 30 s; here a
batch shares one encoding of the shortest context that holds its windows. A
window's result never depends on its neighbours: windows that CTranslate2 would mix
(it takes one length of prompt, one language and one alignment a call) go into runs of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.errors import ArtefactError, ServerError, by_own_names
from trimodal.manifest import MANIFEST, Manifest
from trimodal.runtimes.heap import give_back_freed
from trimodal.runtimes.onnx_session import first_line
from trimodal.speech.engines.openvino.encoder import Encoder
from trimodal.speech.engines.openvino.engine import open_parts
from trimodal.speech.engines.protocol import SpeechEngine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Recognition, Window, batches, likely
from trimodal.speech.whisper.artefact import SpeechShapes, open_artefact, read_tokens, unopened
from trimodal.speech.whisper.features import HOP, log_mel_batch, smallest_context
from trimodal.speech.whisper.tokens import WhisperTokens
from trimodal.speech.whisper.weights import WEIGHTS
from trimodal.speech.whisper.word_timestamps import compression_ratio, most_tokens, timed_words, token_starts

# Drawn above temperature 0, of which the likeliest is taken: faster-whisper's best_of. CTranslate2 has one
# generator a thread, which cannot be seeded again: a draw depends on all before it.
DRAWS = 5
# Precision of the artefact → how CTranslate2 computes with it on (processor, GPU).
COMPUTE_TYPES = {
    "int8": ("int8", "int8_float16"),
    "int8_float16": ("int8", "int8_float16"),
    "float16": ("float32", "float16"),
    "float32": ("float32", "float32"),
}
# What CTranslate2 says where it is the GPU, its driver or its libraries.
_OF_THE_GPU = re.compile(
    r"CUDA (failed|support)|cu(BLAS|DNN) failed|libcu\w+\.so|compute type, but the target device"
)
_NOTHING_IS_MISSING = re.compile(r"out of memory|ALLOC_FAILED|compute type")
# What the wheel of CTranslate2 looks up by name on a GPU: it is built for CUDA 12, whatever the driver has.
CUBLAS = ("libcublasLt.so.12", "libcublas.so.12")


@dataclass(slots=True)
class _Row:
    """A window on its way through a batch; `at` is its row in the encoded batch."""

    window: Window
    at: int = 0
    language: str = ""
    language_probability: float = 1.0
    language_probabilities: tuple[tuple[str, float], ...] = ()
    prompt: list[int] = field(default_factory=list)
    prefix: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    no_speech: float = 0.0
    log_probability: float = 0.0
    looped: bool = False
    words: tuple[Word, ...] = ()

    @property
    def samples(self) -> int:
        return len(self.window.samples)

    @property
    def most_tokens(self) -> int:
        return most_tokens(self.samples / SAMPLE_RATE, self.written)

    @property
    def written(self) -> str:
        """The language of its text."""
        return self.window.written_in(self.language)

    @property
    def frames(self) -> int:
        """Feature frames that are not padding; the aligner takes two as one step."""
        return max(2, self.samples // HOP)


class CTranslate2Whisper:
    """One model and its vocabulary. Calls may come from several threads; the model runs one at a time."""

    def __init__(
        self,
        model: Any,
        tokens: WhisperTokens,
        shapes: SpeechShapes,
        *,
        encoder: Encoder | None,
        decoder: SpeechEngine | None,
        beam_size: int,
        max_batch: int,
    ) -> None:
        """`encoder`: in place of the model's own; `decoder`: of windows of which some text is known."""
        self._model = model
        self._encoder = encoder
        self._decoder = decoder
        self._tokens = tokens
        self._shapes = shapes
        self._beam_size = beam_size
        self._max_batch = max_batch
        # -1 stands for those that the checkpoint's own configuration names.
        self._suppressed = [-1, *tokens.never_made()]
        self.contexts_s = shapes.contexts_s
        self.languages = tuple(tokens.languages) or ("en",)

    def recognise(self, windows: Sequence[Window], temperature: float = 0.0) -> list[Recognition]:
        """What is heard in each window, in order; above temperature 0 the likeliest of `DRAWS`."""
        if self._decoder is None or temperature:
            return self._recognise(windows, temperature)
        known = [bool(window.prefix or window.draft) for window in windows]
        by_graphs = iter(
            self._decoder.recognise([one for one, has in zip(windows, known, strict=True) if has])
        )
        other = iter(self._recognise([one for one, has in zip(windows, known, strict=True) if not has], 0.0))
        return [next(by_graphs if has else other) for has in known]

    def _recognise(self, windows: Sequence[Window], temperature: float) -> list[Recognition]:
        rows = [_Row(window) for window in windows]
        for batch in batches(
            rows, lambda row: smallest_context(self.contexts_s, row.samples), self._max_batch
        ):
            self._run(batch, temperature)
        return [
            Recognition(
                words=row.words,
                language=row.language,
                no_speech_probability=row.no_speech,
                average_log_probability=row.log_probability,
                compression_ratio=compression_ratio("".join(word.text for word in row.words)),
                temperature=temperature,
                language_probability=row.language_probability,
                language_probabilities=row.language_probabilities,
            )
            for row in rows
        ]

    def encode(self, features: Any) -> Any:
        """A StorageView [batch, frames / 2, width] of features float32[batch, mel, frames]."""
        if self._encoder:
            return _storage(self._encoder.encode(features))
        return self._model.encode(_storage(features))

    def close(self) -> None:
        """Frees the weights."""
        self._model.unload_model()
        if self._decoder:
            self._decoder.close()

    def _run(self, rows: list[_Row], temperature: float) -> None:
        """Everything for windows of one context, at most `max_batch`."""
        context_s = smallest_context(self.contexts_s, max(row.samples for row in rows))
        features = log_mel_batch(
            [row.window.samples for row in rows], context_s, self._shapes.mel_bins, self._shapes.padding
        )
        encoded = self.encode(features)
        for at, row in enumerate(rows):
            row.at = at
        self._choose_languages(encoded, rows)
        room = self._shapes.positions // 2 - 1
        for row in rows:
            row.prompt = self._tokens.prompt(row.language, row.window.prompt, room, row.window.translate)
            row.prefix = self._tokens.encode(row.window.prefix)[: row.most_tokens]
        # A search is bounded by its language, below.
        for group in batches(rows, lambda row: (len(row.prompt), most_tokens(context_s, row.written))):
            self._generate(_rows_of(encoded, group), group, context_s, temperature)
        written = [row for row in rows if row.tokens]
        for group in batches(written, lambda row: (row.language, row.window.translate)):
            self._align(encoded, group)

    def _choose_languages(self, encoded: Any, rows: Iterable[_Row]) -> None:
        for row in rows:
            row.language = row.window.language or (self.languages[0] if len(self.languages) == 1 else "")
        unknown = [row for row in rows if not row.language]
        detected = self._model.detect_language(_rows_of(encoded, unknown)) if unknown else []
        for row, ranked in zip(unknown, detected, strict=True):
            codes = ((token.strip("<|>"), chance) for token, chance in ranked)
            known = [(code, chance) for code, chance in codes if code in self._tokens.languages]
            row.language, row.language_probability = known[0]
            row.language_probabilities = likely(known)

    def _generate(self, encoded: Any, rows: list[_Row], context_s: float, temperature: float) -> None:
        """Tokens and figures of windows whose prompts have one length, in languages of one bound."""
        given = len(rows[0].prompt)
        beams = 1 if temperature else self._beam_size
        drawn = {"num_hypotheses": DRAWS, "sampling_topk": 0, "sampling_temperature": temperature}
        # What a search chooses depends on its bound: the context's. Greedy decoding only ends there.
        longest = most_tokens(context_s, rows[0].written)
        bound = max(row.most_tokens for row in rows) if beams == 1 else longest
        bound = min(bound, self._shapes.positions // 2)
        results = self._model.generate(
            encoded,
            [row.prompt + row.prefix for row in rows],
            beam_size=beams,
            **(drawn if temperature else {}),
            # It makes at most half of max_length, and at most max_length less the prompt.
            max_length=min(max(2 * bound, bound + given), self._shapes.positions),
            suppress_tokens=self._suppressed,
            return_scores=True,
            return_no_speech_prob=True,
        )
        for row, result in zip(rows, results, strict=True):
            made = result.sequences_ids[0]
            # A mean over the tokens (of none: not a number); <|endoftext|> counts as one more.
            # What was forced counts as certain.
            chosen = max(len(made) - len(row.prefix), 0) + 1
            row.log_probability = result.scores[0] * len(made) / chosen if made else 0.0
            row.no_speech = min(max(result.no_speech_prob, 0.0), 1.0)
            # The bound of the run is that of its longest window: cut at the window's own.
            row.looped = len(made) >= row.most_tokens
            row.tokens = self._tokens.text_only(made[: row.most_tokens])

    def _align(self, encoded: Any, rows: list[_Row]) -> None:
        """Words of windows of one language and task, by dynamic time warping over cross-attention."""
        aligned = list(rows)
        tokens, frames = [row.tokens for row in rows], [row.frames for row in rows]
        if len(set(frames)) == 1 and len(set(map(len, tokens))) > 1:
            # Windows of one length are aligned without a mask, and then the others' longer texts would
            # count: one more row, a little shorter, brings the mask. Its result is thrown away.
            aligned.append(rows[0])
            tokens.append(tokens[0][:1])
            frames.append(max(2, frames[0] - 2))
        start = self._tokens.start_sequence(rows[0].language, rows[0].window.translate)
        results = self._model.align(_rows_of(encoded, aligned), start, tokens, frames)
        for row, result in zip(rows, results, strict=False):
            texts, times = [pair[0] for pair in result.alignments], [pair[1] for pair in result.alignments]
            row.words = timed_words(
                self._tokens.pieces(row.tokens, row.written),
                token_starts(texts, times, len(row.tokens)),
                result.text_token_probs,
                row.samples,
                row.tokens,
            )
            if row.looped:  # The score counts what was cut off, which depends on the neighbours' bounds.
                likely = np.maximum(result.text_token_probs, np.finfo(np.float32).tiny)
                row.log_probability = float(np.log(likely).mean())


def _rows_of(encoded: Any, rows: Sequence[_Row]) -> Any:
    """The rows of an encoded batch; itself, without a copy, if they are all of it."""
    if [row.at for row in rows] == list(range(encoded.shape[0])):
        return encoded
    import ctranslate2

    host = encoded.to_device(ctranslate2.Device.cpu)
    return _storage(np.asarray(host)[[row.at for row in rows]])


def _states(model: Any, features: Any) -> Any:
    """What the model's own encoder makes of features, as float32[batch, frames / 2, width]."""
    return np.array(model.encode(_storage(features)), np.float32)


def _storage(array: Any) -> Any:
    import ctranslate2

    return ctranslate2.StorageView.from_array(np.ascontiguousarray(array))


def compute_type(directory: Path, manifest: Manifest, device: str) -> str:
    """How the artefact is computed with on `device`. Raises ArtefactError: its precision is not known."""
    if manifest.precision not in COMPUTE_TYPES:
        raise ArtefactError(
            f"{directory} has precision {manifest.precision} (known: {', '.join(COMPUTE_TYPES)})"
        )
    return COMPUTE_TYPES[manifest.precision][device == "cuda"]


def open_model(directory: Path, manifest: Manifest, settings: RecogniseSettings) -> Any:
    """A `ctranslate2.models.Whisper`.

    Raises ArtefactError: refused, or of unknown precision; ServerError: the GPU cannot be used.
    """
    computed = compute_type(directory, manifest, settings.device)
    # Triton's own threads, other engines and clients share these cores: a thread that waits spins for a
    # fraction of a millisecond, which makes a run some per cent quicker, and then sleeps. OpenMP reads
    # it when CTranslate2 is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "100000")
    if settings.device == "cuda":
        preload_cublas()
    import ctranslate2

    try:
        with _blaming_the_gpu(settings.device):
            return ctranslate2.models.Whisper(
                str(directory),
                device=settings.device,
                compute_type=computed,
                intra_threads=settings.threads,
                inter_threads=1,
            )
    except ServerError:
        raise
    except Exception as error:  # It raises RuntimeError, ValueError and others.
        raise unopened(directory, manifest, error) from None


@contextlib.contextmanager
def _blaming_the_gpu(device: str) -> Iterator[None]:
    """Raises ServerError for what CTranslate2 raises where it is the GPU, its driver or its libraries."""
    try:
        yield
    except Exception as error:
        if device != "cuda" or not _OF_THE_GPU.search(str(error)):
            raise
        import ctranslate2

        told = f"CTranslate2 {ctranslate2.__version__} cannot use the GPU ({first_line(error)})"
        if not _NOTHING_IS_MISSING.search(str(error)):
            told += ": `trimodal doctor --profile cuda` tells what is missing"
        raise ServerError(told) from None


def preload_cublas() -> None:
    """Loads cuBLAS 12 out of the wheel nvidia-cublas-cu12, where it is installed.

    The loader does not look into site-packages; a library that is already in the process it finds by name.
    Without the wheel the system's is left to be found, and CTranslate2 itself says what it misses.
    """
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for name in CUBLAS:
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(Path(place) / "cublas" / "lib" / name), mode=ctypes.RTLD_GLOBAL)


def open_engine(directory: Path, settings: RecogniseSettings) -> CTranslate2Whisper:
    """The model in `directory` with its tokenizer.

    Raises ArtefactError: refused, or unfit for `settings`; ServerError: the GPU cannot be used;
    SettingsError: settings that do not go together.
    """
    if (directory / WEIGHTS).is_file() and not (directory / MANIFEST).is_file():
        own = Path(by_own_names(str(directory)))
        raise ArtefactError(
            f"{own} holds a Whisper of CTranslate2 without a manifest: take it as it is with: "
            f"trimodal build speech {shlex.quote(str(own))} --name {shlex.quote(own.name)}"
        )
    manifest, shapes = open_artefact(directory, settings, runtime="ctranslate2")
    model = open_model(directory, manifest, settings)
    tokens = read_tokens(directory, manifest, shapes, multilingual=model.is_multilingual)
    encoder, decoder = open_parts(
        directory, manifest, settings, tokens, shapes, lambda features: _states(model, features)
    )
    engine = CTranslate2Whisper(
        model,
        tokens,
        shapes,
        encoder=encoder,
        decoder=decoder,
        beam_size=settings.beam_size,
        max_batch=settings.max_batch_windows,
    )
    if settings.device == "cuda":  # cuBLAS is looked up by the first run
        with _blaming_the_gpu(settings.device):
            engine.recognise([Window(np.zeros(SAMPLE_RATE, np.float32), engine.languages[0])])
    give_back_freed()
    return engine
