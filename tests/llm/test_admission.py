import pytest

from trimodal.errors import InvalidArgument, Unavailable
from trimodal.llm.admission import Admission
from trimodal.llm.engine import EngineInfo
from trimodal.llm.settings import LlmSettings


def make(blocks: int = 10, seqs: int = 4, length: int = 1000, lookahead: int = 0) -> Admission:
    info = EngineInfo("fake", "none", blocks, 32, seqs, length, lookahead)
    return Admission(LlmSettings(max_prompt_tokens=500, max_queue=3), info)


def test_what_fits_is_taken_and_given_back() -> None:
    admission = make()
    assert admission.reserve(1, 100, 60)  # 5 blocks
    assert admission.reserve(2, 100, 60)
    assert not admission.reserve(3, 1, 1)
    admission.release(1)
    admission.release(1)
    assert admission.reserved_blocks == 5
    assert admission.reserve(3, 1, 1)


def test_batch_slots_are_bounded() -> None:
    admission = make(seqs=1)
    assert admission.reserve(1, 1, 1)
    assert not admission.reserve(2, 1, 1)


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


def test_the_largest_request_that_fits_runs() -> None:
    admission = make()
    admission.check_size(300, 20)
    assert admission.reserve(1, 300, 20)


def test_the_room_beside_a_prompt_is_what_check_size_takes() -> None:
    admission = make(lookahead=5)
    assert admission.room(300) == 15
    admission.check_size(300, admission.room(300))
    assert make(blocks=100).room(990) == 10


def test_drafted_tokens_need_room_too() -> None:
    with pytest.raises(InvalidArgument, match="KV pool holds 315"):
        make(lookahead=5).check_size(300, 20)


def test_a_full_queue_is_unavailable() -> None:
    make().check_queue(2)
    with pytest.raises(Unavailable, match="3 requests wait already: max_queue is 3"):
        make().check_queue(3)
