"""Declares and checks the llm model's parameters, which stand at the head of its config.pbtxt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trimodal.llm.sampling_defaults import SamplingDefaults, read_defaults
from trimodal.llm.structured.families import CallParser, Family, ReasoningParser, family_of
from trimodal.paths import for_libraries, setting_path
from trimodal.settings import Settings

GPU_ENGINES = ("tensorrt_llm_pytorch", "vllm")
"""Engines that batch by themselves and start processes of their own: on NVIDIA GPUs, vllm on a CPU too."""
MAX_ADAPTER_NAME = 128
ADAPTER_NAME = rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_ADAPTER_NAME - 1}}}"
MAX_ADAPTERS = 32
"""LoRA adapters that may be loaded at a time."""


@dataclass(frozen=True)
class ReadBy:
    """Marks a parameter that only these engines read; the others refuse it. The fake engine takes any."""

    engines: tuple[str, ...]


OpenVino = ReadBy(("openvino",))
Gpu = ReadBy(GPU_ENGINES)
TensorRtLlm = ReadBy(("tensorrt_llm_pytorch",))
Vllm = ReadBy(("vllm",))
OpenVinoOrVllm = ReadBy(("openvino", "vllm"))
Fake = ReadBy(("fake",))
Drafting = ReadBy(("openvino", *GPU_ENGINES))

FAKE_BUDGETS = {
    "num_kv_blocks": 512,
    "max_prompt_tokens": 2048,
    "max_output_tokens": 1024,
    "default_max_tokens": 128,
}
"""It has no artefact that they could follow from."""
# On a GPU batch and step follow from the card.
_GPU_DEFAULTS: dict[str, Any] = {
    "artefact": "checkpoint",
    "device": "cuda",
    "max_num_seqs": 0,
    "max_num_batched_tokens": 0,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "tensorrt_llm_pytorch": _GPU_DEFAULTS,
    "vllm": _GPU_DEFAULTS,
    "fake": FAKE_BUDGETS,
}
"""Defaults of an engine where they are not those of the settings class."""


class LlmSettings(Settings):
    """All parameters of llm/config.pbtxt. Names follow vLLM, TensorRT-LLM and OpenVINO GenAI."""

    # What the fake engine makes up: for tests and load tests.
    fake_step_ms: Annotated[float, Fake] = Field(10.0, ge=0)  # time of one step
    fake_prefill_us: Annotated[float, Fake] = Field(20.0, ge=0)  # time per prompt token
    fake_answer: Annotated[str, Fake] = Field(
        "The quick brown fox jumps over the lazy dog: naïve café, 日本語, 😀. ", min_length=1
    )
    fake_crash_after: Annotated[int, Fake] = Field(0, ge=0)  # dies after so many steps; 0: never

    engine: Literal["openvino", "tensorrt_llm_pytorch", "vllm", "fake"] = "openvino"
    device: Literal["cpu", "cuda"] = "cpu"  # of what vllm was built for; the others have one alone
    artefact: str = "openvino-int8"  # built engine, relative to the version directory
    # an engine that has work and makes no step for so long is opened anew; 0: never
    stall_timeout_s: float = Field(120, ge=0)
    python: str = ""  # interpreter of the engine's process; empty: this environment's
    precision: Annotated[str, Gpu] = ""  # refuse an artefact of another precision; empty: any
    checkpoint_sha256: Annotated[str, Gpu] = ""  # refuse another checkpoint; the hash or its beginning
    threads: Annotated[int, OpenVinoOrVllm] = Field(0, ge=0, le=1024)  # on a CPU; 0 takes one per CPU

    # KV pool; 0: two sequences of the model's length, 16,384 tokens at least; on a GPU what memory allows
    num_kv_blocks: int = Field(0, ge=0, le=1 << 24)
    kv_cache_precision: Annotated[Literal["u8", "f16", "f32"], OpenVino] = "u8"
    # fast: the runtime's quickest kernels, and a greedy answer may depend on the batch;
    # reproducible: it does not, at about half the speed
    numerics: Annotated[Literal["reproducible", "fast"], OpenVino] = "fast"
    enable_prefix_caching: bool = True
    # whose prompts may find each other's KV blocks: those of one tenant, or everybody's
    prefix_cache_scope: Literal["tenant", "shared"] = "tenant"
    # share of the KV pool that is filled again when an engine was lost; 0: none
    prefix_cache_restore: float = Field(0.25, ge=0, le=1)
    # files beside the config's, a system message each: cached for everybody
    public_prompts: Annotated[str, OpenVino] = ""
    # Of the two below 0, on GPUs: by the card. openvino: as many tokens as keep the tiers' ITL bounds.
    max_num_seqs: int = Field(16, ge=0, le=4096)  # sequences in one batch
    max_num_batched_tokens: int = Field(256, ge=0, le=1 << 20)  # tokens in one step

    max_model_len: Annotated[int, Gpu] = Field(0, ge=0, le=1 << 24)  # 0: as built, or as the checkpoint says
    enable_chunked_prefill: Annotated[bool, Gpu] = True  # long prompts are computed in parts
    # of the memory that the weights leave
    kv_cache_free_gpu_memory_fraction: Annotated[float, TensorRtLlm] = Field(0.9, gt=0, lt=1)
    # vllm: of the whole memory, weights included; 0: what is free when it opens, less a reserve
    gpu_memory_utilization: Annotated[float, Vllm] = Field(0.0, ge=0, le=1)
    # host memory for KV blocks that leave the GPU
    host_cache_bytes: Annotated[int, TensorRtLlm] = Field(0, ge=0)
    # vllm compiles nothing: a CPU's start takes a minute less, and its tokens longer
    enforce_eager: Annotated[bool, Vllm] = False
    kv_cache_dtype: Annotated[Literal["auto", "fp8"], Gpu] = "auto"
    # fp8: a checkpoint of 16 bits is quantised while it is loaded; empty: as it is
    quantization: Annotated[Literal["", "fp8"], Vllm] = ""
    tensor_parallel_size: Annotated[int, Gpu] = Field(1, ge=1, le=64)  # GPUs that share each layer
    # GPUs that share the layers
    pipeline_parallel_size: Annotated[int, Gpu] = Field(1, ge=1, le=64)

    # adapters in one batch, on a CPU also of those that are loaded; 0: there are none
    max_loras: Annotated[int, Vllm] = Field(0, ge=0, le=MAX_ADAPTERS)
    max_lora_rank: Annotated[int, Vllm] = Field(16, ge=1, le=512)  # of the largest adapter
    lora_directory: Annotated[str, Vllm] = "lora"  # holds the adapters, each a directory; as artefact
    # adapters that are loaded at the start, by their names there
    lora_modules: Annotated[str, Vllm] = Field("", pattern=rf"^({ADAPTER_NAME}( {ADAPTER_NAME})*)?$")
    # further arguments of its engine, as on vLLM's command line
    engine_args: Annotated[str, Vllm] = ""

    speculation: Annotated[Literal["none", "eagle3", "prompt_lookup"], Drafting] = "none"
    draft_artefact: Annotated[str, Gpu] = "draft"  # eagle3: checkpoint of the heads, as artefact
    num_assistant_tokens: Annotated[int, Drafting] = Field(4, ge=1, le=32)  # tokens drafted in a step
    max_ngram_size: Annotated[int, Drafting] = Field(3, ge=1, le=16)  # prompt_lookup: longest match

    apply_chat_template: bool = True  # text_input becomes one user message
    # what requests leave out of sampling; auto: as the checkpoint's generation_config.json says; none: greedy
    generation_config: Literal["auto", "none"] = "auto"
    # how thoughts and calls of functions are told from the model's words; auto: as its chat template has them
    reasoning_parser: ReasoningParser = "auto"
    tool_call_parser: CallParser = "auto"
    # of a request that names none; 0: what its prompt leaves of the model's length and the KV pool
    default_max_tokens: int = Field(0, ge=0)
    # budgets, in tokens; 0: as long as the model takes
    max_prompt_tokens: int = Field(0, ge=0)
    max_output_tokens: int = Field(0, ge=0)  # for max_tokens
    max_prompt_bytes: int = Field(262_144, ge=1)  # text_input or messages, before tokenizing
    max_queue: int = Field(64, ge=0)  # requests that may wait; more get UNAVAILABLE
    max_grammar_bytes: int = Field(8192, ge=256)  # of a form; the batch waits while it is compiled

    tiers: str = ""  # TOML file beside the config's; empty: one tier without deadlines
    scheduler: Literal["deadline", "fifo"] = "deadline"  # fifo: arrival, no deadlines
    ageing_s: float = Field(5.0, gt=0)  # each so long a wait raises a priority by one
    # share of the admitted that are to meet their TTFT deadline
    admission_confidence: float = Field(0.9, gt=0, lt=1)

    # Each includes the one before.
    cache: Literal["off", "coalesce", "exact", "semantic"] = "off"
    cache_store: str = ""  # file or URL of the answers; empty: in the user's cache
    # seconds that answers of a namespace live; the first is that of requests without one
    cache_ttl_s: str = Field(
        "default=900 live=300 faq=86400",
        pattern=r"^[a-z0-9_-]{1,32}=[0-9]{1,9}( [a-z0-9_-]{1,32}=[0-9]{1,9})*$",
    )
    cache_max_entries: int = Field(20_000, ge=1, le=10_000_000)
    cache_max_answer_bytes: int = Field(65_536, ge=1)
    cache_budget_ms: float = Field(20, gt=0, le=10_000)  # then a request goes past the store
    cache_embedding_budget_ms: float = Field(50, gt=0, le=10_000)  # and past the embedding
    cache_judge_budget_ms: float = Field(50, gt=0, le=10_000)  # and past the judge
    # semantic: upper bound of wrong answers among near-identical questions
    cache_max_false_hit: float = Field(0.01, gt=0, lt=1)
    # of `build/judge/measure.py --calibrate`, beside the config's; empty: the one beside the judge's model
    cache_calibration: str = ""
    # semantic: share of hits whose answers are compared with fresh ones while the server is idle; 0: none
    cache_audit: float = Field(0.02, ge=0, le=0.5)
    embedder: str = "embedding"  # model of the repository that embeds questions
    judge: str = "judge"  # model of the repository that says whether two questions ask for the same

    cancel_poll_ms: int = Field(50, ge=1, le=1000)  # how often cancellation is looked for

    # The two are set by the glue, not by operators.
    version_directory: Path = Path(".")
    operator_hash: str = ""  # SHA-256 of the key that operators' calls need; empty: there are none

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_engine(cls, values: Any) -> Any:
        return _DEFAULTS.get(str(values.get("engine")), {}) | values if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _fits_together(self) -> LlmSettings:
        if problem := self._not_read() or self._not_of_the_engine():
            raise ValueError(problem)
        if 0 < self.num_kv_blocks < 4:
            raise ValueError(f"num_kv_blocks {self.num_kv_blocks} should be 0 or at least 4")
        if len(self.cache_ttls) < len(self.cache_ttl_s.split()):
            raise ValueError(f"cache_ttl_s {self.cache_ttl_s!r} names a namespace twice")
        default, most = self.default_max_tokens, self.max_output_tokens
        if 0 < most < default:
            raise ValueError(f"default_max_tokens {default} exceeds max_output_tokens {most}")
        if self.speculation == "prompt_lookup" and self.max_num_batched_tokens == 1:
            raise ValueError("speculation 'prompt_lookup' needs max_num_batched_tokens of at least 2")
        if self.numerics == "fast" and self.kv_cache_precision == "f32":
            raise ValueError(
                "kv_cache_precision 'f32' needs numerics 'reproducible': 'fast' may compute in bf16, "
                "whose KV cache is u8 or f16"
            )
        return self

    def _not_read(self) -> str:
        """One sentence on the parameters that are set and that the engine does not read; empty: none."""
        if self.engine == "fake":
            return ""
        problems = []
        for name in sorted(self.model_fields_set):
            field = type(self).model_fields[name]
            if getattr(self, name) == field.default:
                continue  # a profile's file says it of its own engine, and --set names another
            for mark in field.metadata:
                if isinstance(mark, ReadBy) and self.engine not in mark.engines:
                    problems.append(f"'{name}' (read by {' and '.join(mark.engines)})")
        if not problems:
            return ""
        them = "it" if len(problems) == 1 else "them"
        return f"engine '{self.engine}' does not read {', '.join(problems)}: take {them} out"

    def _not_of_the_engine(self) -> str:
        """One sentence on a value that the engine does not take of a parameter that it reads; empty: none."""
        if self.engine == "openvino" and not self.max_num_seqs:
            engines = ", ".join(GPU_ENGINES)
            return f"max_num_seqs 0 should be greater than or equal to 1 (0, by the card, with {engines})"
        devices = (
            ("cpu", "cuda") if self.engine == "vllm" else ("cuda" if self.engine in GPU_ENGINES else "cpu",)
        )
        if self.device not in devices and self.engine != "fake":
            return f"engine '{self.engine}' runs on device '{devices[0]}', not on '{self.device}'"
        if self.threads and self.device == "cuda":
            return "'threads' is read on device 'cpu': take it out"
        kind = self.speculation
        if kind == "eagle3" and self.engine == "openvino":
            return f"speculation 'eagle3' is of {' and '.join(GPU_ENGINES)}, not of engine 'openvino'"
        if kind != "none" and self.engine == "tensorrt_llm_pytorch" and self.pipeline_parallel_size > 1:
            return f"speculation '{kind}' of TensorRT-LLM needs pipeline_parallel_size 1"
        return ""

    @cached_property
    def sampling_defaults(self) -> SamplingDefaults:
        """What a request leaves out of its sampling. Raises: ArtefactError."""
        read = self.generation_config == "auto" and self.engine != "fake"
        return read_defaults(self.artefact_directory) if read else SamplingDefaults()

    @cached_property
    def family(self) -> Family:
        """How the model thinks and calls. Raises: ArtefactError."""
        # The engine's process, perhaps in an environment without jinja2, does not ask.
        from trimodal.llm.chat_template import read_template

        source = "" if self.engine == "fake" else read_template(self.artefact_directory)
        return family_of(source, self.reasoning_parser, self.tool_call_parser)

    @property
    def cache_ttls(self) -> dict[str, float]:
        """Namespace → seconds; the first is the default one."""
        pairs = (pair.partition("=") for pair in self.cache_ttl_s.split())
        return {name: float(seconds) for name, _, seconds in pairs}

    def beside_config(self, name: str) -> Path | None:
        """The file called `name` beside the config's, unless it is absolute; None: none is named."""
        return self.version_directory.parent / setting_path(name) if name else None

    @property
    def drafted_tokens(self) -> int:
        """Tokens that are drafted in a step; 0 without speculation."""
        return 0 if self.speculation == "none" else self.num_assistant_tokens

    @property
    def draft_directory(self) -> Path:
        """Where a draft model lies; an absolute `draft_artefact` stands for itself."""
        return for_libraries(self.version_directory / setting_path(self.draft_artefact))

    @property
    def artefact_directory(self) -> Path:
        """Where the built engine lies; an absolute `artefact` stands for itself."""
        return for_libraries(self.version_directory / setting_path(self.artefact))
