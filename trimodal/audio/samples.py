"""Reads audio samples out of a request's tensors; each refusal names the field and the limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import Samples
from trimodal.errors import InvalidArgument

# Above full scale a little is clipping or gain; a lot is integers that were cast to float.
MAX_LEVEL = 8.0


def one_channel(inputs: Mapping[str, Any]) -> tuple[str, NDArray[Any]] | None:
    """Name and flat values of the field that was given, `audio` (FP32) or `audio_int16`; None: neither was.

    Raises InvalidArgument: both were, or there is more than one channel.
    """
    given = [name for name in ("audio", "audio_int16") if inputs.get(name) is not None]
    if not given:
        return None
    if len(given) == 2:
        raise InvalidArgument("audio, audio_int16: give one of them, not both")
    (name,) = given
    array = inputs[name]
    if array.ndim > 2 or (array.ndim == 2 and array.shape[0] != 1):
        raise InvalidArgument(f"{name}: shape {list(array.shape)}; one channel is taken, as [1, samples]")
    return name, array.reshape(-1)


def to_float(name: str, flat: NDArray[Any]) -> Samples:
    """A copy as float32: integers become fractions of full scale, floats go through `check_samples`."""
    if name == "audio_int16":
        return np.asarray(flat / np.float32(32768), np.float32)
    samples = np.array(flat, np.float32)  # a copy: the tensor's memory is the server's
    check_samples(samples, name)
    return samples


def check_samples(samples: Samples, name: str) -> None:
    """Refuses samples that are not finite or far beyond full scale, [-1, 1], with InvalidArgument."""
    if not len(samples):
        return
    # Where there is a NaN, minimum and maximum are NaN too.
    low, high = float(samples.min()), float(samples.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        at = int(np.flatnonzero(~np.isfinite(samples))[0])
        raise InvalidArgument(
            f"{name}: sample {at} is {samples[at]}; FP32 samples are finite, within [-1, 1]"
        )
    if max(-low, high) > MAX_LEVEL:
        integers = ", integers go into audio_int16" if name == "audio" else ""
        raise InvalidArgument(
            f"{name}: a sample of {max(-low, high):.6g}; FP32 samples lie within [-1, 1]{integers}"
        )
