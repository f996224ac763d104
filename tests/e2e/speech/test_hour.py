"""An hour of audio through one stream on the real server: every word once, at its time, in flat memory.

On the demo model: `python -m tests.e2e.speech.hour` prints the figures.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.speech.hour import CHUNK_S, Hour, listen, report, tones
from tests.e2e.speech.streams import MODELS, changes, spelled
from trimodal.audio.values import SAMPLE_RATE, PolicyName
from trimodal.server.process import TritonServer
from trimodal.speech.settings import SpeechSettings

pytestmark = pytest.mark.e2e

MINUTES = 60
DRIFT_S = 0.02
# What a stream that is far behind may hold at one minute and not at another: max_pending_s and a chunk,
# in a buffer with room for twice as much, and the chunk again on its way in; float32. Allocators add some.
HELD_S = 2 * (SpeechSettings().max_pending_s + CHUNK_S) + 2 * CHUNK_S
GROWTH_MIB = HELD_S * SAMPLE_RATE * 4 / 2**20 + 6


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["live", "vad", "window"])
async def test_an_hour_through_one_stream(serve: Callable[..., TritonServer], policy: PolicyName) -> None:
    hour = await listen(serve(MODELS, changes()), tones(MINUTES), policy)
    print("\n" + report(hour))
    assert spelled(hour.heard) == spelled(hour.said)
    for heard, said in zip(hour.heard, hour.said, strict=True):
        assert abs(heard.start - said.start) < DRIFT_S
        assert abs(heard.end - said.end) < DRIFT_S
    assert hour.audio_s >= MINUTES * 60
    kept = (MINUTES - 10) * 60 * SAMPLE_RATE * 4 / 2**20
    assert kept > 8 * GROWTH_MIB, "what would be seen if a stream kept its audio"
    growth = hour.growth(since=9)
    assert max(growth["speech"], growth["speech_recognize"]) < GROWTH_MIB, growth


def test_a_drift_and_growth_would_be_seen() -> None:
    hour = Hour()
    for _, words in tones(10):
        hour.said += [word.shifted(60.0 * len(hour.said)) for word in words]
    hour.heard = [word.shifted(0.1 + n * 1e-4) for n, word in enumerate(hour.said) if n % 7]
    hour.memory = [{"speech": 40.0 + minute} for minute in range(60)]
    assert hour.drift_s == pytest.approx(1e-4 * (len(hour.said) - 233), abs=2e-3)
    assert hour.growth(since=9) == {"speech": 50.0}
