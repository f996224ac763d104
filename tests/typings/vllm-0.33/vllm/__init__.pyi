# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from .engine.arg_utils import AsyncEngineArgs as AsyncEngineArgs
from .sampling_params import SamplingParams as SamplingParams

__version__: str
