"""A microphone played by a module in sounddevice's place."""

import sys
import threading
import types

import numpy as np
import pytest

from trimodal.audio import microphone
from trimodal.audio.files import AudioError
from trimodal.audio.microphone import record


class PortAudioError(Exception):
    pass


class FakeSoundDevice(types.ModuleType):
    """A device that counts: sample n is n / 1e6.

    It gives `blocks` blocks, then nothing; whoever asks whether it is still there gets `later` more.
    """

    PortAudioError = PortAudioError

    def __init__(self, *, rate=48_000, any_rate=True, blocks=40, devices=1, active=True, later=0):
        super().__init__("sounddevice")
        self.rate, self.any_rate, self.blocks, self.devices = rate, any_rate, blocks, devices
        self.active, self.later = active, later  # active: PortAudio's word for it until the device is gone
        self.opened = None
        self.closed = threading.Event()

    def query_devices(self, kind):
        assert kind == "input"
        if not self.devices:
            raise PortAudioError("Error querying device -1")
        return {"default_samplerate": float(self.rate)}

    def check_input_settings(self, *, channels, dtype, samplerate):
        if not self.any_rate and samplerate != self.rate:
            raise PortAudioError("Invalid sample rate")

    def InputStream(self, *, samplerate, channels, dtype, blocksize, callback):  # noqa: N802
        self.opened = (samplerate, channels, dtype, blocksize)
        module = self

        class Stream:
            def __init__(self):
                self.given = 0

            def __enter__(self):
                self.give(module.blocks)
                return self

            def give(self, blocks):
                buffer = np.empty((blocksize, 1), np.float32)  # PortAudio's own, used again and again
                for _ in range(blocks):
                    buffer[:, 0] = np.arange(self.given * blocksize, (self.given + 1) * blocksize) / 1e6
                    callback(buffer, blocksize, None, None)
                    self.given += 1

            @property
            def active(self):
                if module.active:
                    self.give(module.later)
                return module.active

            def __exit__(self, *error):
                module.closed.set()

        return Stream()


@pytest.fixture
def device(monkeypatch):
    def make(**more):
        module = FakeSoundDevice(**more)
        monkeypatch.setitem(sys.modules, "sounddevice", module)
        return module

    return make


def test_chunks_at_16_khz(device):
    module = device()
    blocks = record(0.1)
    heard = np.concatenate([next(blocks) for _ in range(5)])
    assert module.opened == (16_000, 1, "float32", 1_600)
    np.testing.assert_array_equal(heard, np.arange(8_000, dtype=np.float32) / np.float32(1e6))
    assert not module.closed.is_set()
    blocks.close()
    assert module.closed.is_set()


def test_a_device_with_a_rate_of_its_own_is_resampled(device):
    module = device(any_rate=False, rate=48_000)
    blocks = record(0.1)
    heard = [next(blocks) for _ in range(20)]
    assert module.opened == (48_000, 1, "float32", 4_800)
    assert {len(block) for block in heard} == {1_600}
    # The ramp rises by 3 samples of 48 kHz a sample of 16 kHz.
    np.testing.assert_allclose(np.diff(np.concatenate(heard)[2_000:20_000]), 3e-6, atol=1e-6)


def test_a_server_that_is_too_slow_ends_it(device, monkeypatch):
    monkeypatch.setattr(microphone, "PATIENCE_S", 1.0)
    device(blocks=30)
    with pytest.raises(AudioError, match="too slow"):
        list(record(0.1))


def test_one_that_is_unplugged_ends_it_with_what_was_heard_before(device, monkeypatch):
    monkeypatch.setattr(microphone, "_LOOK_S", 0.0)
    device(blocks=3, active=False)
    heard = record(0.1)
    assert [len(next(heard)) for _ in range(3)] == [1_600] * 3
    with pytest.raises(AudioError, match="it was unplugged, or its recording ended"):
        next(heard)


def test_one_that_is_silent_for_a_while_goes_on(device, monkeypatch):
    monkeypatch.setattr(microphone, "_LOOK_S", 0.0)
    device(blocks=1, later=2)
    blocks = record(0.1)
    heard = np.concatenate([next(blocks) for _ in range(4)])
    np.testing.assert_array_equal(heard, np.arange(6_400, dtype=np.float32) / np.float32(1e6))
    blocks.close()


def test_no_microphone(device):
    device(devices=0)
    with pytest.raises(AudioError, match="no microphone: Error querying device -1"):
        next(record(0.1))
