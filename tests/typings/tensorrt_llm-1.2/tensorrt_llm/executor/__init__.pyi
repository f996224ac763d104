# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from .result import CompletionOutput as CompletionOutput

class RequestError(RuntimeError): ...
