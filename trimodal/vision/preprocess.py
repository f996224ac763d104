"""Makes a picture the classifier's input: turned upright, resized, cropped, channels first.

The artefact's `InputSpec` says how. The pixels are those of torchvision's Resize and CenterCrop on a Pillow
image, bit by bit; only a strip a hundred times as long as it is wide may differ by one level. They stay
bytes: the classifier's graph applies mean and std, so that each copy on the way to it is a quarter of what
floats would take.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Pixels
from trimodal.vision.image import Picture, decode
from trimodal.vision.settings import Limits

FILTERS = {
    name: Image.Resampling[name.upper()]
    for name in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
}
# What to do with stored pixels so that they are seen upright, by EXIF orientation.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
WHOLE = 1 << 23  # pixels of a resized picture; of one that would have more, its middle alone is made
MARGIN = 4  # pixels around a part that the widest filter may read, at its size or larger
REDUCING_GAP = 3.0  # Pillow's: first by whole numbers, to 3 times the size that is wanted


class Preprocessor:
    """Prepares one image at a time; safe to call from several threads.

    `shrink_on_load` decodes a large JPEG at a half, a quarter or an eighth of its size: quicker, and not
    torchvision's pixels.
    """

    def __init__(self, spec: InputSpec, limits: Limits, *, shrink_on_load: bool = False) -> None:
        self.spec = spec
        self._limits = limits
        self._filter = FILTERS[spec.filter]
        self._gap = REDUCING_GAP if shrink_on_load else None
        self._at_least = spec.shorter if shrink_on_load else 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one prepared image: 3, height, width."""
        return 3, self.spec.height, self.spec.width

    def prepare(self, data: bytes, out: Pixels, *, name: str = "image") -> None:
        """Decodes one image into `out`, uint8[3, H, W]. Raises InvalidArgument as `image.decode` does."""
        self.lay_out(self.fit(decode(data, self._limits, at_least=self._at_least, name=name)), out)

    def fit(self, picture: Picture) -> Image.Image:
        """Turns the picture upright and fits it to the classifier's height and width."""
        turn = UPRIGHT.get(picture.orientation)
        image = picture.rgb if turn is None else picture.rgb.transpose(turn)
        spec = self.spec
        if spec.resize == "exact":
            return self._resize(image, (spec.width, spec.height))
        if spec.resize == "exact-crop":
            return self._crop(self._resize(image, (spec.shorter, spec.shorter)))
        longer = int(spec.shorter * max(image.size) / min(image.size))  # cut off, as torchvision does
        if longer * spec.shorter > WHOLE:
            return self._crop(self._middle(image, longer))
        tall = image.height > image.width
        return self._crop(self._resize(image, (spec.shorter, longer) if tall else (longer, spec.shorter)))

    def lay_out(self, image: Image.Image, out: Pixels) -> None:
        """Writes the image's channels into `out` uint8[3, H, W]."""
        for channel, plane in zip(out, image.split(), strict=True):
            channel[...] = np.asarray(plane)

    def _resize(self, image: Image.Image, size: tuple[int, int]) -> Image.Image:
        return image if image.size == size else image.resize(size, self._filter, reducing_gap=self._gap)

    def _crop(self, image: Image.Image) -> Image.Image:
        """The centre; nothing to do along a side that has its length already."""
        spec = self.spec
        left, top = (self._start(a, b) for a, b in zip(image.size, (spec.width, spec.height), strict=True))
        return image.crop((left, top, left + spec.width, top + spec.height))

    def _start(self, whole: int, part: int) -> int:
        """Where the centre begins: rounded as torchvision does, or cut off as transformers does."""
        return round((whole - part) / 2) if self.spec.crop_offset == "round" else (whole - part) // 2

    def _middle(self, image: Image.Image, longer: int) -> Image.Image:
        """The part of a resized strip that the crop leaves: all of it would be many millions of pixels.

        Pillow may round it otherwise than the whole, by one level here and there.
        """
        spec = self.spec
        tall = image.height > image.width
        length, kept = max(image.size), spec.height if tall else spec.width
        scale = length / longer
        start, end = (edge * scale for edge in (self._start(longer, kept), self._start(longer, kept) + kept))
        # Cut to whole pixels first: Pillow's boxes are floats of 32 bits, exact enough near 0 alone.
        margin = math.ceil(MARGIN * max(scale, 1.0))
        low, high = max(0, math.floor(start) - margin), min(length, math.ceil(end) + margin)
        if tall:
            part = image.crop((0, low, image.width, high))
            return part.resize((spec.shorter, kept), self._filter, (0, start - low, image.width, end - low))
        part = image.crop((low, 0, high, image.height))
        return part.resize((kept, spec.shorter), self._filter, (start - low, 0, end - low, image.height))
