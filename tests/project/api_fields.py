"""Tells what the gateway does with each field of OpenAI's package and of vLLM's server, for docs/gateway.md.

python -m tests.project.api_fields        writes the table anew
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from trimodal.gateway.openai.fields import Body
from trimodal.gateway.openai.responses.request import ResponseRequest
from trimodal.gateway.openai.rows import EmbeddingRequest
from trimodal.gateway.openai.schemas import ChatRequest, CompletionRequest

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
BEGIN, END = "<!-- fields: python -m tests.project.api_fields -->\n", "<!-- end of fields -->"

# Of vLLM's protocol.py files, 0.33, beside OpenAI's own.
_SAMPLING = [
    "use_beam_search",
    "top_k",
    "min_p",
    "repetition_penalty",
    "length_penalty",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
    "allowed_token_ids",
    "prompt_logprobs",
    "logprob_token_ids",
    "bad_words",
    "add_special_tokens",
    "structured_outputs",
    "priority",
    "request_id",
    "session_id",
    "return_tokens_as_token_ids",
    "return_token_ids",
    "cache_salt",
    "kv_transfer_params",
    "vllm_xargs",
    "repetition_detection",
    "thinking_token_budget",
    "stream_interval",
    "watermarking",
]
_CHAT = [
    "include_reasoning",
    "echo",
    "add_generation_prompt",
    "continue_final_message",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "media_io_kwargs",
    "mm_processor_kwargs",
    "return_prompt_text",
]
_EMBEDDINGS = [
    "truncate_prompt_tokens",
    "truncation_side",
    "priority",
    "request_id",
    "add_special_tokens",
    "normalize",
]
_ENDPOINTS: dict[str, tuple[type[Body], type, list[str]]] = {
    "chat/completions": (
        ChatRequest, chat_create_params.CompletionCreateParamsBase, [*_SAMPLING, *_CHAT]
    ),
    "completions": (
        CompletionRequest,
        completion_create_params.CompletionCreateParamsBase,
        [*_SAMPLING, "response_format", "prompt_embeds"],
    ),
    "responses": (ResponseRequest, response_create_params.ResponseCreateParamsBase, _SAMPLING),
    "embeddings": (EmbeddingRequest, embedding_create_params.EmbeddingCreateParams, _EMBEDDINGS),
}  # fmt: skip


def lines() -> Iterator[str]:
    """The lines of both tables: what is honoured and what is ignored, then what is refused and why."""
    refused: dict[tuple[str, str], list[str]] = {}
    yield "| `POST /v1/…` | honoured | ignored, and named in the header |"
    yield "|---|---|---|"
    for endpoint, (body, of_openai, of_vllm) in _ENDPOINTS.items():
        ours = {field.alias or name for name, field in body.model_fields.items()}
        names = sorted({*of_openai.__annotations__, *of_vllm, "stream", *ours, *body.refused})
        for name in (name for name in names if name in body.refused):
            refused.setdefault((name, body.refused[name].why), []).append(f"`{endpoint}`")
        honoured = _listed(name for name in names if name in ours)
        ignored = _listed(name for name in names if name not in ours and name not in body.refused)
        yield f"| `{endpoint}` | {honoured} | {ignored or '–'} |"
    yield ""
    yield "| refused | at | why |"
    yield "|---|---|---|"
    alike: dict[tuple[str, str], list[str]] = {}  # endpoints and why → names
    for (name, why), endpoints in sorted(refused.items()):
        alike.setdefault((", ".join(endpoints), why), []).append(name)
    for (where, why), names in alike.items():
        yield f"| {_listed(names)} | {where} | {why} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page() -> str:
    """docs/gateway.md with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return "".join((before, BEGIN, "\n", *(f"{line}\n" for line in lines()), "\n", END, after))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
