import numpy as np
import pytest

from trimodal.audio.values import SAMPLE_RATE
from trimodal.speech.whisper.features import log_mel, smallest_context


def sound(seconds, seed=0):
    """Tones that glide and fade under a little noise."""
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    noise = np.random.default_rng(seed).normal(0, 0.01, len(times))
    tones = sum(np.sin(2 * np.pi * pitch * times * (1 + 0.05 * times)) for pitch in (150, 620, 2400))
    return np.asarray(0.2 * tones * np.exp(-0.3 * times) + noise, np.float32)


@pytest.mark.build
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize(
    ("seconds", "context_s"), [(0.02, 5), (3.21, 5), (4.995, 5), (5, 5), (7, 30), (30, 30)]
)
def test_the_same_numbers_as_transformers(seconds, context_s, bands):
    from transformers import WhisperFeatureExtractor

    samples = sound(seconds)
    extractor = WhisperFeatureExtractor(feature_size=bands, chunk_length=context_s)
    expected = extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="np").input_features[0]
    features = log_mel(samples, context_s, bands)
    assert features.shape == (bands, context_s * 100) == expected.shape
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected, atol=2e-4)


@pytest.mark.parametrize("seconds", [1, 3.21])
def test_zeros_are_added_as_faster_whisper_does(seconds):
    extractor = pytest.importorskip("faster_whisper.feature_extractor").FeatureExtractor()
    samples = sound(seconds)
    expected = extractor(samples)[:, :-1]  # its transcribe() leaves the last frame out
    features = log_mel(samples, 5, 80, padding="zeros")
    np.testing.assert_allclose(features[:, : expected.shape[1]], expected, atol=2e-4)
    assert (features[:, expected.shape[1] :] == 0).all()


@pytest.mark.parametrize(
    ("samples", "context_s"),
    [(1, 6.0), (80_000, 6.0), (80_001, 12.0), (160_000, 12.0), (160_001, 30.0), (480_000, 30.0)],
)
def test_the_first_context_that_holds_the_window_and_silence_after_it(samples, context_s):
    assert smallest_context((6.0, 12.0, 30.0), samples) == context_s


def test_what_fits_nowhere_is_an_error():
    with pytest.raises(ValueError, match="480001 samples do not fit into 30.0 s"):
        smallest_context((5.0, 30.0), 480_001)
    with pytest.raises(ValueError, match="80001 samples do not fit into 5 s"):
        log_mel(np.zeros(80_001, np.float32), 5, 80)
