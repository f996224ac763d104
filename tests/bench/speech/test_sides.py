import asyncio
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.speech.whisper.checkpoints import convert, sound, write_checkpoint
from trimodal.bench.common.closed_loop import LoopRound, some
from trimodal.bench.speech import capacity, direct
from trimodal.bench.speech.figures import Plan
from trimodal.bench.speech.sides import cut_windows, long_enough, open_bare, open_faster_whisper
from trimodal.errors import ArtefactError, OperatorError
from trimodal.speech.settings import RecogniseSettings

PLAN = Plan(streams=(1, 4), window_s=(5.0,), batch=8, rounds=2)


def rounds(*pairs):
    return [LoopRound(rate, (latency,) * 3) for rate, latency in pairs]


def test_windows_are_cut_one_after_the_other_and_round_again():
    streams = [np.arange(20_000, dtype=np.float32), np.arange(20_000, 40_000, dtype=np.float32)]
    windows = cut_windows(streams, 1.0, 4)
    assert [len(one) for one in windows] == [16_000] * 4
    joined = np.concatenate(windows)
    assert np.array_equal(joined, np.arange(64_000) % 40_000)
    assert windows[0].dtype == np.float32


def test_each_call_gets_other_windows():
    windows = [np.zeros(number + 1, np.float32) for number in range(5)]
    assert [len(one) for one in some(windows, 0, 3)] == [1, 2, 3]
    assert [len(one) for one in some(windows, 1, 3)] == [4, 5, 1]


@pytest.mark.slow
def test_both_bare_sides_do_the_same_work_on_whole_batches(tmp_path):
    """faster-whisper behind its padding writes what our engine writes: same windows, context and search."""
    write_checkpoint(tmp_path / "checkpoint")
    directory = convert(tmp_path / "checkpoint", tmp_path / "built")
    settings = RecogniseSettings(artefact=str(directory), intra_op_threads=1)
    audio = {2.0: [sound(2, seed) for seed in range(4)]}
    ours = open_bare(directory, settings, audio)
    theirs = open_faster_whisper(directory, settings, audio, {2.0: 2.0})
    for batch, number in ((1, 0), (3, 0), (3, 1)):
        heard = [one.text for one in ours["2 s"](batch, number)]
        assert len(heard) == batch
        assert any(heard)
        written = theirs["2 s forward"](batch, number)
        assert len(written) == batch
        for text, parts in zip(heard, written, strict=True):
            # Random weights write times in the middle of the text; there faster-whisper cuts segments.
            assert parts[0]["text"].strip()
            assert text.startswith("".join(part["text"] for part in parts))
        assert all(part["words"] for parts in written for part in parts if part["text"].strip())
    segments = theirs["2 s public"](3, 1)
    assert {segment.seek for segment in segments} <= {0, 200, 400}
    assert all(segment.words for segment in segments if segment.text.strip())


def test_capacity_report():
    found = {
        (5.0, 1, "batched"): rounds((2.0, 0.5), (1.0, 1.0)),
        (5.0, 1, "unbatched"): rounds((2.0, 0.5), (1.0, 1.0)),
        (5.0, 4, "batched"): rounds((4.0, 1.0), (2.0, 2.0)),
        (5.0, 4, "unbatched"): rounds((2.0, 2.0), (1.0, 4.0)),
    }
    formed = {(5.0, 1, "batched"): 1.0, (5.0, 4, "batched"): 3.2}
    out = io.StringIO()
    figures = capacity.report(PLAN, found, formed, Console(file=out, width=100))
    # 4 streams speak 4 s in a second; 3 windows a second (the median of 4 and 2) are 15 s.
    assert figures["5s_4"]["batched"] == pytest.approx(4 / 15)
    assert figures["5s_4"]["ratio"] == pytest.approx(2.0)
    assert figures["5s_carried"] == {"batched": pytest.approx(15), "unbatched": pytest.approx(7.5)}
    assert "15.0 streams are kept up with, unbatched 7.5" in out.getvalue()
    assert json.loads(json.dumps(figures))["5s_1"]["batch"] == 1.0


def test_the_peer_is_reported_with_its_clients_and_its_padding():
    found = {
        (5.0, 8, "served"): rounds((8, 2.0), (4, 4.0)),
        (5.0, 8, "peer"): rounds((2, 8.0), (1, 16.0)),
    }
    out = io.StringIO()
    plan = replace(PLAN, peer="fastapi")
    found |= {(5.0, 1, side): rounds((2, 0.5), (1, 1.0)) for side in ("served", "peer")}
    figures = direct.report(
        plan, found, {(5.0, 1): 1.0, (5.0, 8): 7.5}, {5.0: 5.0}, "test", Console(file=out, width=100)
    )
    assert figures["5s_8_peer"]["ratio"] == pytest.approx(4)
    (line,) = [line for line in out.getvalue().splitlines() if "16 clients" in line]
    assert "30 s" in line


async def test_a_loop_of_the_peer_is_as_long_as_three_of_its_requests():
    class FakePeer:
        def __init__(self):
            self.asked = []

        async def post(self, path, body):
            self.asked.append((path, np.frombuffer(body, np.float32)[0]))
            await asyncio.sleep(0.002)

    peer = FakePeer()
    windows = [np.full(3, index, np.float32) for index in range(2)]
    one = await direct.loop_peer(peer, windows, 2, 0.01, None)
    assert one.rate > 0
    assert peer.asked[:3] == [("/transcribe", 0), ("/transcribe", 1), ("/transcribe", 0)]
    assert long_enough(4.0, LoopRound(1.0, (3.0,))) == 9.0
    assert long_enough(4.0, LoopRound(1.0, (1.0,))) == long_enough(4.0, None) == 4.0


def test_the_peer_opens_models_of_ctranslate2_alone(tmp_path):
    other = RecogniseSettings(artefact="x", engine="tensorrt")
    with pytest.raises(OperatorError, match="faster-whisper opens CTranslate2 models.*--peer-checkpoint DIR"):
        direct.peer_model(PLAN, other, tmp_path)
    with pytest.raises(ArtefactError, match="no built speech engine"):
        direct.peer_model(replace(PLAN, peer_checkpoint=tmp_path), other, tmp_path)


def test_direct_report_pairs_neighbours():
    found = {}
    for batch, scale in ((1, 1.0), (8, 2.0)):
        found[5.0, batch, "served"] = rounds((90 * scale, 0.013), (45 * scale, 0.026))
        found[5.0, batch, "bare engine"] = rounds((100 * scale, 0.010), (50 * scale, 0.020))
        found[5.0, batch, "faster-whisper forward"] = rounds((75 * scale, 0.012), (37.5 * scale, 0.024))
        found[5.0, batch, "faster-whisper public"] = rounds((30 * scale, 0.03), (15 * scale, 0.06))
    formed = {(5.0, 1): 1.0, (5.0, 8): 7.9}
    out = io.StringIO()
    figures = direct.report(PLAN, found, formed, {5.0: 5.0}, "test", Console(file=out, width=120))
    assert figures["5s_8_bare engine"]["ratio"] == pytest.approx(0.9)
    assert figures["5s_8_faster-whisper forward"]["ratio"] == pytest.approx(1.2)
    assert figures["5s_added_ms"]["bare engine"] == pytest.approx(4.5)  # between 3 and 6
    assert figures["5s_added_ms"]["faster-whisper public"] == pytest.approx(-25.5)
    lines = out.getvalue().splitlines()
    (public,) = [line for line in lines if "public" in line and " 8 " in line]
    assert "30 s" in public, "the public call pads to 30 s, whatever the window"
    (served,) = [line for line in lines if "served" in line and "7.9" in line]
    assert max(map(len, lines)) <= 120
