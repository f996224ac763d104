"""What the demo, README, page and golden set ask SmolLM2, every processor answers alike: no token is a tie.

"What is the capital of France?" begins with one: torch gives "The" 0.15 and "L" 0.14. There rounding decides,
which differs between processors: a Zen 5 answered "L'Étoile, la Marseillaise, la femme, la femme, …".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trimodal.demo import acts, assistant
from trimodal.explain.requests import QUESTION

pytestmark = [pytest.mark.build, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
# Of logits. Between torch's and those of `fast` with a KV cache in u8 lie 0.05 on average and 0.5 at most.
MARGIN = 0.5

(_FIRST, _CAPITAL), (_SECOND, _OTHER) = acts.TURNS
TALK = [(_FIRST, f"The capital of Japan is {_CAPITAL}."), (_SECOND, _OTHER)]
TYPED = [(one.text, one.words[0]) for one in assistant.QUESTIONS if not (one.image or one.audio)]
ROOT = Path(__file__).parents[3]
CASES = map(json.loads, (ROOT / "samples" / "golden.jsonl").read_text(encoding="utf-8").splitlines())
GOLDEN = [
    (case["input"].get("prompt") or case["input"]["text"], case["expect"]["contains"])
    for case in CASES
    if case["input"].keys() & {"prompt", "text"} and "contains" in case.get("expect", {})
]
QUESTIONS = {
    "the demo's first turn": ([], _FIRST, _CAPITAL),
    "the demo's second turn": ([TALK[0]], _SECOND, _OTHER),
    **{f"stored: {text}": ([], text, word) for text, _, word in acts.CACHED},
    **{f"assistant: {text}": ([], text, word) for text, word in TYPED},
    "explain": ([], QUESTION, _CAPITAL),
    **{f"golden set: {text}": ([], text, word) for text, word in GOLDEN},
}


@pytest.mark.parametrize("file", ["README.md", "trimodal/gateway/page/index.html"])
def test_a_newcomer_is_shown_the_demos_question(file: str) -> None:
    assert _FIRST in (ROOT / file).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def smollm2() -> Any:
    from steps.llm.checkpoint import Checkpoint, quiet
    from steps.llm.gguf import resolve_model

    quiet()
    return Checkpoint(resolve_model("starter:smollm2-135m-instruct"))


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_token_up_to_the_word_looked_for_is_a_tie(smollm2: Any, name: str) -> None:
    import torch

    before, question, word = QUESTIONS[name]
    turns = [turn for asked, said in before for turn in (_turn("user", asked), _turn("assistant", said))]
    tokenizer = smollm2.tokenizer
    chat = [*turns, _turn("user", question)]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    answer = ""
    for _ in range(16):
        with torch.inference_mode():
            likeliest = smollm2.model(torch.tensor([ids])).logits[0, -1].topk(2)
        best, second = likeliest.values.tolist()
        assert best - second >= MARGIN, f"{answer!r} goes on by chance"
        ids.append(int(likeliest.indices[0]))
        answer += tokenizer.decode(ids[-1:])
        if word in answer:
            return
    pytest.fail(f"{answer!r} has no {word!r}")


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
