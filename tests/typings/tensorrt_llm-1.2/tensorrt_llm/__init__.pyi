# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from .llmapi import LLM as LLM
from .sampling_params import SamplingParams as SamplingParams

__version__: str
