"""Does torchvision's preprocessing of a Pillow image, for comparison: it does not load beside this torch.

From torchvision 0.25, `transforms/functional.py` (_compute_resized_output_size, resize, center_crop) and
`transforms/_functional_pil.py` (resize, crop): BSD-3-Clause.
"""

from __future__ import annotations

from PIL import Image


def resize(image: Image.Image, size: int, interpolation: Image.Resampling) -> Image.Image:
    """transforms.Resize(size): the shorter side becomes `size`."""
    width, height = image.size
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = size, int(size * long / short)
    new_width, new_height = (new_short, new_long) if width <= height else (new_long, new_short)
    return image.resize((new_width, new_height), interpolation)


def center_crop(image: Image.Image, height: int, width: int) -> Image.Image:
    """transforms.CenterCrop((height, width)) of an image that is at least as large."""
    top = int(round((image.height - height) / 2.0))  # noqa: RUF046
    left = int(round((image.width - width) / 2.0))  # noqa: RUF046
    return image.crop((left, top, left + width, top + height))
