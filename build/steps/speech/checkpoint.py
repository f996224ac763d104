"""Reads a Hugging Face checkpoint of a Whisper for the speech builds.

Loads the torch model in FP32; says its contexts, languages and alignment heads; copies the files that serving
reads beside the weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from steps.llm.checkpoint import (
    TOKENIZER_FILES,
    check_weights,
    copy_files,
    quiet,
    read_config,
    refuse_missing,
    unreadable,
)  # fmt: skip

from trimodal.audio.values import SAMPLE_RATE
from trimodal.build_support import console
from trimodal.errors import ArtefactError
from trimodal.speech.values import MAX_WINDOW_S
from trimodal.speech.whisper.features import FRAMES_PER_S, Padding

if TYPE_CHECKING:
    from steps.speech.network import Whisper
    from transformers import WhisperForConditionalGeneration

PREPROCESSOR = "preprocessor_config.json"
GENERATION = "generation_config.json"
FRAMES_PER_POSITION = 2


def load(directory: Path, source: str, padding: Padding = "silence") -> Checkpoint:
    """The checkpoint in `directory`, which the user named `source`.

    Raises:
        ArtefactError: not a Whisper, or transformers cannot load it.
    """
    kind = read_config(directory, source).get("model_type") or "none named"
    if kind != "whisper":
        raise ArtefactError(f"{source} is not a Whisper (model_type: {kind})")
    check_weights(directory, source)
    quiet()
    return Checkpoint(directory, padding)


def parse_contexts(text: str, longest: float) -> list[float]:
    """Encoder lengths in seconds of `--contexts 5,10,30`, ascending.

    Raises:
        ArtefactError: no such list, or one is longer than `longest`, or no whole number of positions.
    """
    try:
        contexts = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise ArtefactError(f"--contexts {text!r} is not a list of seconds such as 5,10,30") from None
    step = FRAMES_PER_POSITION / FRAMES_PER_S
    for context in contexts:
        if not 0 < context <= longest or abs(context / step - round(context / step)) > 1e-6:
            raise ArtefactError(
                f"a context of {context:g} s does not fit: at most {longest:g} s, in steps of {step:g} s"
            )
    return contexts


def parse_padding(text: str) -> Padding:
    """What `--padding` names. Raises: ArtefactError: none that is known."""
    if text not in get_args(Padding):
        raise ArtefactError(f"--padding {text!r} is not known: it is one of {', '.join(get_args(Padding))}")
    return cast(Padding, text)


class Checkpoint:
    """The torch model and tokenizer of one directory.

    Attributes:
        model: transformers' WhisperForConditionalGeneration in FP32, in evaluation mode.
        config: its configuration.
        padding: what follows audio that is shorter than its context.
        multilingual: whether a language and a task stand in the prompt.
        languages: ISO 639-1 codes; ("en",) of an English-only Whisper.
        alignment_heads: [layer, head] pairs of the decoder whose attention follows the audio.
        alignment_heads_known: whether the checkpoint names them; else all heads of its later half serve.
    """

    def __init__(self, directory: Path, padding: Padding) -> None:
        import torch
        from transformers import AutoTokenizer, WhisperForConditionalGeneration

        self.directory, self.padding = directory, padding
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
            # With output_loading_info it returns a pair, which transformers does not declare.
            loaded: Any = WhisperForConditionalGeneration.from_pretrained(
                directory, dtype=torch.float32, local_files_only=True, output_loading_info=True
            )
            loading: dict[str, Any]
            self.model: WhisperForConditionalGeneration
            self.model, loading = loaded
        except Exception as error:  # Damaged weights, a missing tokenizer, …
            raise unreadable(directory, error) from None
        refuse_missing(directory.name, loading, ["proj_out.weight"])  # Tied to the embeddings.
        if not self.tokenizer.is_fast:
            raise ArtefactError(f"{directory.name} has no fast tokenizer, and serving reads tokenizer.json")
        self.model.eval()
        self.config = self.model.config
        generation = self.model.generation_config
        multilingual = getattr(generation, "is_multilingual", None)
        if multilingual is None:  # A fine-tune may have lost the flag; English-only vocabularies lack "".
            multilingual = "" in self.tokenizer.get_vocab()
        self.multilingual = bool(multilingual)
        named = getattr(generation, "lang_to_id", None) or {}
        by_id = sorted(
            named, key=lambda token: int(named[token])
        )  # The file has them by name; "en" is first.
        self.languages = tuple(token.strip("<|>") for token in by_id) if self.multilingual else ("en",)
        heads = getattr(generation, "alignment_heads", None)
        self.alignment_heads_known = bool(heads)
        self.alignment_heads = [list(map(int, pair)) for pair in heads or self._later_half()]
        if self.multilingual and not self.languages:
            raise ArtefactError(f"{directory.name}: {GENERATION} names no languages (lang_to_id)")

    def _later_half(self) -> list[list[int]]:
        layers, heads = self.config.decoder_layers, self.config.decoder_attention_heads
        return [[layer, head] for layer in range(layers // 2, layers) for head in range(heads)]

    @property
    def random_weights(self) -> bool:
        """Made by random_checkpoint.py: its tokens hang on rounding, so agreement says little."""
        return bool(getattr(self.config, "random_weights", False))

    @property
    def longest_s(self) -> float:
        """The encoder's own length, which it was trained with."""
        return float(min(self.config.max_source_positions * FRAMES_PER_POSITION / FRAMES_PER_S, MAX_WINDOW_S))

    def shapes(self, contexts_s: list[float]) -> dict[str, Any]:
        """What a serving engine relies on, for the manifest."""
        return {
            "contexts_s": contexts_s,
            "languages": list(self.languages),
            "mel_bins": self.config.num_mel_bins,
            "sample_rate": SAMPLE_RATE,
            "padding": self.padding,
            "positions": self.config.max_target_positions,
        }

    def prompt(self, language: str = "") -> list[int]:
        """<|startoftranscript|>, language ("": the first) and task of a multilingual model, <|notimestamps|>.

        Raises:
            ArtefactError: the model does not know the language.
        """
        if language and language not in self.languages:
            raise ArtefactError(f"{self.directory.name} does not know the language {language!r}")
        names = ["<|startoftranscript|>"]
        if self.multilingual:
            names += [f"<|{language or self.languages[0]}|>", "<|transcribe|>"]
        return [self.token_id(name) for name in (*names, "<|notimestamps|>")]

    def token_id(self, name: str) -> int:
        """Of a special token. Raises: ArtefactError: the tokenizer has no such token."""
        token = self.tokenizer.get_vocab().get(name)
        if token is None:
            raise ArtefactError(f"{self.directory.name}: its tokenizer has no token {name}")
        return int(token)

    def suppressed(self) -> tuple[list[int], list[int]]:
        """Ids that are never written, and those that are not written first."""
        generation = self.model.generation_config
        return list(generation.suppress_tokens or []), list(generation.begin_suppress_tokens or [])

    def network(self) -> Whisper:
        """The model as modules to trace, of the same weights. Raises: ArtefactError: another network."""
        from steps.speech.network import Whisper

        if (activation := self.config.activation_function) != "gelu":
            raise ArtefactError(f"{self.directory.name}: activation_function is {activation}, not gelu")
        return Whisper(self.model.model, self.alignment_heads)

    def described(self) -> dict[str, Any]:
        """What a manifest says of the checkpoint itself."""
        heads = "named by the checkpoint" if self.alignment_heads_known else "all of the decoder's later half"
        return {
            "alignment_heads": heads,
            "multilingual": self.multilingual,
            "random_weights": self.random_weights,
        }

    def tell(self) -> None:
        """Prints what its user should know."""
        if not self.alignment_heads_known:
            console.print(
                f"note: {GENERATION} names no alignment_heads, so word times come from all heads of the "
                "decoder's later half; copy the base model's alignment_heads there for better ones"
            )
        if self.random_weights:
            console.print(
                "note: random weights: the encoder's error is judged, the agreement of tokens only told"
            )

    def write_files(self, directory: Path) -> None:
        """Copies tokenizer, generation config and preprocessor config, or writes what is only implied."""
        names = (*TOKENIZER_FILES, PREPROCESSOR, GENERATION)
        copy_files(self.directory, self.tokenizer, names, directory)
        if not (directory / PREPROCESSOR).is_file():
            from transformers import WhisperFeatureExtractor

            WhisperFeatureExtractor(feature_size=self.config.num_mel_bins).save_pretrained(directory)
        if not (directory / GENERATION).is_file():
            self.model.generation_config.save_pretrained(directory)
