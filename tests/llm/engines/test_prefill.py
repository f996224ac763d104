import pytest

from trimodal.llm.engines.prefill import share


@pytest.mark.parametrize(
    ("remaining", "budget", "given"),
    [
        ([], 256, []),
        ([100], 256, [100]),
        ([1000], 256, [256]),
        ([1000], 250, [224]),  # a prompt is cut where a block ends
        ([4000, 4000, 4000, 2], 256, [224, 0, 0, 2]),
        ([4000, 150], 256, [96, 150]),
        ([4000, 200], 256, [64, 192]),  # the oldest has its quarter
        ([4000, 300, 20], 256, [64, 160, 20]),
        ([4000, 20], 32, [0, 20]),
        ([40, 300, 20], 256, [40, 192, 20]),
        ([4000], 0, [0]),
    ],
)
def test_the_shortest_first_and_a_part_for_the_oldest(
    remaining: list[int], budget: int, given: list[int]
) -> None:
    assert share(remaining, budget, 32) == given
