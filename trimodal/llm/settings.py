"""The knobs of the llm model: the `parameters` at the head of its config.pbtxt, checked once at load."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from trimodal.settings import Settings

GPU_ENGINES = ("tensorrt_llm", "tensorrt_llm_pytorch", "vllm")
"""They run on NVIDIA GPUs, batch by themselves, and have processes of their own beside the engine's."""

_CPU = ("openvino",)
_COMPILED = ("tensorrt_llm",)
_FROM_CHECKPOINT = ("tensorrt_llm_pytorch", "vllm")
_TENSORRT_LLM = ("tensorrt_llm", "tensorrt_llm_pytorch")

# Parameter → engines that read it. What is not listed, all of them do. The fake engine stands in for any.
_READ_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "threads", "kv_cache_precision", "numerics", "speculation", "draft_artefact",
            "num_assistant_tokens", "max_ngram_size",
        ),
        _CPU,
    ),
    **dict.fromkeys(
        ("max_model_len", "enable_chunked_prefill", "precision", "checkpoint_sha256", "stall_timeout_s"),
        GPU_ENGINES,
    ),
    **dict.fromkeys(
        ("kv_cache_free_gpu_memory_fraction", "host_cache_bytes", "capacity_scheduler_policy"), _TENSORRT_LLM
    ),
    **dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size", "kv_cache_dtype"), _FROM_CHECKPOINT),
    "gpu_memory_utilization": ("vllm",),
    "lookahead": _COMPILED,
}  # fmt: skip

# On a GPU the KV pool is what memory allows, and a step holds thousands of tokens.
_GPU_DEFAULTS: dict[str, Any] = {"num_kv_blocks": 0, "max_num_seqs": 64, "max_num_batched_tokens": 8192}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "tensorrt_llm": {"artefact": "tensorrt-llm-fp16", **_GPU_DEFAULTS},
    "tensorrt_llm_pytorch": {"artefact": "checkpoint", **_GPU_DEFAULTS},
    "vllm": {"artefact": "checkpoint", **_GPU_DEFAULTS},
}


def defaults_of(engine: object) -> dict[str, Any]:
    """The defaults of an engine where they are not those of the settings class."""
    return _DEFAULTS.get(engine, {}) if isinstance(engine, str) else {}


def unknown_to(engine: str, parameters: Iterable[str]) -> str:
    """One sentence for the parameters that `engine` does not read; empty when it reads them all."""
    if engine == "fake":
        return ""
    problems = []
    for name in sorted(parameters):
        readers = _READ_BY.get(name)
        if readers and engine not in readers:
            problems.append(f"'{name}' (read by {' and '.join(readers)})")
    if not problems:
        return ""
    them = "it" if len(problems) == 1 else "them"
    return f"engine '{engine}' does not read {', '.join(problems)}: take {them} out"


CacheMode = Literal["off", "coalesce", "exact", "semantic"]
EngineName = Literal["openvino", "tensorrt_llm", "tensorrt_llm_pytorch", "vllm", "fake"]


class LlmSettings(Settings):
    """All parameters of llm/config.pbtxt. Names follow vLLM, TensorRT-LLM and OpenVINO GenAI."""

    engine: EngineName = "openvino"
    artefact: str = Field("openvino-int8", description="built engine, relative to the version directory")
    python: str = Field("", description="interpreter of the engine's process; empty: this environment's")
    precision: str = Field("", description="refuse an artefact of another precision; empty: any")
    checkpoint_sha256: str = Field("", description="refuse another checkpoint; the hash or its beginning")
    threads: int = Field(0, ge=0, le=1024, description="inference threads; 0 takes one per CPU")

    num_kv_blocks: int = Field(512, ge=0, le=1 << 24, description="KV pool; 0: what the GPU's memory allows")
    kv_cache_precision: Literal["u8", "f16", "f32"] = "u8"
    numerics: Literal["reproducible", "fast"] = Field(
        "reproducible", description="fast: the runtime's choice; a greedy answer may depend on the batch"
    )
    enable_prefix_caching: bool = True
    max_num_seqs: int = Field(16, ge=1, le=4096, description="sequences in one batch")
    max_num_batched_tokens: int = Field(256, ge=1, le=1 << 20, description="tokens in one step")

    max_model_len: int = Field(0, ge=0, le=1 << 24, description="0: as built, or as the checkpoint says")
    enable_chunked_prefill: bool = Field(True, description="long prompts are computed in parts")
    stall_timeout_s: float = Field(
        120, ge=0, description="an engine that makes no token for so long is opened anew; 0: never"
    )
    kv_cache_free_gpu_memory_fraction: float = Field(0.9, gt=0, lt=1, description="of what weights leave")
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1, description="vllm: of the whole memory")
    host_cache_bytes: int = Field(0, ge=0, description="host memory for KV blocks that leave the GPU")
    capacity_scheduler_policy: Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"] = "GUARANTEED_NO_EVICT"
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    tensor_parallel_size: int = Field(1, ge=1, le=64, description="GPUs that share each layer")
    pipeline_parallel_size: int = Field(1, ge=1, le=64, description="GPUs that share the layers")
    lookahead: str = Field(
        "",
        pattern=r"^([1-9]\d{0,3}(,[1-9]\d{0,3}){2})?$",
        description="lookahead decoding: window, n-gram and verification size, as 4,3,4; empty: as built",
    )

    speculation: Literal["none", "draft", "prompt_lookup"] = "none"
    draft_artefact: str = Field("openvino-draft-int8", description="built draft model, as artefact")
    num_assistant_tokens: int = Field(4, ge=1, le=32, description="tokens drafted in a step")
    max_ngram_size: int = Field(3, ge=1, le=16, description="prompt_lookup: longest match")

    apply_chat_template: bool = Field(True, description="text_input becomes one user message")
    default_max_tokens: int = Field(128, ge=1)
    max_prompt_tokens: int = Field(2048, ge=1, description="budget for the prompt, in tokens")
    max_output_tokens: int = Field(1024, ge=1, description="budget for max_tokens")
    max_prompt_bytes: int = Field(262_144, ge=1, description="text_input or messages, before tokenizing")
    max_queue: int = Field(64, ge=0, description="requests that may wait; more get UNAVAILABLE")
    max_stop_strings: int = Field(8, ge=0)

    tiers: str = Field("", description="TOML file beside the config's; empty: one tier without deadlines")
    scheduler: Literal["deadline", "fifo"] = Field("deadline", description="fifo: arrival, no deadlines")
    ageing_s: float = Field(5.0, gt=0, description="each so long a wait raises a priority by one")
    admission_confidence: float = Field(
        0.9, gt=0, lt=1, description="share of the admitted that are to meet their TTFT deadline"
    )

    cache: CacheMode = Field("off", description="each includes the one before: coalesce, exact, semantic")
    cache_store: str = Field("", description="file or URL of the answers; empty: in the user's cache")
    cache_ttl_s: str = Field(
        "default=900 live=300 faq=86400",
        pattern=r"^[a-z0-9_-]{1,32}=[0-9]{1,9}( [a-z0-9_-]{1,32}=[0-9]{1,9})*$",
        description="seconds that answers of a namespace live; the first is that of requests without one",
    )
    cache_max_entries: int = Field(20_000, ge=1, le=10_000_000)
    cache_max_answer_bytes: int = Field(65_536, ge=1)
    cache_budget_ms: float = Field(20, gt=0, le=10_000, description="then a request goes past the store")
    cache_embedding_budget_ms: float = Field(50, gt=0, le=10_000, description="and past the embedding")
    cache_max_false_hit: float = Field(
        0.01, gt=0, lt=1, description="semantic: upper bound of wrong answers among near-identical questions"
    )
    cache_calibration: str = Field(
        "",
        description="file of `bench cache --calibrate`, beside the config's; empty: the package's",
    )
    embedder: str = Field("embedding", description="model of the repository that embeds questions")

    senders: int = Field(2, ge=1, le=16, description="threads that hand responses to Triton")
    cancel_poll_ms: int = Field(50, ge=1, le=1000, description="how often cancellation is looked for")

    fake_step_ms: float = Field(10.0, ge=0, description="fake engine: time of one step")
    fake_prefill_us: float = Field(20.0, ge=0, description="fake engine: time per prompt token")
    fake_answer: str = Field(
        "The quick brown fox jumps over the lazy dog: naïve café, 日本語, 😀. ", min_length=1
    )
    fake_crash_after: int = Field(0, ge=0, description="fake engine: dies after this many steps; 0 never")

    version_directory: Path = Field(Path("."), description="set by the glue, not by operators")

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_engine(cls, values: Any) -> Any:
        return defaults_of(values.get("engine")) | values if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _fits_together(self) -> LlmSettings:
        if problem := unknown_to(self.engine, self.model_fields_set):
            raise ValueError(problem)
        if self.num_kv_blocks < 4 and not (self.num_kv_blocks == 0 and self.engine in GPU_ENGINES):
            raise ValueError(
                f"num_kv_blocks {self.num_kv_blocks} should be greater than or equal to 4 "
                f"(0, as many as fit, with {', '.join(GPU_ENGINES)})"
            )
        if len(self.cache_ttls) < len(self.cache_ttl_s.split()):
            raise ValueError(f"cache_ttl_s {self.cache_ttl_s!r} names a namespace twice")
        if self.default_max_tokens > self.max_output_tokens:
            raise ValueError(
                f"default_max_tokens {self.default_max_tokens} exceeds "
                f"max_output_tokens {self.max_output_tokens}"
            )
        if self.speculation == "prompt_lookup" and self.max_num_batched_tokens < 2:
            raise ValueError("speculation 'prompt_lookup' needs max_num_batched_tokens of at least 2")
        if self.numerics == "fast" and self.kv_cache_precision == "f32":
            raise ValueError(
                "kv_cache_precision 'f32' needs numerics 'reproducible': 'fast' may compute in bf16, "
                "whose KV cache is u8 or f16"
            )
        return self

    @property
    def cache_ttls(self) -> dict[str, float]:
        """Namespace → seconds; the first is the default one."""
        pairs = (pair.partition("=") for pair in self.cache_ttl_s.split())
        return {name: float(seconds) for name, _, seconds in pairs}

    @property
    def tiers_file(self) -> Path:
        """Beside the config's, unless absolute."""
        return self.version_directory.parent / self.tiers

    @property
    def calibration_file(self) -> Path | None:
        """Beside the config's, unless absolute; None: the one in the package."""
        return self.version_directory.parent / self.cache_calibration if self.cache_calibration else None

    @property
    def lookahead_sizes(self) -> tuple[int, int, int] | None:
        """Window, n-gram and verification size; None without lookahead."""
        if not self.lookahead:
            return None
        window, ngram, verification = map(int, self.lookahead.split(","))
        return window, ngram, verification

    @property
    def artefact_directory(self) -> Path:
        """Where the built engine lies; an absolute `artefact` stands for itself."""
        return self.version_directory / self.artefact

    @property
    def draft_directory(self) -> Path:
        """Where the built draft model lies."""
        return self.version_directory / self.draft_artefact
