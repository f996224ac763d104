"""Recordings that soundfile writes here, read again."""

import errno
import io
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import soundfile

from trimodal.audio import files
from trimodal.audio.files import AudioError, read_blocks, read_raw

RATE = 16_000


def tone(duration, rate=RATE, frequency=440.0):
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(round(duration * rate)) / rate).astype(np.float32)


def read(path, block_s=1.0):
    return np.concatenate(list(read_blocks(path, block_s)))


@pytest.mark.parametrize("path", ["a\0b.wav", "\ud800.wav"], ids=ascii)
def test_what_no_path_can_be_is_told(path):
    with pytest.raises(AudioError, match="is no path"):
        read(path)


def test_a_file_at_the_right_rate_comes_out_bit_by_bit(tmp_path):
    samples = tone(2.5)
    soundfile.write(tmp_path / "a.wav", samples, RATE, subtype="FLOAT")
    blocks = list(read_blocks(tmp_path / "a.wav", 1.0))
    assert [len(block) for block in blocks] == [16_000, 16_000, 8_000]
    assert {block.dtype for block in blocks} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(np.concatenate(blocks), samples)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("rate", [RATE, 8_000])
def test_samples_that_are_no_sound_are_refused(tmp_path, value, rate):
    samples = tone(0.5, rate)
    samples[1000] = value
    soundfile.write(tmp_path / "a.wav", samples, rate, subtype="FLOAT")
    with pytest.raises(AudioError, match="no finite numbers, or no sound"):
        read(tmp_path / "a.wav")


FORMS = [(8_000, 1), (22_050, 2), (44_100, 1), (48_000, 6)]


@pytest.mark.parametrize(("rate", "channels"), FORMS)
@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_rates_and_channels(tmp_path, name, rate, channels):
    soundfile.write(tmp_path / name, np.repeat(tone(3.0, rate)[:, None], channels, axis=1), rate)
    heard = read(tmp_path / name, 0.7)
    assert len(heard) == 3 * RATE
    inner = slice(RATE // 2, -RATE // 2)  # at the borders the filter sees silence
    np.testing.assert_allclose(heard[inner], tone(3.0)[inner], atol=2e-3)


@pytest.mark.parametrize("name", ["a.mp3", "a.ogg"])
def test_files_that_lose_a_little(tmp_path, name):
    soundfile.write(tmp_path / name, np.repeat(tone(3.0, 44_100)[:, None], 2, axis=1), 44_100)
    heard = read(tmp_path / name, 0.7)
    assert 3 * RATE <= len(heard) <= 3.3 * RATE  # whole frames, and the encoder's delay
    spectrum = np.abs(np.fft.rfft(heard[RATE : 2 * RATE]))
    assert spectrum.argmax() == 440
    assert (spectrum[430:450] ** 2).sum() > 0.99 * (spectrum**2).sum()


@pytest.mark.parametrize(
    ("name", "tag"),
    [(f"a.{kind}", b"") for kind in ("mp3", "ogg", "opus", "flac")] + [("a.mp3", b"ID3\4\0\0\0\0\0\5abcde")],
)
def test_recordings_one_behind_the_other_are_all_read(tmp_path, name, tag):
    """As `cat` joins them, or a radio's songs that were kept; each has its own rate and channels."""
    joined, whole = b"", []
    for frequency, rate, channels in [(300, 48_000, 2), (600, 24_000, 1), (900, 48_000, 1)]:
        form = {"format": "OGG", "subtype": "OPUS"} if name == "a.opus" else {}
        noise = np.random.default_rng(frequency).normal(0, 0.05, 2 * rate)
        samples = np.repeat((tone(2.0, rate, frequency) + noise)[:, None], channels, axis=1)
        soundfile.write(tmp_path / name, samples, rate, **form)
        whole.append(read(tmp_path / name))
        joined += tag + (tmp_path / name).read_bytes() + (b"TAG" + bytes(125) if tag else b"")
    (tmp_path / name).write_bytes(joined)
    np.testing.assert_array_equal(read(tmp_path / name, 0.7), np.concatenate(whole))


def test_channels_are_averaged(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.array([[0.5, -0.25]] * 100), RATE, subtype="FLOAT")
    np.testing.assert_allclose(read(tmp_path / "a.wav"), 0.125)


def test_blocks_are_exact_whatever_the_resampler_gives(tmp_path):
    soundfile.write(tmp_path / "a.flac", tone(5.0, 44_100), 44_100)
    lengths = [len(block) for block in read_blocks(tmp_path / "a.flac", 0.1)]
    assert set(lengths[:-1]) == {1_600}
    assert sum(lengths) == 5 * RATE


@pytest.mark.slow
def test_a_long_file_does_not_lie_in_memory(tmp_path):
    path = tmp_path / "long.flac"
    with soundfile.SoundFile(path, "w", 48_000, 2) as file:
        for _ in range(120):
            file.write(np.zeros((48_000 * 5, 2), np.float32))
    tracemalloc.start()
    try:
        count = sum(len(block) for block in read_blocks(path, 10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 600 * RATE
    assert peak < 24 << 20  # all of it, decoded, is 230 MB


def test_a_file_without_a_header_says_by_its_name_what_it_is(tmp_path):
    samples = np.array([0, 16_384, -32_768], "<i2")
    for name in ("a.raw", "B.PCM"):
        (tmp_path / name).write_bytes(samples.tobytes() + b"\0")
        np.testing.assert_array_equal(read(tmp_path / name), [0, 0.5, -1])


def test_files_that_are_none(tmp_path):
    (tmp_path / "text.wav").write_text("not audio at all")
    (tmp_path / "nothing.mp3").write_bytes(b"")
    (tmp_path / "a.raw").write_bytes(b"\0")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    for name, words in [
        ("missing.wav", "no such file or directory"),
        ("text.wav", "cannot be read as audio"),
        ("nothing.mp3", "cannot be read as audio"),
        ("a.raw", "there is no audio in it"),
        ("empty.wav", "there is no audio in it"),
        (".", "a folder"),
    ]:
        with pytest.raises(AudioError, match=words) as caught:
            read(tmp_path / name)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rate", [1, 999, 768_001, 2_000_000_000])
def test_absurd_rates(tmp_path, rate):
    soundfile.write(tmp_path / "a.wav", tone(0.1), RATE)
    header = bytearray((tmp_path / "a.wav").read_bytes())
    header[24:28] = rate.to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(header)
    with pytest.raises(AudioError, match=f"{rate:,} samples a second: 1,000 to 768,000"):
        read(tmp_path / "a.wav")


def test_a_file_that_is_cut_off_gives_what_is_there(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(2.0), RATE)
    whole = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(whole[: 44 + RATE * 2])
    assert len(read(tmp_path / "a.wav")) == RATE


class Damaged(io.BytesIO):
    """A recording of which the disk reads no more from `end` on."""

    end = 5_000

    def read(self, size=-1):
        if self.tell() + max(size, 0) > self.end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(size)


@pytest.mark.parametrize("kind", ["wav", "flac", "caf"])
def test_a_disk_that_cannot_be_read_is_told_and_its_recording_not_cut_short(tmp_path, capfd, kind):
    soundfile.write(tmp_path / f"a.{kind}", tone(2.0), RATE)
    with pytest.raises(AudioError) as told:
        list(read_blocks(Damaged((tmp_path / f"a.{kind}").read_bytes()), 1.0, f"a.{kind}"))
    assert str(told.value) == f"a.{kind}: input/output error"
    assert capfd.readouterr() == ("", ""), "a library's traceback beside it"


def test_a_place_before_the_beginning_is_no_error_of_the_disk(tmp_path, capfd):
    soundfile.write(tmp_path / "a.wav", tone(0.1), RATE)
    with open(tmp_path / "a.wav", "rb") as file:
        for opened in (file, io.BytesIO(file.read())):
            noted = files._Noted(opened)
            assert noted.seek(-5) == -1
            noted.check()
            assert noted.seek(5) == 5


def test_what_libsndfile_says_of_a_damaged_file_is_told_where_ffmpeg_knows_no_more(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(0.1), RATE)
    (tmp_path / "a.wav").write_bytes((tmp_path / "a.wav").read_bytes().replace(b"data", b"atad", 1))
    with pytest.raises(AudioError, match="no 'data' chunk marker"):
        read(tmp_path / "a.wav")


def test_a_pipe_is_refused_where_one_would_have_to_go_back(tmp_path, capfd):
    soundfile.write(tmp_path / "a.wav", tone(0.1), RATE)
    reading, writing = os.pipe()
    os.write(writing, (tmp_path / "a.wav").read_bytes())
    os.close(writing)
    with pytest.raises(AudioError, match="a pipe, in which there is no way back: write it to a file first"):
        read(f"/dev/fd/{reading}")
    os.close(reading)
    assert capfd.readouterr() == ("", "")


def test_raw_samples_split_anywhere():
    data = np.array([0, 16384, -32768, 1], "<i2").tobytes() + b"\1"

    class Dribble(io.BytesIO):
        def read1(self, size):
            return self.read(3)

    heard = np.concatenate(list(read_raw(Dribble(data))))
    assert heard.tolist() == [0, 0.5, -1, pytest.approx(1 / 32768)]


def test_stdin():
    code = "from trimodal.audio import files; print(*(len(b) for b in files.read_blocks('-', 0.1)), sep=',')"
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"\0" * 8_000, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() == b"1600,1600,800"
    with pytest.MonkeyPatch.context() as patch, open(os.devnull) as nothing:
        patch.setattr(sys, "stdin", nothing)
        with pytest.raises(AudioError, match="stdin: there is no audio"):
            read("-")
        patch.setattr(sys, "stdin", None)  # as a shell's `<&-` leaves it
        with pytest.raises(AudioError, match="stdin is closed"):
            read("-")


@pytest.mark.parametrize("name", ["soundfile", "soxr"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, name):
    soundfile.write(tmp_path / "a.wav", tone(0.1), 8_000)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AudioError, match=rf"{name}: pip install 'trimodal\[audio\]'"):
        read(tmp_path / "a.wav")


def test_a_missing_library_is_named(monkeypatch):
    def fail(name):
        raise OSError("sndfile library not found")

    monkeypatch.setattr(files.importlib, "import_module", fail)
    with pytest.raises(AudioError, match="soundfile: sndfile library not found; .* libsndfile1"):
        files.package("soundfile")


def test_channels_that_cancel_each_other_give_the_louder_one(tmp_path):
    one = tone(2.0)
    soundfile.write(tmp_path / "a.wav", np.stack([0.5 * one, -0.45 * one], 1), RATE, subtype="FLOAT")
    np.testing.assert_allclose(read(tmp_path / "a.wav"), 0.5 * one, atol=1e-6)
    soundfile.write(tmp_path / "b.wav", np.stack([one, 0 * one], 1), RATE, subtype="FLOAT")
    np.testing.assert_allclose(read(tmp_path / "b.wav"), 0.5 * one, atol=1e-6, err_msg="one is silent")


@pytest.mark.parametrize("length", [b"\0" * 4, b"\xff" * 4])
def test_a_wav_that_was_written_as_a_stream_is_read_to_its_end(length):
    pytest.importorskip("av")
    file = io.BytesIO()
    soundfile.write(file, tone(2.0), RATE, format="WAV")
    header = bytearray(file.getvalue())
    at = header.index(b"data") + 4
    header[4:8] = header[at : at + 4] = length
    heard = np.concatenate(list(read_blocks(io.BytesIO(bytes(header)), 1.0, "talk.wav")))
    np.testing.assert_allclose(heard, tone(2.0), atol=1e-4)
