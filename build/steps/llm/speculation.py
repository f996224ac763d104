"""Lookahead decoding of a TensorRT-LLM engine: n-grams of the answer so far guess its next tokens.

Of the methods of TensorRT-LLM 1.2's compiled engines it is the one that needs no heads; n-grams of the prompt
and EAGLE-3 are of its PyTorch runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trimodal.errors import ArtefactError
from trimodal.llm.engines.tensorrt_llm.engine import lookahead_tokens

if TYPE_CHECKING:
    from tensorrt_llm.llmapi import LookaheadDecodingConfig

Method = Literal["none", "lookahead"]


@dataclass(frozen=True)
class Speculation:
    """How tokens are guessed ahead: lookahead's W, N and G."""

    method: Method = "none"
    window: int = 4
    ngram: int = 3
    verification: int = 4

    def figures(self) -> dict[str, Any]:
        """For the manifest: who opens the engine has to name the same method and sizes."""
        if self.method == "none":
            return {"method": "none"}
        sizes = [self.window, self.ngram, self.verification]
        return {"method": self.method, "max_draft_len": lookahead_tokens(*sizes), "lookahead": sizes}

    def config(self) -> LookaheadDecodingConfig | None:
        """TensorRT-LLM's own; imports it."""
        if self.method == "none":
            return None
        from tensorrt_llm.llmapi import LookaheadDecodingConfig

        return LookaheadDecodingConfig(
            max_window_size=self.window,
            max_ngram_size=self.ngram,
            max_verification_set_size=self.verification,
        )


def parse_lookahead(text: str) -> tuple[int, int, int]:
    """Reads "W,N,G" as three numbers. Raises: ArtefactError: it is not of that form, or too small."""
    try:
        window, ngram, verification = (int(part) for part in text.split(","))
    except ValueError:
        raise ArtefactError(f"--lookahead {text}: window,ngram,verification is needed, as 4,3,4") from None
    if min(window, verification) < 1 or ngram < 2:
        raise ArtefactError("--lookahead W,N,G needs a window and verification set of 1 and n-grams of 2")
    return window, ngram, verification
