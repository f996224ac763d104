import numpy as np
import pytest

from trimodal.speech.session.ring_buffer import Ring


def counting(start: int, end: int) -> np.ndarray:
    """Samples that say where they are (exact in float32 below 2^24)."""
    return np.arange(start, end, dtype=np.float32)


def test_random_appends_views_and_drops_agree_with_a_plain_array() -> None:
    rng = np.random.default_rng(0)
    ring, end = Ring(), 0
    for _ in range(2000):
        new = int(rng.integers(0, 9000))
        ring.append(counting(end, end + new))
        end += new
        assert (ring.end, len(ring)) == (end, end - ring.start)
        first, last = sorted(rng.integers(ring.start, end + 1, 2).tolist())
        np.testing.assert_array_equal(ring.view(first, last), counting(first, last))
        if len(ring) > 100_000 or rng.random() < 0.3:
            ring.drop(int(rng.integers(ring.start, end + 1)))


def test_memory_is_bounded_by_what_is_held() -> None:
    ring = Ring()
    for _ in range(5000):
        ring.append(np.zeros(8000, np.float32))
        ring.drop(ring.end - 16_000)
        assert len(ring._buffer) <= 4 * (16_000 + 8000)


def test_a_long_chunk_is_given_back() -> None:
    ring = Ring()
    ring.append(np.zeros(480_000, np.float32))
    ring.drop(480_000)
    for _ in range(200):
        ring.append(np.zeros(8000, np.float32))
        ring.drop(ring.end - 8000)
    assert len(ring._buffer) < 100_000


def test_a_view_outlives_what_comes_after_it() -> None:
    ring = Ring()
    ring.append(counting(0, 12_000))
    view = ring.view(10, 20)
    ring.drop(12_000)
    ring.append(np.full(7000, -1, np.float32))
    assert len(ring._buffer) == 16_000  # the same memory is used again
    np.testing.assert_array_equal(view, counting(10, 20))


def test_an_appended_array_may_be_reused() -> None:
    ring, chunk = Ring(), counting(0, 10)
    ring.append(chunk)
    chunk[:] = -1
    np.testing.assert_array_equal(ring.view(0, 10), counting(0, 10))


@pytest.mark.parametrize(("start", "end"), [(4, 8), (5, 11), (9, 8)])
def test_what_is_not_held_is_refused(start: int, end: int) -> None:
    ring = Ring()
    ring.append(counting(0, 10))
    ring.drop(5)
    with pytest.raises(IndexError, match="not within 5 to 10"):
        ring.view(start, end)
