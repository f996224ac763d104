import base64
import io
import random
import struct
import sys
import zlib
from contextlib import suppress

import numpy as np
import PIL
import pytest
import simplejpeg
from PIL import AvifImagePlugin, Image

from tests.vision.pictures import (
    WHITE,
    closed,
    encode,
    exif,
    flat_jpeg,
    gif_claiming,
    heic,
    noise,
    page,
    png_chunk,
    png_claiming,
    png_with,
    quarters,
    rle_bmp,
    tiff,
    turned,
    webp_claiming,
)
from trimodal.errors import InvalidArgument
from trimodal.vision.formats import TAKEN
from trimodal.vision.header import MOST_SCANS
from trimodal.vision.image import decode
from trimodal.vision.preprocess import UPRIGHT
from trimodal.vision.settings import Limits

LIMITS = Limits()


def seen(data: bytes, **options: object) -> np.ndarray:
    picture = decode(data, LIMITS, **options)
    assert picture.rgb.mode == "RGB"
    return np.asarray(picture.rgb).astype(int)


@pytest.mark.parametrize(
    ("format", "choices", "close"),
    [
        ("PNG", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("WEBP", {"quality": 95}, 12),
        ("JPEG", {"quality": 95, "subsampling": 0}, 12),
        ("JPEG", {"quality": 95, "subsampling": 0, "progressive": True}, 12),
    ],
)
def test_reads_the_three_formats_by_content(format, choices, close):
    image = quarters()
    difference = np.abs(seen(encode(image, format, **choices)) - np.asarray(image))
    assert np.percentile(difference, 95) <= close


def test_grey_palette_and_one_bit_become_rgb():
    grey = Image.linear_gradient("L").resize((32, 32))
    assert (seen(encode(grey, "PNG")) == np.asarray(grey)[..., None]).all()
    palette = quarters().quantize(8)
    assert (seen(encode(palette, "PNG")) == np.asarray(quarters())).all()
    one_bit = Image.fromarray(np.eye(16) > 0)
    assert (seen(encode(one_bit, "PNG")) == (np.eye(16) * 255)[..., None]).all()


def test_sixteen_bits_are_scaled_not_clipped():
    values = np.array([[0, 256, 32768, 65535]], np.uint16)
    assert seen(encode(Image.fromarray(values), "PNG"))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_cmyk_jpeg_shows_its_colours():
    shown = seen(encode(quarters().convert("CMYK"), "JPEG", quality=95))
    assert np.abs(shown[10, 10] - np.asarray(quarters())[10, 10]).max() < 25
    assert shown[50, 50].min() > 240


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_what_is_transparent_is_white(format):
    image = quarters().convert("RGBA")
    image.paste((9, 9, 9, 0), (0, 0, 32, 32))
    image.paste((0, 0, 0, 128), (32, 0, 64, 32))
    shown = seen(encode(image, format, lossless=True))
    assert shown[5, 5].tolist() == list(WHITE)
    assert abs(shown[5, 50, 0] - 127) <= 1


def test_transparent_palette_colour_and_transparent_grey_are_white():
    palette = quarters().quantize(8)
    corner = palette.getpixel((0, 0))
    assert seen(encode(palette, "PNG", transparency=corner))[0, 0].tolist() == list(WHITE)
    alphas = bytes(0 if index == corner else 255 for index in range(8))
    assert seen(encode(palette, "PNG", transparency=alphas))[0, 0].tolist() == list(WHITE)
    assert seen(encode(Image.new("L", (4, 4), 7), "PNG", transparency=7))[0, 0].tolist() == list(WHITE)
    grey_alpha = Image.merge("LA", (Image.new("L", (4, 4), 7), Image.new("L", (4, 4), 0)))
    assert seen(encode(grey_alpha, "PNG"))[0, 0].tolist() == list(WHITE)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_reports_the_exif_orientation(format):
    for value in range(1, 9):
        assert decode(encode(quarters(), format, exif=exif(value)), LIMITS).orientation == value


@pytest.mark.parametrize(
    "broken", [b"", b"MM\0*", b"II*\0\xff\xff\xff\xff", exif(9), exif(0), b"Exif\0\0junk"]
)
def test_odd_exif_means_upright(broken):
    data = png_with(png_chunk(b"eXIf", broken), quarters())
    assert decode(data, LIMITS).orientation == 1


def test_damaged_exif_in_a_jpeg_is_ignored_without_a_warning():
    good = exif(6)
    data = encode(quarters(), "JPEG", exif=good[:14] + b"\xff" * 40)
    assert decode(data, LIMITS).orientation == 1


def test_a_large_jpeg_is_decoded_smaller_but_not_below_what_is_needed():
    data = encode(noise(640, 480), "JPEG")
    assert decode(data, LIMITS, at_least=224).rgb.size == (320, 240)
    assert decode(data, LIMITS, at_least=256).rgb.size == (640, 480)
    assert decode(data, LIMITS, at_least=32).rgb.size == (80, 60)


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"progressive": True}, {"quality": 30}])
@pytest.mark.parametrize("at_least", [0, 32])
def test_a_jpegs_pixels_are_pillows(options, at_least):
    for image in (noise(81, 67), noise(81, 67).convert("L")):
        data = encode(image, "JPEG", **options)
        with Image.open(io.BytesIO(data)) as theirs:
            theirs.draft(None, (at_least, at_least) if at_least else None)
            assert np.array_equal(seen(data, at_least=at_least), np.asarray(theirs.convert("RGB")))


JPEGS = {
    "one scan": encode(noise(64, 64), "JPEG"),
    "grey": encode(noise(64, 64).convert("L"), "JPEG"),
    "restarts": encode(noise(64, 64), "JPEG", restart_marker_blocks=2),
    "progressive": encode(noise(64, 64), "JPEG", progressive=True),
    "grey progressive": encode(noise(64, 64).convert("L"), "JPEG", progressive=True),
    "colours of printing": encode(noise(64, 64).convert("CMYK"), "JPEG"),
}


@pytest.mark.parametrize("name", JPEGS)
@pytest.mark.parametrize("at_least", [0, 16])
def test_a_jpeg_that_was_cut_and_closed_again_is_refused(name, at_least):
    data = JPEGS[name]
    # Between two scans too, where each decoder is content: what is missing is a colour, or the detail.
    scans = [at for at in range(len(data)) if data[at : at + 2] == b"\xff\xda"]
    for at in {*range(20, len(data) - 3, 97), *scans, len(data) - 4}:
        with pytest.raises(InvalidArgument, match="image: a (truncated|damaged) JPEG file"):
            decode(data[:at] + b"\xff\xd9", LIMITS, at_least=at_least)


@pytest.mark.parametrize("name", ["PNG", "WEBP", "WEBP lossless"])
def test_a_png_or_webp_that_was_cut_and_closed_again_is_refused(name):
    format, _, lossless = name.partition(" ")
    data = encode(noise(64, 64), format, lossless=bool(lossless))
    for at in range(60, len(data) - 30, 211):
        with pytest.raises(InvalidArgument, match="image: a (truncated|damaged) (PNG|WebP) file"):
            decode(closed(data, at), LIMITS)


def test_a_jpeg_whose_scan_lost_its_place_is_refused():
    data = encode(quarters(), "JPEG")
    assert "image: a damaged JPEG file" in {told_of(flipped(data, at)) for at in range(-200, -4)}
    for at in range(-200, -4):
        with suppress(ValueError):
            simplejpeg.decode_jpeg(flipped(data, at))
            continue  # sound to libjpeg
        assert told_of(flipped(data, at)), at


def test_zeros_before_the_end_of_a_jpeg_are_no_damage():
    """Cameras fill up their frames."""
    for name, data in JPEGS.items():
        padded = data[:-2] + bytes(40) + data[-2:]
        assert np.array_equal(seen(padded), seen(data)), name
        with pytest.raises(InvalidArgument, match="image: a damaged JPEG file"):
            decode(data[:-2] + b"\1" * 40 + data[-2:], LIMITS)


def test_a_jpeg_with_bytes_too_many_between_its_segments_is_read():
    data = encode(quarters(), "JPEG")
    tables = data.index(b"\xff\xc4")
    longer = data[:tables] + b"\0\0" + data[tables:]
    with pytest.raises(ValueError, match="2 extraneous bytes"):
        simplejpeg.decode_jpeg(longer)
    assert np.array_equal(seen(longer), seen(data))
    with pytest.raises(InvalidArgument, match="image: a truncated JPEG file"):
        decode(longer[:-60] + b"\xff\xd9", LIMITS)


def told_of(data):
    """Why it is refused; "" where it is read."""
    try:
        decode(data, LIMITS)
    except InvalidArgument as error:
        return str(error)
    return ""


def flipped(data, at):
    made = bytearray(data)
    made[at] ^= 0x10
    return bytes(made)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", f"image: empty; {TAKEN} bytes are needed"),
        (b"hello", f"image: not a {TAKEN} file"),
        (b"\0" * 4 + b"ftypisom" + bytes(8), f"image: an MP4 or QuickTime file, not a {TAKEN} file"),
        (b"<?xml version='1.0'?>\n<svg width='9'/>", "image: an SVG file, not a JPEG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image: an SVG file, not a JPEG"),
        (b"%PDF-1.7", "image: a PDF file, not a JPEG"),
        (b"ID3\4", "image: an MP3 file, not a JPEG"),
        (base64.b64encode(encode(noise(64, 64), "JPEG")), "image: base64 text: the file's own bytes"),
        (base64.urlsafe_b64encode(encode(quarters(8), "PNG")), "image: base64 text: the file's own bytes"),
        (b"data:image/png;base64,iVBORw0KGgo=", "image: a data URL: the file's own bytes are needed"),
        (b"a text of letters", f"image: not a {TAKEN} file"),
        (encode(noise(64, 64), "GIF")[:900], "image: a truncated GIF file"),
        (encode(noise(64, 64), "BMP")[:900], "image: a truncated BMP file"),
        (encode(noise(64, 64), "TIFF")[:-9], "image: a truncated TIFF file"),
        (encode(noise(64, 64), "AVIF")[:900], "image: a damaged AVIF file"),
        (encode(noise(64, 64).convert("F"), "TIFF"), "image: a TIFF file of BitsPerSample 32; grey, palette"),
        (encode(noise(8, 8), "BMP")[:20], "image: a truncated BMP file"),
        (rle_bmp(), "image: a BMP file whose pixels are compressed; plain ones are accepted"),
        (gif_claiming(65_535, 9), "image: 65535 × 9 pixels; at most 16384 a side are accepted"),
        (encode(noise(64, 64), "PNG")[:200], "image: a truncated PNG file"),
        (encode(quarters(), "WEBP")[:100], "image: a truncated WebP file"),
        (encode(noise(64, 64), "JPEG")[:900], "image: a truncated JPEG file"),
        (png_claiming(4, 4000), "image: a truncated PNG file"),
        (png_claiming(0, 5), "image: 0 × 5 pixels; at least 1 a side are needed"),
        (png_claiming(50_000, 2), "image: 50000 × 2 pixels; at most 16384 a side are accepted"),
        (png_claiming(8_064, 6_048), "image: a truncated PNG file"),  # as large as a telephone's picture
        (png_claiming(16_000, 16_000), "16000 × 16000 pixels; at most 50000000 in all are accepted"),
        (webp_claiming(1 << 24, 1 << 24), "16777216 × 16777216 pixels; at most 16384 a side"),
        (webp_claiming(16_000, 16_000), "at most 50000000 in all are accepted"),
        (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND", b""), "image: a PNG without a header"),
        (png_with(png_chunk(b"acTL", b"\0" * 8), quarters()), "a PNG whose animation header is damaged"),
    ],
)
def test_refuses_with_a_sentence_that_names_the_limit(data, told):
    with pytest.raises(InvalidArgument) as caught:
        decode(data, LIMITS)
    assert told in str(caught.value)


def test_a_jpeg_bomb_is_refused_from_its_header():
    data = bytearray(encode(quarters(), "JPEG"))
    start = data.index(b"\xff\xc0")
    data[start + 5 : start + 9] = b"\xff\x00\xff\x00"
    with pytest.raises(InvalidArgument, match="65280 × 65280 pixels; at most 16384 a side"):
        decode(bytes(data), LIMITS)


def test_a_jpeg_of_endless_scans_is_refused():
    data = encode(noise(40, 30), "JPEG", progressive=True)
    assert decode(data, LIMITS).rgb.size == (40, 30)
    last = data.rindex(b"\xff\xda")
    with pytest.raises(InvalidArgument, match="a JPEG of 109 scans; at most 50 are accepted"):
        decode(data[:last] + data[last:-2] * 100 + data[-2:], LIMITS)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF"])
def test_what_stands_behind_a_picture_is_no_part_of_it(format):
    choices = {"exif": exif(1)} if format == "WEBP" else {}  # with metadata its chunks are walked
    data = encode(quarters(), format, **choices)
    film = random.Random(1).randbytes(8_000_000)  # of a motion photo
    assert film.count(b"\xff\xda") > MOST_SCANS
    for behind in (film, bytes(100_000)):
        assert np.array_equal(seen(data + behind), seen(data))


@pytest.mark.parametrize("format", ["PNG", "WebP", "GIF", "AVIF", "TIFF"])
def test_animated_files_are_refused(format):
    data = encode(quarters(), format.upper(), save_all=True, append_images=[noise(64, 64), noise(64, 64, 1)])
    told = f"an? {'' if format == 'TIFF' else 'animated '}{format} file of 3 (frames|pages); a single one"
    with pytest.raises(InvalidArgument, match=told):
        decode(data, LIMITS)


def test_a_heic_file_of_several_pictures_is_refused():
    with pytest.raises(InvalidArgument, match="an animated HEIC file of 2 frames; a single one is accepted"):
        decode(heic(quarters(), noise(64, 64)), LIMITS)


@pytest.mark.parametrize("format", ["GIF", "BMP", "TIFF", "AVIF", "HEIC"])
def test_reads_what_else_strangers_send(format):
    for image in (quarters(), quarters().convert("L")):
        data = heic(image) if format == "HEIC" else encode(image, format)
        difference = np.abs(seen(data) - np.asarray(image.convert("RGB")))
        assert np.percentile(difference, 90) <= (0 if format in ("GIF", "BMP", "TIFF") else 12)


@pytest.mark.parametrize("built", ["before 11.3", "without libavif"])
def test_avif_is_refused_by_name_where_pillow_does_not_read_it(monkeypatch, built):
    data = encode(quarters(), "AVIF")
    if built == "before 11.3":
        monkeypatch.delattr(PIL, "AvifImagePlugin")
        monkeypatch.setitem(sys.modules, "PIL.AvifImagePlugin", None)
    else:
        monkeypatch.setattr(AvifImagePlugin, "SUPPORTED", False)
    assert told_of(data) == (
        'image: an AVIF file, which this server\'s Pillow does not read: pip install "pillow>=11.3"'
    )


def test_heic_without_its_decoder_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    data = b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic"
    assert told_of(data) == (
        "image: a HEIC file, which this server does not read without pillow-heif: pip install pillow-heif"
    )


@pytest.mark.parametrize("choices", [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"}])
@pytest.mark.parametrize("value", range(1, 9))
def test_a_tiff_and_an_avif_are_seen_upright(choices, value):
    upright = np.asarray(quarters(64))
    for data in (
        encode(turned(quarters(64), value), "TIFF", tiffinfo={274: value}, **choices),
        encode(turned(quarters(64), value), "AVIF", exif=exif(value), quality=95),
    ):
        picture = decode(data, LIMITS)
        turn = UPRIGHT.get(picture.orientation)
        shown = picture.rgb.transpose(turn) if turn is not None else picture.rgb
        assert np.percentile(np.abs(np.asarray(shown).astype(int) - upright), 90) <= 12


def test_transparent_gifs_are_white_and_sixteen_bits_of_tiff_are_scaled():
    gif = encode(Image.new("P", (4, 4), 3), "GIF", transparency=3)
    assert seen(gif)[0, 0].tolist() == list(WHITE)
    for order in ("<u2", ">u2"):
        values = np.array([[0, 256, 32768, 65535]], order)
        assert seen(encode(Image.fromarray(values), "TIFF"))[0, :, 0].tolist() == [0, 1, 128, 255]


GREY = bytes(range(256))
BOMB = zlib.compress(bytes(1000))


def test_a_plain_tiff_is_read_in_either_order_and_with_its_thumbnail():
    for order, kind in (("<", "I"), ("<", "H"), (">", "I"), (">", "H")):
        for pages in ([page()], [page(t254=2)], [page(), page(4, 4, t254=1)], [page(), page(t254=4)]):
            shown = seen(tiff(*pages, body=GREY, order=order, kind=kind))
            assert shown[..., 0].tolist() == np.arange(256).reshape(16, 16).tolist()
    white = seen(tiff(page(t262=0), body=GREY))  # where 0 is white
    assert white[..., 0].tolist() == np.arange(256)[::-1].reshape(16, 16).tolist()
    twelve = {256: 16, 257: 16, 258: 8, 259: 1, 262: 1, 322: 16, 323: 16, 324: 8, 325: 256}
    assert (seen(tiff(twelve, body=GREY)) == seen(tiff(page(), body=GREY))).all()


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    ("pages", "told"),
    [
        ([page(t254=2)] * 3, "image: a TIFF file of 3 pages; a single one is accepted"),  # as scanners write
        ([page(), page(t254=1), page()], "image: a TIFF file of 2 pages; a single one is accepted"),
        ([page(4, 4, t254=1)], "image: a TIFF file that begins with a preview or a mask; grey,"),  # a DNG
        ([page(4, 4, t254=1), page()], "image: a TIFF file that begins with a preview or a mask; grey,"),
        ([page(t258=12)], "image: a TIFF file of BitsPerSample 12; grey, palette, RGB and CMYK of up to"),
        ([page(t258=16, t262=0)], "image: a TIFF file of PhotometricInterpretation 0; grey,"),
        ([page(t262=8)], "image: a TIFF file of PhotometricInterpretation 8; grey,"),  # LAB
        ([page(t262=6)], "image: a TIFF file of PhotometricInterpretation 6; grey,"),  # YCbCr
        ([page(t339=2)], "image: a TIFF file of SampleFormat 2; grey,"),
        ([page(t259=7)], "image: a TIFF file of Compression 7; grey,"),  # JPEG: its scans are not bounded
        ([{}] * 4097, "image: a TIFF file of more than 4096 parts"),
        ([page() | dict.fromkeys(range(1000, 6000), 0)], "image: a TIFF file of more than 4096 parts"),
    ],
)
def test_other_tiffs_are_refused_by_name(pages, told, order):
    assert told_of(tiff(*pages, body=GREY, order=order, kind="H")).startswith(told)


def test_the_pages_of_a_tiff_may_overlap_and_have_an_end_all_the_same():
    told = "image: a TIFF file of more than 4096 parts"
    circle = tiff(page(), body=GREY)
    assert told_of(circle[:-4] + circle[4:8]) == told
    # Of 3,000 tags each, and 14 bytes apart: no more than the first two are looked at.
    pages = b"".join(struct.pack("<HIII", 3000, 0, 0, 8 + 14 * (at + 1)) for at in range(10_000))
    far = bytearray(tiff() + pages)
    struct.pack_into("<I", far, 8 + 2 + 12 * 3000, 22)
    struct.pack_into("<I", far, 22 + 2 + 12 * 3000, 36)
    assert told_of(bytes(far)) == told
    assert told_of(tiff(page(t34665=8), body=b"\xff\xff" + GREY)) == told
    assert told_of(tiff(page(t34665=8, t273=10), body=b"\1\0" + GREY)) == ""


def test_a_tiff_whose_tiles_are_larger_than_the_picture_may_be_is_refused():
    """libtiff unpacks a whole tile, of however small a picture."""
    bomb = page(t259=8, t277=1, t322=16_000, t323=16_000, t324=8, t325=len(BOMB))
    assert told_of(tiff(bomb, body=BOMB)) == (
        "image: 16000 × 16000 pixels; at most 50000000 in all are accepted"
    )
    assert "at most 50000 are accepted" in told_of(_many(tiff(page(), body=GREY), 273, 60_000))
    assert told_of(_many(tiff(page(), body=GREY), 256, 9)) == "image: a TIFF file whose tag 256 is damaged"
    twice = tiff(page(t255=16_000), body=GREY).replace(
        struct.pack("<HHI", 255, 4, 1), struct.pack("<HHI", 256, 4, 1)
    )
    assert told_of(twice) == "image: a TIFF file whose tag 256 is damaged"


def _many(file, tag, count):
    return file.replace(struct.pack("<HHI", tag, 4, 1), struct.pack("<HHI", tag, 4, count))


def test_files_of_thousands_of_small_parts_are_refused():
    gif, png, webp = encode(noise(64, 64), "GIF"), encode(noise(64, 64), "PNG"), encode(noise(64, 64), "WEBP")
    jpeg = encode(noise(64, 64), "JPEG")
    pixels = gif.index(b"\x2c\0\0\0\0") + 11
    chunks = b"VP8X" + struct.pack("<I", 10) + bytes(10) + b"JUNK\0\0\0\0" * 5000
    for name, data in {
        "GIF": gif[: 13 + 768] + b"!\xfe" + b"\1a" * 5000 + b"\0" + gif[13 + 768 :],
        "GIF of frames": gif[:pixels] + b"\1a" * 5000 + gif[pixels:],
        "GIF of notes": gif[: 13 + 768] + b"!\xfe\0" * 5000 + gif[13 + 768 :],
        "JPEG": jpeg[:2] + b"\xff\xfe\0\2" * 5000 + jpeg[2:],
        "JPEG of junk": jpeg[:2] + b"\xff\0" * 5000 + jpeg[2:],
        "PNG": png_with(png_chunk(b"noTe", b"") * 5000, noise(64, 64)),
        "WebP": b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks,
    }.items():
        assert told_of(data).startswith(f"image: a {name.split()[0]} file of more than 4"), name
    for data in (gif, png, webp, jpeg):
        assert not told_of(data)


@pytest.mark.parametrize("factors", [(0x31, 0x11, 0x11), (0x42, 0x11, 0x11), (0x22, 0x21, 0x11)])
def test_jpegs_of_unusual_subsampling_are_read(factors):
    data = flat_jpeg(factors)
    with pytest.raises(ValueError, match="subsampling"):
        simplejpeg.decode_jpeg(data)
    assert (seen(data) == 128).all()
    assert (seen(data, at_least=16) == 128).all()
    assert told_of(data[:-20]) == "image: a truncated JPEG file"


def test_a_jpeg_over_the_limit_is_decoded_at_half_its_size():
    limits = Limits(max_pixels=60 * 50)
    photo = encode(noise(120, 100), "JPEG")
    assert decode(photo, limits).rgb.size == (60, 50)
    assert decode(photo, limits, at_least=20).rgb.size == (30, 25)
    assert decode(encode(noise(60, 50), "JPEG"), limits).rgb.size == (60, 50)
    told = "120 × 100 pixels; at most 3000 in all"
    for data, said in (
        (encode(noise(121, 100), "JPEG"), "121 × 100 pixels; at most 12000 in all"),
        (encode(noise(120, 100), "JPEG", progressive=True), told),  # libjpeg holds all of its coefficients
        (encode(noise(120, 100).convert("CMYK"), "JPEG"), told),
        (encode(noise(120, 100), "PNG"), told),
    ):
        with pytest.raises(InvalidArgument, match=said):
            decode(data, limits)


def test_the_limits_are_the_callers_and_the_field_is_named():
    data = encode(noise(64, 48), "PNG")
    for limits, told in [
        (Limits(max_bytes=100), f"image[3]: {len(data)} bytes; at most 100 are accepted"),
        (Limits(max_pixels=3071), "image[3]: 64 × 48 pixels; at most 3071 in all are accepted"),
        (Limits(max_side=63), "image[3]: 64 × 48 pixels; at most 63 a side are accepted"),
    ]:
        with pytest.raises(InvalidArgument) as caught:
            decode(data, limits, name="image[3]")
        assert str(caught.value) == told
    assert decode(data, Limits(max_bytes=len(data), max_pixels=3072, max_side=64)).rgb.size == (64, 48)
