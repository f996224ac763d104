import numpy as np
import pytest
from PIL import Image

from tests.vision.pictures import encode, exif, noise, quarters
from trimodal.vision.artefact import InputSpec
from trimodal.vision.image import Limits, Picture
from trimodal.vision.preprocess import UPRIGHT, Preprocessor

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def prepared(data: bytes, **spec: object) -> np.ndarray:
    preprocessor = Preprocessor(InputSpec(**{**PLAIN, **spec}), Limits())
    out = np.full(preprocessor.shape, np.nan, np.float32)
    preprocessor.prepare(data, out)
    return out


def test_channels_come_first_and_are_normalised():
    image = noise(8, 6)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    out = prepared(encode(image, "PNG"), height=6, width=8, resize="exact", mean=mean, std=std)
    wanted = (np.asarray(image, np.float32) / 255 - mean) / std
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, wanted.transpose(2, 0, 1), atol=1e-5)


def test_crop_takes_the_centre_of_the_shorter_side():
    wide = Image.new("RGB", (120, 40), "red")
    wide.paste((0, 0, 255), (40, 0, 80, 40))
    out = prepared(encode(wide, "PNG"), height=20, width=20, resize="crop", resize_to=20)
    inner = out[:, :, 2:-2]
    assert inner[2].min() > 0.98
    assert inner[0].max() < 0.02


def test_crop_equals_resizing_the_whole_and_cutting():
    image = noise(100, 80).resize((200, 160), Image.Resampling.BICUBIC)
    out = prepared(encode(image, "PNG"), height=28, width=28, resize="crop", resize_to=32)
    whole = np.asarray(image.resize((40, 32), Image.Resampling.BILINEAR), np.float32) / 255
    np.testing.assert_allclose(out, whole[2:30, 6:34].transpose(2, 0, 1), atol=0.03)


def test_a_thin_strip_costs_no_more_than_a_square():
    out = prepared(encode(Image.new("RGB", (16000, 1), "red"), "PNG"), height=24, width=24, resize_to=32)
    assert out[0].min() > 0.99


@pytest.mark.parametrize("value", range(1, 9))
def test_the_picture_is_turned_upright(value):
    upright = noise(24, 16)
    undo = {6: 8, 8: 6}.get(value, value)
    stored = upright if value == 1 else upright.transpose(UPRIGHT[undo])
    data = encode(stored, "PNG", exif=exif(value))
    out = prepared(data, height=16, width=24, resize="exact")
    np.testing.assert_allclose(out, np.asarray(upright, np.float32).transpose(2, 0, 1) / 255, atol=1e-6)


def test_orientation_agrees_with_pillows_own():
    from PIL import ImageOps

    for value in range(1, 9):
        tagged = quarters(8)
        tagged.getexif()[0x0112] = value
        ours = Preprocessor(InputSpec(height=8, width=8, resize="exact"), Limits()).fit(
            Picture(quarters(8), value)
        )
        assert np.array_equal(np.asarray(ours), np.asarray(ImageOps.exif_transpose(tagged)))


def test_draft_decoding_stays_near_the_full_one():
    smooth = noise(16, 12).resize((640, 480), Image.Resampling.BICUBIC)
    jpeg = prepared(encode(smooth, "JPEG", quality=95), height=64, width=64)
    png = prepared(encode(smooth, "PNG"), height=64, width=64)
    assert np.abs(jpeg - png).mean() < 0.01
