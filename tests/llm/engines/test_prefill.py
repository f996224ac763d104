import pytest

from trimodal.llm.engines.prefill import OLDEST, PrefillShares


@pytest.mark.parametrize(
    ("remaining", "budget", "given"),
    [
        ([], 256, []),
        ([100], 256, [100]),
        ([1000], 256, [256]),
        ([1000], 250, [224]),  # a prompt is cut where a block ends
        ([4000, 5000, 4000, 2], 256, [64, 0, 0, 2]),  # a step that answers one is short
        ([4000, 150], 256, [64, 150]),
        ([4000, 200], 256, [64, 192]),  # the oldest has its quarter
        ([4000, 3000, 5000], 256, [64, 192, 0]),
        ([3000, 4000], 256, [256, 0]),
        ([4000, 300, 20], 256, [64, 0, 20]),
        ([40, 300, 20], 256, [40, 64, 20]),
        ([40, 150, 66], 256, [40, 150, 66]),
        ([4000, 20], 32, [0, 20]),
        ([4000, 20], 127, [32, 20]),  # 128, and one stream decodes: it has a block, or would wait for ever
        ([4000, 50], 64, [32, 32]),
        ([4000], 0, [0]),
        ([4000, 2], -5, [0, 0]),
    ],
)
def test_the_shortest_first_and_a_part_for_the_oldest_long_one(
    remaining: list[int], budget: int, given: list[int]
) -> None:
    assert PrefillShares(32).share(remaining, budget) == given


@pytest.mark.parametrize("decoding", [1, 16, 32])
def test_a_long_prompt_has_its_turn_where_a_step_is_one_block(decoding: int) -> None:
    """With steps of 64 tokens and one stream it stood still for as long as shorter ones came."""
    shares, left = PrefillShares(32), [2000, 200]
    for _ in range(OLDEST * (2000 // 32 + 1)):
        if not left[0]:
            return
        given = shares.share(left, 64 - decoding)
        assert 0 < sum(given) <= 64 - decoding
        left = [left[0] - given[0], (left[1] - given[1]) or 200]
    pytest.fail("it is not computed")


def test_a_step_without_room_for_a_block_passes_nobody() -> None:
    shares = PrefillShares(32)
    for _ in range(OLDEST):
        assert shares.share([2000], 8) == [0]
    assert shares.share([2000, 200], 32) == [0, 32]
