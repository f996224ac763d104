# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
class SpecDecodingStats:
    num_spec_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    def __init__(
        self,
        num_spec_tokens: int,
        num_drafts: int = 0,
        num_draft_tokens: int = 0,
        num_accepted_tokens: int = 0,
    ) -> None: ...
