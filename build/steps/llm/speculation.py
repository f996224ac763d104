"""Describes the lookahead decoding that a TensorRT-LLM engine is compiled with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trimodal.errors import ArtefactError
from trimodal.llm.engines.tensorrt_llm.engine import lookahead_tokens

if TYPE_CHECKING:
    from tensorrt_llm.llmapi import LookaheadDecodingConfig

Method = Literal["none", "lookahead"]


@dataclass(frozen=True)
class Lookahead:
    """Its W, N and G."""

    window: int
    ngram: int
    verification: int

    @classmethod
    def parse(cls, text: str) -> Lookahead:
        """Reads "W,N,G". Raises: ArtefactError: it is not of that form, or too small."""
        try:
            window, ngram, verification = (int(part) for part in text.split(","))
        except ValueError:
            raise ArtefactError(f"--lookahead {text}: window,ngram,verification is needed") from None
        if min(window, verification) < 1 or ngram < 2:
            raise ArtefactError("--lookahead W,N,G needs a window and verification set of 1 and n-grams of 2")
        return cls(window, ngram, verification)

    @property
    def max_draft_len(self) -> int:
        """Tokens that the engine must be able to verify in one step beyond the next."""
        return lookahead_tokens(self.window, self.ngram, self.verification)

    def figures(self) -> dict[str, Any]:
        """For the manifest: who opens the engine has to name the same method and sizes."""
        sizes = [self.window, self.ngram, self.verification]
        return {"method": "lookahead", "max_draft_len": self.max_draft_len, "lookahead": sizes}

    def config(self) -> LookaheadDecodingConfig:
        """TensorRT-LLM's own; imports it."""
        from tensorrt_llm.llmapi import LookaheadDecodingConfig

        return LookaheadDecodingConfig(
            max_window_size=self.window,
            max_ngram_size=self.ngram,
            max_verification_set_size=self.verification,
        )
