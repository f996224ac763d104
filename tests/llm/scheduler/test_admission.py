from dataclasses import replace
from typing import Any

import pytest

from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import EngineInfo, Sampling
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier


def make(
    blocks: int = 10, seqs: int = 4, length: int = 1000, lookahead: int = 0, scheduler: str = "deadline"
) -> Admission:
    info = EngineInfo("fake", blocks, 32, seqs, length, lookahead)
    return Admission(LlmSettings(max_prompt_tokens=500, max_queue=3, scheduler=scheduler), info)


def ticket(admission: Admission, id: int, prompt: int, output: int, share: float = 1.0) -> Ticket:
    made = Ticket(id, prompt, output, Tier(kv_share=share), f"share {share}")
    made.blocks = admission.blocks(prompt, output)
    return made


def test_what_fits_is_taken_and_given_back() -> None:
    admission = make()
    first = ticket(admission, 1, 100, 60)  # 5 blocks
    assert admission.reserve(first)
    assert admission.reserve(ticket(admission, 2, 100, 60))
    third = ticket(admission, 3, 1, 1)
    assert not admission.reserve(third)
    admission.release(first)
    admission.release(first)
    assert (len(admission.reserved), admission.reserved_blocks) == (1, 5)
    assert admission.reserve(third)


def test_what_is_bigger_than_its_tier_s_share_runs_as_the_only_one_of_it() -> None:
    admission = make()
    big, small = ticket(admission, 1, 200, 56, share=0.5), ticket(admission, 2, 1, 1, share=0.5)
    assert admission.reserve(small)
    assert not admission.fits(big)
    admission.release(small)
    assert admission.reserve(big)
    assert not admission.fits(small)


def test_first_in_first_out_knows_no_shares() -> None:
    admission = make(scheduler="fifo")
    assert admission.reserve(ticket(admission, 1, 100, 28, share=0.5))
    assert admission.reserve(ticket(admission, 2, 100, 28, share=0.5))


@pytest.mark.parametrize(
    ("prompt", "output", "message"),
    [
        (0, 1, "no tokens"),
        (501, 1, "max_prompt_tokens is 500"),
        (400, 601, "takes 1000 together"),
        (300, 21, "KV pool holds 320"),
    ],
)
def test_what_can_never_fit_is_refused(prompt: int, output: int, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make().check_size(prompt, output)


def test_the_room_beside_a_prompt_is_what_check_size_takes() -> None:
    admission = make(lookahead=5)
    assert admission.room(300) == 15
    admission.check_size(300, admission.room(300))
    assert make(blocks=100).room(990) == 10


def test_drafted_tokens_need_room_too() -> None:
    with pytest.raises(InvalidArgument, match="KV pool holds 315"):
        make(lookahead=5).check_size(300, 20)


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        ({"grammar": "root"}, "does not support response_format and tools: it has no model"),
        ({"min_p": 0.1}, "does not support min_p: it speculates"),
        ({"logit_bias": {5: -100.0}}, "does not support logit_bias: it has no model"),
        ({"logprobs": 3}, "top_logprobs is 3: engine 'fake' tells 2 at most"),
        ({"logprobs": 0}, None),
        ({"prompt_logprobs": 3}, "prompt_logprobs is 3: engine 'fake' tells 2 at most"),
        ({"stop_token_ids": (3, 256)}, "stop_token_ids has token 256: those of this model are 0 to 255"),
        ({"stop_token_ids": (255,), "min_tokens": 2, "ignore_eos": True, "temperature": 0.5}, None),
    ],
)
def test_sampling_that_an_engine_does_not_honour_is_refused_by_name(
    sampling: dict[str, Any], problem: str | None
) -> None:
    admission = make()
    why = {"grammar": "it has no model", "logit_bias": "it has no model", "min_p": "it speculates"}
    admission.info = replace(admission.info, unsupported=why, max_top_logprobs=2, vocab_size=256)
    if problem is None:
        admission.check_sampling(Sampling(9, **sampling))
        return
    with pytest.raises(InvalidArgument, match=problem):
        admission.check_sampling(Sampling(9, **sampling))
    if problem.startswith("does not"):
        admission.info = replace(admission.info, unsupported={})
        admission.check_sampling(Sampling(9, **sampling))


def test_log_probabilities_that_an_engine_lacks_are_refused_even_without_others() -> None:
    admission = make()
    admission.info = replace(admission.info, unsupported=dict.fromkeys(("logprobs", "prompt_logprobs"), "no"))
    admission.check_sampling(Sampling(9))
    for name, said in (
        ("logprobs", "logprobs"),
        ("prompt_logprobs", r"prompt_logprobs \(echo with logprobs\)"),
    ):
        with pytest.raises(InvalidArgument, match=f"engine 'fake' .* does not support {said}: no"):
            admission.check_sampling(Sampling(9, **{name: 0}))
