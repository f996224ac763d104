# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from ..builder import BuildConfig as BuildConfig
from ..executor import CompletionOutput as CompletionOutput
from ..sampling_params import GuidedDecodingParams as GuidedDecodingParams
from ..sampling_params import SamplingParams as SamplingParams
from .llm import LLM as LLM
from .llm import RequestOutput as RequestOutput
from .llm_args import CalibConfig as CalibConfig
from .llm_args import CapacitySchedulerPolicy as CapacitySchedulerPolicy
from .llm_args import CudaGraphConfig as CudaGraphConfig
from .llm_args import EagleDecodingConfig as EagleDecodingConfig
from .llm_args import ExtendedRuntimePerfKnobConfig as ExtendedRuntimePerfKnobConfig
from .llm_args import KvCacheConfig as KvCacheConfig
from .llm_args import LookaheadDecodingConfig as LookaheadDecodingConfig
from .llm_args import NGramDecodingConfig as NGramDecodingConfig
from .llm_args import QuantAlgo as QuantAlgo
from .llm_args import QuantConfig as QuantConfig
from .llm_args import SchedulerConfig as SchedulerConfig
