import numpy as np

from trimodal.audio.values import Samples


def loud(*spans: tuple[float, float]) -> Samples:
    """Noise: seconds and level of each span."""
    generator = np.random.default_rng(0)
    parts = [generator.normal(0, 1, round(seconds * 16_000)) * level for seconds, level in spans]
    return np.concatenate(parts).astype(np.float32)
