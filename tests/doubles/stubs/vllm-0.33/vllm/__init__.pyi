# mypy: ignore-errors
# Signatures of vLLM 0.33.0, read from its wheel: the part that trimodal/llm/engines/vllm.py uses. No code.
from .engine.arg_utils import AsyncEngineArgs as AsyncEngineArgs
from .sampling_params import SamplingParams as SamplingParams

__version__: str
