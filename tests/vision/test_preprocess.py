import numpy as np
import pytest
from PIL import Image

from tests.vision.pictures import encode, exif, noise
from trimodal.vision.artefact import InputSpec
from trimodal.vision.preprocess import UPRIGHT, Preprocessor
from trimodal.vision.settings import Limits


def prepared(data: bytes, **spec: object) -> np.ndarray:
    preprocessor = Preprocessor(InputSpec(**spec), Limits())
    out = np.zeros(preprocessor.shape, np.uint8)
    preprocessor.prepare(data, out)
    return out


def test_channels_come_first_and_values_stay():
    image = noise(8, 6)
    out = prepared(encode(image, "PNG"), height=6, width=8, resize="exact", mean=(0.1, 0.2, 0.3))
    assert np.array_equal(out, np.asarray(image).transpose(2, 0, 1))


def test_crop_equals_resizing_the_whole_and_cutting():
    image = noise(100, 80).resize((200, 160), Image.Resampling.BICUBIC)
    out = prepared(encode(image, "PNG"), height=28, width=28, resize="crop", resize_to=32)
    whole = np.asarray(image.resize((40, 32), Image.Resampling.BILINEAR), int)
    assert np.abs(out - whole[2:30, 6:34].transpose(2, 0, 1)).max() <= 7


def test_a_picture_of_the_right_size_is_only_cut():
    image = noise(40, 32)
    out = prepared(encode(image, "PNG"), height=28, width=28, resize="crop", resize_to=32)
    assert np.array_equal(out, np.asarray(image)[2:30, 6:34].transpose(2, 0, 1))


def test_a_thin_strip_costs_no_more_than_a_square():
    out = prepared(encode(Image.new("RGB", (16000, 1), "red"), "PNG"), height=24, width=24, resize_to=32)
    assert out[0].min() > 252


@pytest.mark.parametrize("value", range(1, 9))
def test_the_picture_is_turned_upright(value):
    upright = noise(24, 16)
    undo = {6: 8, 8: 6}.get(value, value)
    stored = upright if value == 1 else upright.transpose(UPRIGHT[undo])
    data = encode(stored, "PNG", exif=exif(value))
    out = prepared(data, height=16, width=24, resize="exact")
    assert np.array_equal(out, np.asarray(upright).transpose(2, 0, 1))


def test_draft_decoding_stays_near_the_full_one():
    smooth = noise(16, 12).resize((640, 480), Image.Resampling.BICUBIC)
    jpeg = prepared(encode(smooth, "JPEG", quality=95), height=64, width=64).astype(int)
    png = prepared(encode(smooth, "PNG"), height=64, width=64)
    assert np.abs(jpeg - png).mean() < 2.5
