"""Checks the speculative decoding of a TensorRT-LLM engine: lookahead, Medusa or EAGLE, in its own terms.

Of the methods of TensorRT-LLM 1.2 engines can do these three; n-grams and draft models are of its
PyTorch runtime. `draft` is a checkpoint of trained heads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimodal.errors import ArtefactError
from trimodal.llm.engines.tensorrt_llm.speculation import lookahead_tokens
from trimodal.plan.memory import Precision

if TYPE_CHECKING:
    from tensorrt_llm.llmapi.llm_args import SpeculativeConfig

EAGLE_BATCH, EAGLE_DRAFT = 512, 256  # Limits of TensorRT-LLM's builder.
DYNAMIC_TOPK = 10


Method = Literal["none", "lookahead", "medusa", "eagle"]


@dataclass(frozen=True)
class Speculation:
    """How tokens are guessed ahead.

    Attributes:
        window, ngram, verification: lookahead's W, N and G.
        draft: checkpoint directory of the Medusa heads or the EAGLE layer.
        draft_len: most tokens of a guess (Medusa, EAGLE).
        heads: Medusa heads, or depth of EAGLE's tree.
        choices: tree of guesses, a path of ranks each; EAGLE grows one by itself without.
    """

    method: Method = "none"
    window: int = 4
    ngram: int = 3
    verification: int = 4
    draft: Path | None = None
    draft_len: int = 63
    heads: int = 4
    choices: list[list[int]] = field(default_factory=list)

    @property
    def max_draft_len(self) -> int:
        """Tokens that the engine must be able to verify in one step beyond the next."""
        if self.method == "lookahead":
            return lookahead_tokens(self.window, self.ngram, self.verification)
        return 0 if self.method == "none" else self.draft_len

    @property
    def depth(self) -> int:
        """Medusa heads, or depth of EAGLE's tree.

        Of a tree that is given it must be the tree's own: else TensorRT-LLM takes it for the most tokens of
        a guess as well (EagleDecodingConfig in llm_args.py), and a wide tree does not fit the engine.
        """
        if self.method == "eagle" and self.choices:
            return max(len(path) for path in self.choices)
        return self.heads

    def figures(self) -> dict[str, Any]:
        """For the manifest: who opens the engine has to name the same method and sizes."""
        common = {"method": self.method, "max_draft_len": self.max_draft_len}
        if self.method == "none":
            return {"method": "none"}
        if self.method == "lookahead":
            return common | {"lookahead": [self.window, self.ngram, self.verification]}
        draft = self.draft.name if self.draft else ""
        return common | {"draft": draft, "heads": self.depth, "choices": self.choices}

    def config(self) -> SpeculativeConfig:
        """TensorRT-LLM's own; imports it."""
        if self.method == "none":
            return None
        from tensorrt_llm.llmapi import EagleDecodingConfig, LookaheadDecodingConfig, MedusaDecodingConfig

        if self.method == "lookahead":
            return LookaheadDecodingConfig(
                max_window_size=self.window,
                max_ngram_size=self.ngram,
                max_verification_set_size=self.verification,
            )
        if self.method == "medusa":
            return MedusaDecodingConfig(
                speculative_model=self.draft,
                max_draft_len=self.draft_len,
                num_medusa_heads=self.heads,
                medusa_choices=self.choices,
            )
        return EagleDecodingConfig(
            speculative_model=self.draft,
            max_draft_len=self.draft_len,
            num_eagle_layers=self.depth,
            max_non_leaves_per_layer=DYNAMIC_TOPK,
            eagle_choices=self.choices or None,
            use_dynamic_tree=not self.choices,
            dynamic_tree_max_topK=None if self.choices else DYNAMIC_TOPK,
        )


def check_speculation(plan: Speculation, precision: Precision, batch: int, pp: int) -> None:
    """Raises: ArtefactError for sizes and combinations that TensorRT-LLM refuses late or not at all."""
    if plan.method in ("none", "lookahead"):
        if plan.draft:
            raise ArtefactError(f"--draft is of medusa and eagle: --speculation {plan.method} has none")
        if plan.method == "lookahead" and (min(plan.window, plan.verification) < 1 or plan.ngram < 2):
            raise ArtefactError("--lookahead W,N,G needs a window and verification set of 1 and n-grams of 2")
        return
    name = plan.method
    if plan.draft is None or not (plan.draft / "config.json").is_file():
        raise ArtefactError(f"--speculation {name} needs --draft: the directory of its heads' checkpoint")
    if precision not in (Precision.fp16, Precision.bf16):
        raise ArtefactError(
            f"--speculation {name} is built from a 16-bit checkpoint: --precision {precision.value}"
        )
    if pp > 1:
        raise ArtefactError(f"--speculation {name} works without pipeline stages: --pp {pp}")
    if plan.method == "medusa" and not plan.choices:
        raise ArtefactError("--speculation medusa needs --draft-choices: the tree of guesses of its heads")
    if plan.method == "eagle" and (batch > EAGLE_BATCH or plan.draft_len > EAGLE_DRAFT):
        raise ArtefactError(
            f"--speculation eagle takes at most --max-batch-size {EAGLE_BATCH} and --draft-len {EAGLE_DRAFT}"
        )
    deepest = max((len(path) for path in plan.choices), default=0)
    if deepest > plan.heads or len(plan.choices) > plan.draft_len:
        raise ArtefactError(
            f"--draft-choices has {len(plan.choices)} paths of up to {deepest} tokens: more than "
            f"--draft-len {plan.draft_len} or --draft-heads {plan.heads}"
        )


def read_choices(path: Path) -> list[list[int]]:
    """A JSON list of paths, each the ranks of its tokens, as [[0], [0, 0], [1]].

    Raises:
        ArtefactError: something else, or a path whose beginning is not a path of the tree.
    """
    try:
        choices = json.loads(path.read_text(encoding="utf-8"))
        paths = [[int(rank) for rank in each] for each in choices]
    except (OSError, ValueError, TypeError):
        raise ArtefactError(f"--draft-choices {path} is not a JSON list of lists of ranks") from None
    known = {tuple(each) for each in paths}
    for each in known:
        if not each or min(each) < 0 or (len(each) > 1 and each[:-1] not in known):
            raise ArtefactError(f"--draft-choices {path}: {list(each)} is no path that the tree leads to")
    return paths


def parse_lookahead(text: str) -> tuple[int, int, int]:
    """Reads "W,N,G" as three numbers. Raises: ArtefactError: it is not of that form."""
    try:
        window, ngram, verification = (int(part) for part in text.split(","))
    except ValueError:
        raise ArtefactError(f"--lookahead {text}: window,ngram,verification is needed, as 4,3,4") from None
    return window, ngram, verification
