"""Agreement of given answers with a torch checkpoint, on answers whose agreement is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimodal.errors import ArtefactError

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
PROMPTS = [[5, 6, 7, 8], [300, 301], [40, 41, 42]]


@pytest.fixture(scope="module")
def checkpoint(llama: Path) -> Any:
    """A tiny model in FP32, where batching and padding change no token."""
    from steps.llm import checkpoint as llm_checkpoint

    return llm_checkpoint.Checkpoint(llama)


@pytest.fixture(scope="module")
def greedy(checkpoint: Any) -> list[list[int]]:
    """Torch's own answers."""
    from steps.llm import check

    return [each.ids[each.start :] for each in check.greedy_samples(checkpoint, PROMPTS)]


def compare(checkpoint: Any, answers: list[list[int]]) -> dict[str, Any]:
    from steps.llm import check

    figures: dict[str, Any] = check.compare_answers(checkpoint, PROMPTS, answers)
    return figures


def test_torch_s_own_answers_agree_wholly(checkpoint: Any, greedy: list[list[int]]) -> None:
    answers = [list(each) for each in greedy]
    figures = compare(checkpoint, answers)
    assert figures["token_agreement"] == 1
    assert figures["positions"] == sum(map(len, answers))
    assert (figures["greedy_answers"], figures["greedy_answers_identical"]) == (3, 3)
    assert figures["reference"] == "torch float32"


def test_one_foreign_token_costs_itself_and_no_more_than_what_follows(
    checkpoint: Any, greedy: list[list[int]]
) -> None:
    answers = [list(each) for each in greedy]
    answers[1][-1] = (answers[1][-1] + 1) % 500
    figures = compare(checkpoint, answers)
    assert figures["token_agreement"] == pytest.approx(1 - 1 / figures["positions"])
    assert figures["greedy_answers_identical"] == 2


def test_a_closing_end_token_may_be_there_or_not(checkpoint: Any, greedy: list[list[int]]) -> None:
    answers = [list(each) for each in greedy]
    (end,) = checkpoint.special_ids()["eos_token_ids"]
    from steps.llm import check

    sample = check.Sample([1, 2, *answers[0], end], 2)
    assert check.identical([sample], [answers[0]], {end}) == 1
    assert check.identical([sample], [answers[0][:-1]], {end}) == 0


def test_foreign_answers_hardly_agree(checkpoint: Any) -> None:
    assert compare(checkpoint, [[9] * 8, [10] * 8, [11] * 8])["token_agreement"] < 0.5


def test_no_answers_are_refused_and_some_empty_ones_are_not(checkpoint: Any, greedy: list[list[int]]) -> None:
    with pytest.raises(ArtefactError, match="answered every check prompt with nothing"):
        compare(checkpoint, [[], [], []])
    figures = compare(checkpoint, [greedy[0], [], greedy[2]])
    assert figures["token_agreement"] == 1
    assert figures["greedy_answers_identical"] == 2
