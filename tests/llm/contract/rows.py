"""Rows of the contract, and why an engine leaves one out: `python -m tests.llm.contract.rows`."""

from __future__ import annotations

ENGINES = ("fake", "openvino", "vllm")
ROWS = {
    "deltas": "text comes in deltas that are the answer, with the tokens so far",
    "token_ids": "a prompt's token ids are the prompt",
    "length": "max_tokens ends an answer: length",
    "end_of_sequence": "the model's own end: stop",
    "stop_strings": "a stop string ends an answer and is not in it",
    "stop_token_ids": "a stop token ends an answer, min_tokens keeps it off",
    "usage": "tokens of prompt and answer are counted",
    "cached_tokens": "an equal beginning is told as cached",
    "seeds": "one seed, one answer; another seed, another",
    "penalties": "a greedy answer under a penalty is another one",
    "logit_bias": "a token that is forbidden does not come",
    "logprobs": "each token has its log probability",
    "top_logprobs": "each token has the most likely in its place, best first",
    "schema": "an answer keeps its JSON Schema",
    "form_logprobs": "of an answer in a form no impossible token is told",
    "tools": "a required call is one, of a function that was offered",
    "tenants": "a tenant's prompts find only its own in the prefix cache",
    "prompt_logprobs": "each token of the prompt has its log probability, if asked",
    "adapters": "LoRA adapters in one batch, loaded and unloaded under load",
    "sleep": "asleep at either level it takes nothing, woken it answers as before",
    "speculation": "drafts by prompt lookup are accepted, and the answer is the same",
    "concurrent": "answers of many at once are whole",
    "priorities": "who is more urgent leaves the queue first",
    "limits": "the longest request is served, one token more is refused by name",
    "extremes": "the largest seed, temperature and stop_token_ids are taken, or refused by name",
    "cancel_queued": "cancelled in the queue",
    "cancel_prefill": "cancelled while its prompt is computed",
    "cancel_decoding": "cancelled while it is answered",
    "memory": "KV blocks are told, used, and free afterwards",
    "bad_settings": "settings that do not fit together: one sentence",
    "killed_core": "its core is killed: clients are told, the next engine answers",
    "killed_worker": "a worker alone is killed: clients are told, the next engine answers",
    "stopped_core": "it stands still with work: ended after stall_timeout_s, the next one answers",
    "drain": "the server ends: clients are told, no process is left",
}
_SCRIPT = "it plays a script"
HOLES = {
    ("end_of_sequence", "fake"): "its script has no end",
    ("seeds", "fake"): _SCRIPT,
    ("penalties", "fake"): _SCRIPT,
    ("logit_bias", "fake"): _SCRIPT,
    ("logit_bias", "openvino"): "OpenVINO GenAI has none",
    ("top_logprobs", "openvino"): "OpenVINO GenAI tells the chosen token's alone",
    ("schema", "fake"): _SCRIPT,
    ("form_logprobs", "fake"): _SCRIPT,
    ("form_logprobs", "openvino"): "OpenVINO GenAI tells the chosen token's alone",
    ("tools", "fake"): _SCRIPT,
    ("prompt_logprobs", "openvino"): "OpenVINO GenAI tells the chosen token's alone",
    ("adapters", "openvino"): "OpenVINO GenAI gives one set of adapters to a whole batch",
    ("sleep", "openvino"): "OpenVINO GenAI has no such mode",
    ("sleep", "vllm"): "its build for CPUs does not open with it",
    ("speculation", "fake"): _SCRIPT,
    ("killed_worker", "fake"): "one process",
    ("killed_worker", "openvino"): "one process",
}
"""(row, engine) → the one reason for which it is left out."""


def table() -> str:
    """The rows that an engine leaves out × engines, in Markdown."""
    lines = [f"| | {' | '.join(f'`{name}`' for name in ENGINES)} |", "|---" * (len(ENGINES) + 1) + "|"]
    for row, title in ROWS.items():
        if not any((row, engine) in HOLES for engine in ENGINES):
            continue
        cells = [HOLES.get((row, engine), "yes") for engine in ENGINES]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
