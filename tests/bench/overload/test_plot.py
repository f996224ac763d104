"""The picture: a real PNG with both panels, also where a side has nothing to show."""

import pytest

from tests.bench.overload.test_figures import result
from tests.bench.overload.test_tables import level
from trimodal.bench.overload.tables import draw
from trimodal.errors import ServerError

HUNG = result(outcome="gave_up", ttft=float("nan"))
SIDES = {
    "deadline": [level(0.5, [result()] * 5), level(10, [result(ttft=0.4)] * 10)],
    "fifo": [level(0.5, [result()] * 5), level(10, [HUNG] * 10)],
}


def test_a_picture_of_two_sides(tmp_path):
    path = tmp_path / "overload.png"
    draw(SIDES, path, capacity=1.0, tier="premium", bound_ms=500)
    assert path.read_bytes().startswith(b"\x89PNG")
    from matplotlib import image, pyplot

    pixels = image.imread(path)
    assert pixels.shape[0] > 400
    assert pixels.shape[1] > 900
    assert pixels[..., :3].std() > 0.01  # something is drawn
    assert pyplot.get_fignums() == [], "the figure is closed again"


def test_a_tier_that_no_level_has(tmp_path):
    draw(SIDES, tmp_path / "x.png", capacity=1.0, tier="nobody", bound_ms=0)
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(ServerError, match="--plot .*x.png: cannot be written: No such file"):
        draw(SIDES, tmp_path / "none" / "x.png", capacity=1.0, tier="premium", bound_ms=500)
