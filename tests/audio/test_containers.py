import io

import numpy as np
import pytest
import soundfile

from trimodal.audio.containers import container_of, decode_container
from trimodal.audio.files import AudioError, read_blocks

av = pytest.importorskip("av")


def encoded(container, codec, rate=16_000):
    """A second of noise as FFmpeg writes it."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout="mono")
        noise = np.random.default_rng(0).normal(0, 0.1, (1, rate)).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(noise, format="fltp", layout="mono")
        frame.rate, frame.pts = rate, 0
        resampler = av.AudioResampler(format=stream.format, layout="mono", rate=rate)
        for ready in [*resampler.resample(frame), *resampler.resample(None)]:
            for packet in stream.encode(ready):
                output.mux(packet)
        for packet in stream.encode(None):
            output.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize(
    ("container", "codec", "rate", "name"),
    [
        ("ipod", "aac", 48_000, ""),
        ("webm", "libopus", 48_000, ""),
        ("adts", "aac", 48_000, ""),
        ("wav", "adpcm_g726", 8_000, ""),
        ("g722", "g722", 16_000, "prompt.G722"),
    ],
)
def test_what_libsndfile_does_not_know_is_decoded(container, codec, rate, name):
    data = encoded(container, codec, rate)
    heard = np.concatenate(list(read_blocks(io.BytesIO(data), 1.0, name)))
    assert len(heard) == pytest.approx(16_000, rel=0.05)
    assert heard.std() == pytest.approx(0.1, rel=0.5)


def test_a_rate_that_changes_within_a_file_is_taken():
    """As in what a radio sent, kept: the next programme, or an advertisement, may have another."""
    data = encoded("adts", "aac", 44_100) + encoded("adts", "aac", 48_000)
    heard = np.concatenate(list(read_blocks(io.BytesIO(data), 1.0)))
    assert len(heard) == pytest.approx(32_000, rel=0.05)


def test_a_video_without_sound_says_so():
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        picture = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        for packet in [*stream.encode(picture), *stream.encode(None)]:
            output.mux(packet)
    with pytest.raises(AudioError, match=": there is no audio in it$"):
        list(read_blocks(io.BytesIO(file.getvalue()), 1.0))


@pytest.mark.parametrize(
    "text",
    [
        "ffconcat version 1.0\nfile {secret}\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{secret}\n#EXT-X-ENDLIST\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n",
    ],
)
def test_a_recording_that_names_other_files_opens_none(tmp_path, text):
    secret = tmp_path / "secret.wav"
    soundfile.write(secret, np.random.default_rng(0).normal(0, 0.1, 16_000), 16_000)
    attack = text.format(secret=secret).encode()
    for name in ("", "a.m4a", "a.g722.txt", "list.ffconcat"):
        assert container_of(io.BytesIO(attack), name) is None
        with pytest.raises(AudioError, match="cannot be read as audio"):
            list(read_blocks(io.BytesIO(attack), 1.0, name))
    (tmp_path / "list.wav").write_bytes(attack)
    with pytest.raises(AudioError, match="cannot be read as audio"):
        list(read_blocks(tmp_path / "list.wav", 1.0))


def test_a_format_that_opens_other_files_gets_none_even_where_it_is_forced(tmp_path):
    secret = tmp_path / "secret.wav"
    soundfile.write(secret, np.zeros(16_000), 16_000)
    attack = f"ffconcat version 1.0\nfile {secret}\n".encode()
    with pytest.raises(ValueError):  # noqa: PT011 - FFmpeg's words for it differ
        list(decode_container(io.BytesIO(attack), "concat"))


def test_a_damaged_file_is_refused_with_one_sentence():
    broken = bytearray(encoded("ipod", "aac", 48_000))
    broken[40:] = bytes(len(broken) - 40)
    with pytest.raises(AudioError, match="talk: cannot be read as audio .*: invalid data found when"):
        list(read_blocks(io.BytesIO(bytes(broken)), 1.0, "talk"))


@pytest.mark.parametrize(
    ("container", "codec", "least"), [("ipod", "aac", 0.85), ("adts", "aac", 0.85), ("webm", "libopus", 0.4)]
)
def test_what_is_damaged_in_a_file_is_left_out(container, codec, least):
    data = bytearray(encoded(container, codec, 48_000))
    middle = len(data) // 2
    data[middle : middle + 600] = np.random.default_rng(1).bytes(600)
    heard = np.concatenate(list(read_blocks(io.BytesIO(bytes(data)), 1.0)))
    assert least * 16_000 < len(heard) < 16_000
    assert heard.std() == pytest.approx(0.1, rel=0.5)


@pytest.mark.parametrize(("container", "codec"), [("adts", "aac"), ("webm", "libopus")])
def test_a_file_that_is_cut_off_gives_what_is_there(container, codec):
    data = encoded(container, codec, 48_000)
    heard = np.concatenate(list(read_blocks(io.BytesIO(data[: len(data) * 2 // 3]), 1.0)))
    assert len(heard) == pytest.approx(2 / 3 * 16_000, rel=0.1)
