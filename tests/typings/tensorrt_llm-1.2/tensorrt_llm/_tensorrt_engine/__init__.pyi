# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from ..llmapi.llm import _TrtLLM as LLM

__all__ = ["LLM"]
