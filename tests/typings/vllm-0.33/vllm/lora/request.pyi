# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str
    def __init__(self, lora_name: str, lora_int_id: int, lora_path: str = "") -> None: ...
