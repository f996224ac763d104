# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from dataclasses import dataclass

@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None
