import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from benchmarks.torchvision_reference import pixels as torchvision
from tests.vision.pictures import encode, exif, noise
from trimodal.vision.artefact import InputSpec
from trimodal.vision.preprocess import FILTERS, UPRIGHT, Preprocessor
from trimodal.vision.settings import Limits


def prepared(data: bytes, *, shrink_on_load: bool = False, **spec: object) -> np.ndarray:
    preprocessor = Preprocessor(InputSpec(**spec), Limits(), shrink_on_load=shrink_on_load)
    out = np.zeros(preprocessor.shape, np.uint8)
    preprocessor.prepare(data, out)
    return out


def by_torchvision(image: Image.Image, to: int, height: int, width: int, filter: str) -> np.ndarray:
    resized = torchvision.resize(image, to, FILTERS[filter])
    return np.asarray(torchvision.center_crop(resized, height, width)).transpose(2, 0, 1)


def grain(width: int, height: int, seed: int) -> Image.Image:
    """Soft on one scale and hard on another: both kinds of rounding come up."""
    soft = noise(max(1, width // 8), max(1, height // 8), seed).resize((width, height))
    return Image.blend(soft, noise(width, height, seed + 1), 0.3)


SIZES = [
    (224, 224), (256, 256), (257, 301), (640, 427), (427, 640), (1023, 769), (3, 3), (1, 1), (255, 256),
    (500, 501), (2048, 1365), (225, 3600),
]  # fmt: skip
STRIPS = [(1, 700), (700, 1), (3, 2000), (2000, 3), (2, 9000), (9000, 7), (225, 3601), (40, 5000)]


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pixels_are_torchvisions(size, filter):
    image = grain(*size, seed=sum(size))
    out = prepared(encode(image, "PNG"), height=224, width=224, resize_to=256, filter=filter)
    assert np.array_equal(out, by_torchvision(image, 256, 224, 224, filter))


@pytest.mark.parametrize("size", STRIPS, ids=str)
def test_pixels_of_strips_are_torchvisions(size):
    image = grain(*size, seed=sum(size))
    out = prepared(encode(image, "PNG"), height=28, width=28, resize_to=32, filter="bicubic")
    assert np.array_equal(out, by_torchvision(image, 32, 28, 28, "bicubic"))


@pytest.mark.parametrize("size", [(3, 2000), (2000, 3), (1, 3000)], ids=str)
def test_of_a_strip_that_would_be_huge_the_middle_differs_by_one_level_at_most(size):
    image = grain(*size, seed=4)
    out = prepared(encode(image, "PNG"), height=120, width=120, resize_to=128, filter="bicubic")
    error = np.abs(out.astype(int) - by_torchvision(image, 128, 120, 120, "bicubic"))
    assert error.max() <= 1
    assert (error > 0).mean() < 0.05


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 900), st.integers(1, 900), st.sampled_from(sorted(FILTERS)),
    st.integers(20, 32), st.integers(20, 32), st.integers(0, 40),
)  # fmt: skip
def test_pixels_of_any_size_are_torchvisions(width, height, filter, crop_height, crop_width, more):
    image, to = grain(width, height, seed=width), max(crop_height, crop_width) + more
    given = {"height": crop_height, "width": crop_width, "resize_to": to, "filter": filter}
    assert np.array_equal(
        prepared(encode(image, "PNG"), **given), by_torchvision(image, to, crop_height, crop_width, filter)
    )


def test_transformers_begins_the_centre_a_pixel_earlier():
    image = noise(35, 32)  # 3 pixels are cut off along it
    given = {"height": 32, "width": 32, "resize_to": 32}
    rounded, floored = (
        prepared(encode(image, "PNG"), crop_offset=how, **given) for how in ("round", "floor")
    )
    assert np.array_equal(rounded, np.asarray(image)[:, 2:34].transpose(2, 0, 1))
    assert np.array_equal(floored, np.asarray(image)[:, 1:33].transpose(2, 0, 1))


def test_both_sides_may_be_resized_before_the_crop():
    image = noise(90, 40)
    out = prepared(encode(image, "PNG"), height=28, width=28, resize="exact-crop", resize_to=32)
    whole = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR))
    assert np.array_equal(out, whole[2:30, 2:30].transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGB"])
def test_other_colours_are_converted_first(mode):
    image = grain(300, 200, 1)
    stored = image.quantize(32) if mode == "P" else image.convert(mode)
    data = encode(stored, "PNG" if mode in ("P", "RGB") else "JPEG")
    with Image.open(io.BytesIO(data)) as read:
        expected = by_torchvision(read.convert("RGB"), 64, 56, 56, "bicubic")
    assert np.array_equal(prepared(data, height=56, width=56, resize_to=64, filter="bicubic"), expected)


@pytest.mark.parametrize("value", range(1, 9))
def test_the_picture_is_turned_upright_before_all_else(value):
    upright = grain(301, 200, 2)
    undo = {6: 8, 8: 6}.get(value, value)
    stored = upright if value == 1 else upright.transpose(UPRIGHT[undo])
    data = encode(stored, "PNG", exif=exif(value))
    with Image.open(io.BytesIO(data)) as read:
        expected = by_torchvision(ImageOps.exif_transpose(read), 33, 30, 28, "bilinear")
    assert np.array_equal(prepared(data, height=30, width=28, resize_to=33), expected)


def test_the_thinnest_strip_costs_no_more_than_a_square(monkeypatch):
    largest = 0
    resize = Image.Image.resize

    def watched(image: Image.Image, size: tuple[int, int], *others: object, **named: object) -> Image.Image:
        nonlocal largest
        largest = max(largest, size[0] * size[1])
        return resize(image, size, *others, **named)

    monkeypatch.setattr(Image.Image, "resize", watched)
    out = prepared(encode(Image.new("RGB", (16000, 1), "red"), "PNG"), height=224, width=224, resize_to=256)
    assert out[0].min() > 252
    assert largest <= 256 * 256


def test_a_jpeg_is_decoded_smaller_only_where_it_is_asked_for():
    smooth = noise(16, 12).resize((640, 480), Image.Resampling.BICUBIC)
    data = encode(smooth, "JPEG", quality=95)
    size = {"height": 64, "width": 64}
    exact, quick = (prepared(data, shrink_on_load=shrink, **size) for shrink in (False, True))
    with Image.open(io.BytesIO(data)) as read:
        assert np.array_equal(exact, by_torchvision(read, 64, 64, 64, "bilinear"))
    assert not np.array_equal(exact, quick)
    assert np.abs(exact.astype(int) - quick).mean() < 2.5
