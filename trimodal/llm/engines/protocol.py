"""Declares the Protocol of text generators, its values, and the table of openers.

An engine takes and gives token ids. It owns the model, the KV blocks and the batch, and is called from one
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal, Protocol, cast

from trimodal.llm.settings import LlmSettings

KV_BLOCK_TOKENS = 32
"""Tokens of one KV block in OpenVINO GenAI on the CPU and in TensorRT-LLM; the fake engine keeps to it."""
MAX_TOP_LOGPROBS = 20
"""As many as OpenAI's API has, and vLLM unless it is told otherwise."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 filter nothing.

    Attributes:
        presence_penalty, frequency_penalty: taken off the logit of a token that the answer has, once or for
            each time; 0 is none.
        repetition_penalty: divides the logits of tokens that prompt or answer have; 1 is none.
        grammar: what the answer must follow, in xgrammar's EBNF; "": nothing.
        logprobs: tells the log probability of each token, and of so many of the most likely in its place;
            None: no log probabilities.
        prompt_logprobs: the same of the prompt's tokens, each after those before it.
        min_tokens: so many are made before the end-of-sequence token or one of `stop_token_ids` may come.
        ignore_eos: the end-of-sequence token ends nothing.
        stop_token_ids: each ends the answer as the end-of-sequence token does, and is its last token.
        logit_bias: token id → what is added to its logit.
        lora_name: the adapter whose weights are added to the model's; "": none.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    grammar: str = ""
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    lora_name: str = ""

    @property
    def penalties(self) -> tuple[float, float, float]:
        return self.presence_penalty, self.frequency_penalty, self.repetition_penalty


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in a directory. `id` is new whenever one is loaded, be it under an old name."""

    name: str
    id: int
    path: str


CallName = Literal["load_lora_adapter", "unload_lora_adapter", "sleep", "wake_up"]


@dataclass(frozen=True)
class EngineCall:
    """What an operator has the engine do; an Output with its `id` ends it: "stop" or "error"."""

    id: int
    name: CallName
    adapter: Adapter | None = None
    level: int = 1  # of sleep; 1: the weights stay in host memory, 2: they are dropped


@dataclass(frozen=True)
class EngineRequest:
    """One sequence to continue. `id` is unique among the sequences that the engine holds.

    KV blocks are found only by prompts of the same `cache_salt`: what one tenant sent tells no other. Its
    first `public_tokens`, whole blocks and fewer than it has, may be found by everybody.
    """

    id: int
    prompt_ids: list[int]
    sampling: Sampling
    cache_salt: str = ""
    adapter: Adapter | None = None
    public_tokens: int = 0


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of probabilities at one place of an answer, as the model gave them.

    That is before temperature, penalties and filters.

    Attributes:
        chosen: of the token that is there.
        top: the most likely tokens and theirs, best first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Output:
    """What one step made of one sequence: new tokens only; `finish_reason` is set on its last output.

    `finish_reason` is "stop" (end-of-sequence token or one of `stop_token_ids`), "length", or, with a
    sentence in `error`, "error" or "refused": what was asked for cannot be run. `cached_tokens` is how many
    prompt tokens came out of the prefix cache. `logprobs` has one entry for each token, if asked for, and so
    has `prompt_logprobs` on the first output that has tokens; the prompt's first token has none.
    """

    id: int
    token_ids: list[int]
    finish_reason: str | None = None
    cached_tokens: int = 0
    error: str = ""
    logprobs: tuple[Logprobs, ...] = ()
    prompt_logprobs: tuple[Logprobs | None, ...] = ()


@dataclass(frozen=True)
class EngineStats:
    """A snapshot between two steps; the totals only grow."""

    kv_usage: float = 0.0
    """Share of the KV blocks held by running sequences, 0 to 1; what only the prefix cache keeps is free."""
    decode_slots: int = 0
    """Sum over steps of sequences that decoded: decoded tokens / decode_slots is tokens per step."""
    decoded_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    speculating: bool = False
    cache_resets: int = 0
    """How often it has emptied its prefix cache without being told to."""


@dataclass(frozen=True)
class EngineInfo:
    """What an opened engine is and can hold.

    `max_num_batched_tokens` 0: as set. `unsupported`: fields of `Sampling` that it does not honour, and why.
    `calls`: an operator may have it do these.
    """

    name: str
    num_kv_blocks: int
    block_tokens: int
    max_num_seqs: int
    max_model_len: int  # longest sequence, prompt and answer together, in tokens
    lookahead: int = 0  # tokens beyond the answer for which a sequence may hold KV blocks (speculation)
    max_top_logprobs: int = 0  # beside the chosen token's: of how many of the most likely it tells them
    max_num_batched_tokens: int = 0  # tokens in a step
    vocab_size: int = 0  # 0: not known
    unsalted: str = ""  # a field of `Sampling` with which a request that has a `cache_salt` cannot run
    shortest_first: bool = False  # prompts share its steps as engines/prefill.py says; else they go in order
    unsupported: Mapping[str, str] = field(default_factory=dict)
    calls: frozenset[CallName] = frozenset()


class Engine(Protocol):
    """A continuous-batching generator owned by one thread."""

    @property
    def info(self) -> EngineInfo: ...

    def add(self, request: EngineRequest) -> None:
        """Takes a sequence in; it runs from the next step on. Raises ValueError for one it cannot run."""

    def cancel(self, id: int) -> None:
        """Drops a sequence and frees its KV blocks; unknown ids are ignored. No output follows."""

    def call(self, call: EngineCall) -> None:
        """Begins one of `info.calls`."""

    def has_work(self) -> bool:
        """Whether a step would do anything."""

    def step(self) -> list[Output]:
        """Runs one batch step and returns what it produced."""

    def watch(self, descriptor: int) -> None:
        """A step that only waits for outputs ends as soon as this can be read: there is a command."""

    def stats(self) -> EngineStats:
        """The figures as of now."""

    def check(self) -> None:
        """Called about once a second while there is no work. Raises EngineLost when none can be done."""

    def close(self) -> None:
        """Frees the model."""


class EngineLost(Exception):
    """The engine cannot go on, by its own account: its process ends, and a new one is opened."""


# Engine → module, and what opens it there.
ENGINES: dict[str, tuple[str, str]] = {
    "openvino": ("trimodal.llm.engines.openvino.engine", "OpenVinoEngine"),
    "tensorrt_llm_pytorch": ("trimodal.llm.engines.tensorrt_llm.engine", "open_pytorch"),
    "vllm": ("trimodal.llm.engines.vllm", "open_vllm"),
    "fake": ("trimodal.llm.engines.fake", "FakeEngine"),
}


def open_engine(settings: LlmSettings) -> Engine:
    """The engine that `settings.engine` names; its runtime is imported only here.

    Raises:
        OperatorError: the artefact is missing or unfit, or the runtime is not installed.
    """
    module, name = ENGINES[settings.engine]
    opener = cast(Callable[[LlmSettings], Engine], getattr(import_module(module), name))
    return opener(settings)
