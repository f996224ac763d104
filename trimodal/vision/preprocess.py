"""Makes a picture the classifier's input: resized, cropped, turned upright, channels first.

The artefact's `InputSpec` says how. Pixels stay bytes: the classifier's graph applies mean and std, so that
each copy on the way to it is a quarter of what floats would take.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Pixels
from trimodal.vision.image import Picture, decode
from trimodal.vision.settings import Limits

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
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


class Preprocessor:
    """Prepares one image at a time; safe to call from several threads."""

    def __init__(self, spec: InputSpec, limits: Limits) -> None:
        self.spec = spec
        self._limits = limits
        self._at_least = spec.shorter if spec.resize == "crop" else max(spec.height, spec.width)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one prepared image: 3, height, width."""
        return 3, self.spec.height, self.spec.width

    def prepare(self, data: bytes, out: Pixels, *, name: str = "image") -> None:
        """Decodes one image into `out`, uint8[3, H, W]. Raises InvalidArgument as `image.decode` does."""
        self.lay_out(self.fit(decode(data, self._limits, at_least=self._at_least, name=name)), out)

    def fit(self, picture: Picture) -> Image.Image:
        """Turns the picture upright and fits it to the classifier's height and width."""
        spec = self.spec
        lies = picture.orientation >= 5
        width, height = (spec.height, spec.width) if lies else (spec.width, spec.height)
        image = picture.rgb
        box: tuple[float, float, float, float] | None = None
        step = 0.0
        if spec.resize == "crop":
            # Only the part that stays is resized: a strip of 1 × 16,000 pixels costs no more than a square.
            step = min(image.size) / spec.shorter
            left, top = (image.width - width * step) / 2, (image.height - height * step) / 2
            box = (left, top, left + width * step, top + height * step)
        if box and step == 1 and all(edge.is_integer() for edge in box):
            image = image.crop(box)  # nothing to scale: the same pixels for a tenth of the time
        elif image.size != (width, height) or box not in (None, (0, 0, width, height)):
            image = image.resize((width, height), FILTERS[spec.filter], box=box, reducing_gap=3.0)
        turn = UPRIGHT.get(picture.orientation)
        return image if turn is None else image.transpose(turn)

    def lay_out(self, image: Image.Image, out: Pixels) -> None:
        """Writes the image's channels into `out` uint8[3, H, W]."""
        for channel, plane in zip(out, image.split(), strict=True):
            channel[...] = np.asarray(plane)
